"""A judge of a run and solutions of anyone's: a number for each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stepwell.checkpoint import Checkpoint
from stepwell.config import (
    Config,
    CustomConfig,
    EntropyConfig,
    EnvironmentRewardConfig,
    GroupCredit,
    ImplicitConfig,
    InverseConfig,
    LabelledConfig,
    MonteCarloConfig,
    OutcomeRewardConfig,
    SoftQConfig,
)
from stepwell.configure import COMPUTING, check_overrides, dump, parse
from stepwell.domains import build_domain
from stepwell.engine.chat import Chat
from stepwell.engine.export import load_weights
from stepwell.engine.local import LocalModel
from stepwell.errors import RunError
from stepwell.judging import reward_of
from stepwell.protocols import ProcessReward, RewardLearner
from stepwell.reading import reading_world
from stepwell.rewards.labelled import Encoded
from stepwell.runfolder import Which, find_checkpoint, read_config
from stepwell.solutions import Solution
from stepwell.speaking import build_speaker, policy_spec
from stepwell.step_judges import labelled_judge
from stepwell.types import Ending, EndingKind, Episode, Group, Ids, Invalid, Observation, Reply, Scored, Stop, Task, Turn, Verdict
from stepwell.world import World

__all__ = ["Display", "OpenedJudge", "Shown", "StepScores", "open_judge"]

_TOGETHER = 256
"""Solutions that are shown to the judge in one call."""
_SEPARATOR = "\n\n"
_NOTHING: Ids = np.zeros(0, np.int64)


class StepScores(NamedTuple):
    """What was said about a solution.

    Attributes:
        scores: Of each step; None where there is no number.
        empty: How many steps have no text.
        cut: How many lie beyond what the judge can read.
        unsaid: Of how many others the judge says no number.
    """

    scores: tuple[float | None, ...]
    empty: int
    cut: int
    unsaid: int


class Shown(NamedTuple):
    """A solution as the judge sees it: each step is a turn, and one that is empty or cut has no tokens. Counts as in `StepScores`."""

    episode: Episode
    empty: int
    cut: int


@dataclass(frozen=True, slots=True)
class Display:
    """How a solution is shown to a judge: as the answer to its conversation.

    First the conversation in the run's chat template, then each step with the separator. Every one of them is encoded by itself, so that no
    token reaches over the end of a step; a special token that is spelled out in a text is ordinary text.

    Attributes:
        chat: Of the run, with its system text.
        with_system: A chat with another system text, for conversations that begin with one of their own.
        separator: What ends a step. [L]
        context: Tokens that the judge reads at most.
        version: Of the policy's weights, which the steps are taken to be said by.
    """

    chat: Chat
    with_system: Callable[[str], Chat]
    separator: Ids
    context: int
    version: int

    def show(self, solution: Solution) -> Shown:
        """Steps up to the first that does not fit."""
        first, *rest = solution.messages
        chat, messages = (self.with_system(first.text), rest) if first.role == "system" else (self.chat, [first, *rest])
        head = chat.prompt(messages)
        pieces: list[Ids] = []
        room, cut = self.context - len(head), 0
        for step in solution.steps:
            piece = np.concatenate([chat.text(step), self.separator]) if step.strip() else _NOTHING
            if len(piece) and (cut or len(piece) > room):
                piece, cut = _NOTHING, cut + 1
            pieces.append(piece)
            room -= len(piece)
        ids = np.concatenate([head, *pieces])
        ends = np.cumsum([len(head), *map(len, pieces)])
        turns = tuple(
            self._turn(step, ids[:start], ids[start:end]) for step, (start, end) in zip(solution.steps, pairwise(ends), strict=True)
        )
        ending = Ending(EndingKind.TRUNCATED, "not all steps fit into the context") if cut else Ending(EndingKind.TERMINATED)
        asked = messages[-1].text
        task = Task(str(solution.id), asked, 0.0, "file")
        episode = Episode(task, 0, Observation(asked), turns, ending, Verdict.unscored("nobody has graded it"))
        return Shown(episode, sum(not step.strip() for step in solution.steps), cut)

    def _turn(self, step: str, context: Ids, ids: Ids) -> Turn:
        action = Invalid(step, "a step of a solution is not acted on")
        return Turn(context, ids, np.zeros(len(ids)), step, action, Reply(Observation("")), Stop.STRING, self.version)


class OpenedJudge(NamedTuple):
    """A trained judge, ready to read.

    Attributes:
        origin: In words, such as `the judge of runs/prm (reward.kind=labelled), step 200`.
    """

    reward: ProcessReward
    display: Display
    origin: str

    def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """A number for each step of each solution: the judge's component `judge`, on its own scale.

        A step is taken for what a turn is in an episode of the run. None, and counted, are steps without text; those that do not fit into
        the context, and all after them (where the conversation does not fit, all of them); and those of which the judge says nothing.

        Raises:
            RunError: The judge's weights hold NaN or infinity.
        """
        made: list[StepScores] = []
        for at in range(0, len(solutions), _TOGETHER):
            shown = [self.display.show(solution) for solution in solutions[at : at + _TOGETHER]]
            groups = [Group(one.episode.task, (one.episode,)) for one in shown if one.episode.num_tokens]
            scored = iter(self.reward.score(groups) if groups else ())
            made += [_scores(one, next(scored).members[0] if one.episode.num_tokens else None) for one in shown]
        return made


def _scores(shown: Shown, scored: Scored | None) -> StepScores:
    if scored is None:
        return StepScores((None,) * len(shown.episode.turns), shown.empty, shown.cut, 0)
    said_S = scored.scored_S & (scored.steps.lengths_S > 0)
    scores = tuple(float(reward) if said else None for reward, said in zip(scored.rewards["judge"], said_S, strict=True))
    return StepScores(scores, shown.empty, shown.cut, int((~said_S).sum()) - shown.empty - shown.cut)


def open_judge(run: Path, overrides: Sequence[str] = (), *, checkpoint: Which = "last", separator: str | None = None) -> OpenedJudge:
    """The judge of a run, with the weights that it has learnt; what it learnt from need not be at hand.

    Args:
        run: The run's folder; a run that is going on can be opened too.
        overrides: `key=value` arguments for where the engine computes, and `rollout.context`, the tokens that are read at most.
        checkpoint: The last one, or the one with the best evaluation during training.
        separator: What ends a step; None is the labelled judge's `reward.separator`, and a blank line for others.

    Raises:
        RunError: The folder holds no run, no such checkpoint, or no judge; or one that reads no text.
        ConfigError: A setting that cannot be changed here.
    """
    trained = parse(read_config(run))
    _check_reads(trained, run)
    found = find_checkpoint(run, checkpoint)
    check_overrides(overrides, (*COMPUTING, "rollout.context"))
    config = _reading(parse(dump(trained), overrides))
    world = _world(config, trained, found) if "policy" in found.models else reading_world(config, trained)
    reward = _restored(_made(config, world), found, run)
    if separator is None:
        separator = config.reward.separator if isinstance(config.reward, LabelledConfig) else _SEPARATOR
    ends = np.array(world.tokenizer.encode(separator, add_special_tokens=False), np.int64)

    @lru_cache(64)
    def with_system(text: str) -> Chat:
        return Chat.of(world.tokenizer, system=text, template=config.chat.template)

    display = Display(world.player.chat, with_system, ends, world.player.limits.context, world.policy.version)
    return OpenedJudge(reward, display, f"the judge of {run} (reward.kind={config.reward.kind}), step {found.step}")


def _world(config: Config, trained: Config, found: Checkpoint) -> World:
    domain = build_domain(config.domain)
    speaker = build_speaker(config, domain, trained)
    policy = speaker.engine.model("policy", policy_spec(config))
    load_weights(policy, found.folder_of("policy"))
    return World(speaker.engine, policy, domain, speaker.player, speaker.tokenizer, config.seed)


def _check_reads(config: Config, run: Path) -> None:
    reward = config.reward
    if isinstance(reward, OutcomeRewardConfig | EnvironmentRewardConfig):
        why = "has no judge: it pays what the environment and its verdict say, which a file does not hold"
    elif isinstance(reward, MonteCarloConfig) and reward.judge == "none":
        why = (
            "has no judge that reads text: its estimates are played in the environment. One that is fitted to them (reward.judge=head) does"
        )
    elif isinstance(reward, CustomConfig):
        why = "is a class of yours; ask it from Python, with episodes that it knows"
    else:
        return
    raise RunError(f"{run} cannot score a file: reward.kind is {reward.kind!r}, which {why}.")


def _reading(config: Config) -> Config:
    """The settings without what matters to learning alone: no demonstrations, no critic; and steps are turns."""
    reward = config.reward
    changed: dict[str, str | int] = {}
    if isinstance(reward, ImplicitConfig):
        changed = {"judged": "all"}
    elif isinstance(reward, InverseConfig):
        changed = {"demonstrations": "none", "correct": "positive", "spoilt": 0, "updates": 0}
    elif isinstance(reward, SoftQConfig):
        changed = {"warm": 0, "updates": 1}
    elif isinstance(reward, EntropyConfig):
        changed = {"split": "none"}
    return config.model_copy(update={"reward": reward.model_copy(update=changed), "credit": GroupCredit()})


def _made(config: Config, world: World) -> ProcessReward:
    if isinstance(config.reward, LabelledConfig):
        return labelled_judge(config, config.reward, world, Encoded([], 0, 0))()
    return reward_of(config, world)()


def _restored(reward: ProcessReward, found: Checkpoint, run: Path) -> ProcessReward:
    if not isinstance(reward, RewardLearner):
        return reward
    models = reward.models()
    missing = sorted(set(models) - set(found.models))
    if missing:
        raise RunError(
            f"{run} has no judge yet: its checkpoint of step {found.step} holds {', '.join(found.models)}, and not {', '.join(missing)}. "
            "A judge is made when the warm start is over; go on with the training (stepwell train ... --resume)."
        )
    for name, model in models.items():
        if isinstance(model, LocalModel):
            load_weights(model, found.folder_of(name))
        else:
            found.restore_model(name, model)
    trainer = found.state["trainer"]
    assert isinstance(trainer, Mapping)
    state = trainer["reward"]
    assert isinstance(state, dict)
    reward.restore(state)
    return reward
