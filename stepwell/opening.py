"""The judge of a run, with the weights that it has learnt, ready to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stepwell.checkpoint import Checkpoint
from stepwell.config import (
    Config,
    CustomConfig,
    EntropyConfig,
    EnvironmentRewardConfig,
    GroupCredit,
    ImplicitConfig,
    InverseConfig,
    JudgeConfig,
    LabelledConfig,
    MixtureConfig,
    MonteCarloConfig,
    OutcomeRewardConfig,
    ReasoningConfig,
    RewardConfig,
    SoftQConfig,
    each_judge,
)
from stepwell.configure import COMPUTING, check_overrides, dump, parse, read_run
from stepwell.domains import build_domain
from stepwell.engine.export import load_weights
from stepwell.engine.local import LocalModel
from stepwell.errors import ConfigError, RunError, sentence
from stepwell.protocols import ProcessReward, RewardLearner
from stepwell.reading import Nowhere, reading_world
from stepwell.runfolder import Which, find_checkpoint
from stepwell.speaking import build_speaker, policy_spec
from stepwell.world import World

__all__ = ["Opened", "check_place", "check_reads", "opened"]

Make = Callable[[Config, World], Callable[[], ProcessReward]]


class Opened(NamedTuple):
    """A judge and what it was made from.

    Attributes:
        config: Of its run, as far as reading goes.
        origin: In words, such as `the judge of runs/prm (reward.kind=labelled), step 200`.
    """

    reward: ProcessReward
    world: World
    config: Config
    origin: str

    @property
    def separator(self) -> str | None:
        """What ends a step for it, where it was taught with something; None where not.

        Raises:
            RunError: It is several judges, taught differently.
        """
        found = {judge.separator for judge in each_judge(self.config.reward).values() if isinstance(judge, LabelledConfig)}
        if len(found) > 1:
            raise RunError(
                f"{sentence(self.origin)} is several, taught with different ends of steps, {sorted(found)}; say which: a separator of "
                "yours."
            )
        return next(iter(found), None)


def opened(run: Path, make: Make, overrides: Sequence[str] = (), *, checkpoint: Which = "last") -> Opened:
    """Opens the judge of a run; what it learnt from need not be at hand.

    Args:
        run: The run's folder; a run that is going on can be opened too.
        make: From settings to a judge, see `judging.reward_of`.
        overrides: `key=value` arguments for where the engine computes, and `rollout.context`, the tokens that are read at most.
        checkpoint: The last one, or the one with the best evaluation during training.

    Raises:
        RunError: The folder holds no run, no such checkpoint, or no judge; or one that reads no text.
        ConfigError: A setting that cannot be changed here.
    """
    trained = read_run(run)
    for setting, judge in each_judge(trained.reward).items():
        check_reads(judge, setting, str(run))
    found = find_checkpoint(run, checkpoint)
    check_overrides(overrides, (*COMPUTING, "rollout.context"))
    config = _reading(parse(dump(trained), overrides))
    world = _world(config, trained, found) if "policy" in found.models else reading_world(config, trained)
    reward = _restored(make(config, world)(), found, run)
    return Opened(reward, world, config, f"the judge of {run} (reward.kind={config.reward.kind}), step {found.step}")


def _world(config: Config, trained: Config, found: Checkpoint) -> World:
    domain = build_domain(config.domain)
    speaker = build_speaker(config, domain, trained)
    policy = speaker.engine.model("policy", policy_spec(config))
    load_weights(policy, found.folder_of("policy"))
    return World(speaker.engine, policy, domain, speaker.player, speaker.tokenizer, config.seed)


def check_place(found: Opened, config: Config, what: str, go: str) -> None:
    """Whether a judge has learnt where it is to judge. One that was taught by a file alone has learnt nowhere, and may judge anywhere.

    Args:
        found: The judge.
        config: Of where it is to judge.
        what: In words, such as `the candidates are of`.
        go: What could be done elsewhere, such as `search`.

    Raises:
        ConfigError: It learnt in another domain.
    """
    own, other = _place(config), _place(found.config)
    if own != other and not isinstance(found.world.domain, Nowhere):
        raise ConfigError(
            f"{sentence(found.origin)} learnt in {other}, and {what} {own}, where its numbers mean nothing. Name a judge that learnt in "
            f"{own}, or {go} in {other}."
        )


def _place(config: Config) -> str:
    return f"{config.domain.kind} ({config.domain.task})" if isinstance(config.domain, ReasoningConfig) else str(config.domain.kind)


def check_reads(reward: RewardConfig | JudgeConfig, setting: str, run: str) -> None:
    """Whether a judge of this kind can be asked about episodes as text.

    Raises:
        RunError: It cannot; the sentence begins with `run`.
    """
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
    raise RunError(f"{run} cannot score a file: {setting}.kind is {reward.kind!r}, which {why}.")


def _reading(config: Config) -> Config:
    """The settings without what matters to learning alone: no demonstrations, no labels, no critic; and steps are turns."""
    reward = config.reward
    if isinstance(reward, MixtureConfig):
        judges = {name: judge.model_copy(update=_only_reading(judge)) for name, judge in reward.judges.items()}
        read: RewardConfig = reward.model_copy(update={"judges": judges})
    else:
        read = reward.model_copy(update=_only_reading(reward))
    return config.model_copy(update={"reward": read, "credit": GroupCredit()})


def _only_reading(reward: RewardConfig | JudgeConfig) -> dict[str, str | int | None]:
    if isinstance(reward, ImplicitConfig):
        return {"judged": "all"}
    if isinstance(reward, InverseConfig):
        return {"demonstrations": "none", "correct": "positive", "spoilt": 0, "updates": 0, "start": None}
    if isinstance(reward, SoftQConfig):
        return {"warm": 0, "updates": 1}
    if isinstance(reward, EntropyConfig):
        return {"split": "none"}
    return {"data": ""} if isinstance(reward, LabelledConfig) else {}


def _restored(reward: ProcessReward, found: Checkpoint, run: Path) -> ProcessReward:
    if not isinstance(reward, RewardLearner):
        return reward
    models = reward.models()
    missing = sorted(set(models) - set(found.models))
    if missing:
        raise RunError(
            f"{run} has no judge yet: its checkpoint of step {found.step} holds {', '.join(found.models)}, and not {', '.join(missing)}. "
            "A judge is made when the warm start is over; take the last checkpoint, or go on with the training "
            "(stepwell train ... --resume)."
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
