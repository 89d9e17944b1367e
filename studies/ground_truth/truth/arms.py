"""Who judges, and what is made of it: judges and credit rules of the library by name.

A setting is a flat dictionary of numbers and names: `lr` of the policy, `credit` and `alpha`, `judge_lr`, and what else a judge has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stepwell.credit import (
    GAE,
    Adaptive,
    Centred,
    GiGPO,
    IStar,
    LeaveOneOut,
    MinForm,
    OutcomeOnly,
    Prime,
    ProcessSupervision,
    ProcessToGo,
    Raw,
    RePIRL,
    Standardised,
    Whitened,
    by_turn,
)
from stepwell.engine.batch import episode_rows, join
from stepwell.engine.table import TableEngine, TableModel
from stepwell.envs.exact import Values
from stepwell.protocols import Assign, KeptPolicy, ModelSpec, ProcessReward
from stepwell.rewards.critic import Critic, CriticSettings
from stepwell.rewards.entropy import EntropyReward, EntropySettings
from stepwell.rewards.examples import Examples
from stepwell.rewards.fitted import Form, HeadReader, Lesson, readings
from stepwell.rewards.implicit import ImplicitReward, ImplicitSettings
from stepwell.rewards.intrinsic import IntrinsicReward, IntrinsicSettings
from stepwell.rewards.inverse import InverseReward, InverseSettings
from stepwell.rewards.labelled import Encoded, LabelledReward, LabelledSettings
from stepwell.rewards.montecarlo import MonteCarloReward, MonteCarloSettings
from stepwell.rewards.outcome import OutcomeReward, Pay, paid
from stepwell.rewards.soft_q import SoftQReward, SoftQSettings
from stepwell.rewards.temporal import TemporalReward, TemporalSettings
from stepwell.types import Bools, Episode, Floats, Group, Scored
from truth.world import TIE, Player, StudyError

__all__ = ["CLONING", "EXPERTS", "JUDGES", "LEARN_FIRST", "OUTCOME_ONLY", "Oracle", "Setting", "Stage", "judge_of", "rule_of", "scores_of"]

Setting = Mapping[str, float | str]
_PAY: Pay = "score"
LABELLED_EPISODES = 32
"""That the labelled judge has the steps of; they count as episodes."""


class Stage(NamedTuple):
    """What a judge is made from."""

    engines: Mapping[str, TableEngine]
    policy: TableModel
    player: Player
    seed: int

    def engine(self, setting: Setting) -> TableEngine:
        """That of what the judge sees."""
        return self.engines[str(setting.get("sees", "state"))]


# -- credit -------------------------------------------------------------------------------------------------------------------


def rule_of(setting: Setting) -> Assign:
    """The credit rule of a setting."""
    alpha = float(setting.get("alpha", 1.0))
    name = str(setting["credit"])
    rules: dict[str, Callable[[], Assign]] = {
        "grpo": lambda: OutcomeOnly(Standardised()),
        "batch": lambda: OutcomeOnly(Centred(), "batch"),
        "drgrpo": lambda: OutcomeOnly(Centred()),
        "rloo": lambda: OutcomeOnly(LeaveOneOut()),
        "rloo_batch": lambda: OutcomeOnly(LeaveOneOut(), "batch"),
        "gigpo": lambda: GiGPO(Standardised(), alpha, Standardised(), float(setting.get("discount", 0.95))),
        "step": lambda: IStar(Standardised(), alpha, Standardised(noise_floor=1e-4), only_mixed=False),
        "adaptive": lambda: Adaptive(IStar(Standardised(), alpha, Standardised(noise_floor=1e-4), only_mixed=False)),
        "step_mixed": lambda: IStar(Standardised(), alpha, Standardised(noise_floor=1e-4)),
        "step_raw": lambda: IStar(Standardised(), alpha, Raw(), only_mixed=False),
        "to_go": lambda: ProcessToGo(LeaveOneOut(), alpha),
        "supervision": lambda: ProcessSupervision(Standardised(), alpha, Standardised(noise_floor=1e-4)),
        "prime": lambda: Whitened(Prime(alpha)),
        "repirl": lambda: Whitened(RePIRL(alpha)),
        "min_form": lambda: MinForm(LeaveOneOut(), alpha, 0.1),
        "gae": lambda: Whitened(_gae(setting)),
    }
    if name not in rules:
        raise StudyError(f"There is no credit {name!r} in this study; known: {', '.join(rules)}.")
    return rules[name]()


def _gae(setting: Setting) -> GAE:
    return GAE(lam=float(setting.get("lam", 0.95)))


# -- judges -------------------------------------------------------------------------------------------------------------------


class Oracle:
    """The exact advantage of each step under the policy as it is: what no learned judge can pass.

    Args:
        player: Who plays.
        truth: From probabilities to values; the policy's own by default.
    """

    def __init__(self, player: Player, truth: Callable[[Floats], Values] | None = None) -> None:
        self._player = player
        self._truth = truth or player.world.values

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `judge`."""
        values = self._truth(self._player.chosen_XA)
        return [Group(group.task, tuple(self._attach(episode, values) for episode in group.members)) for group in groups]

    def _attach(self, episode: Episode, values: Values) -> Scored:
        made_S = self._player.world.advantages(values, episode)
        steps = by_turn(episode)
        return Scored(episode, steps, paid(episode, _PAY), {"judge": made_S}, np.ones(len(steps), np.bool_))


class WithReference:
    """A reward, and beside it what the policy at the start says: for a KL term."""

    def __init__(self, inner: ProcessReward, reference: KeptPolicy) -> None:
        self._inner, self._reference = inner, reference

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """The inner reward's, with reference log-probs."""
        scored = self._inner.score(groups)
        rows = [episode_rows(member.episode) for group in scored for member in group.members]
        said = iter(join(self._reference.logprobs([row for some in rows for row in some]), [len(some) for some in rows]))
        return [Group(g.task, tuple(replace(member, ref_logprobs_T=next(said)) for member in g.members)) for g in scored]


def _head(stage: Stage, name: str, setting: Setting) -> TableModel:
    return stage.engine(setting).model(name, ModelSpec(kind="head", of="policy"))


def _second(stage: Stage, name: str, setting: Setting) -> TableModel:
    return stage.engine(setting).model(name, ModelSpec(of="policy"))


def _form(name: str) -> Form:
    return "value" if name.endswith(" value") else "progress"


def _lr(setting: Setting) -> float:
    return float(setting.get("judge_lr", 0.1))


def _implicit(stage: Stage, name: str, setting: Setting) -> ProcessReward:
    cross, beta = name == "prime", float(setting.get("beta", 0.5))
    made = ImplicitSettings(
        beta=beta,
        lr=_lr(setting),
        pay=_PAY,
        reference="moving" if name == "istar" else "frozen",
        objective="cross_entropy" if cross else "preference",
    )
    return ImplicitReward(_second(stage, name, setting), stage.policy, made)


def _inverse(stage: Stage, name: str, setting: Setting) -> ProcessReward:
    objective = {"regail": "discriminator", "iq": "iq"}.get(name, "irl")
    examples = None if name == "repirl_own" else Examples(stage.player.demonstration, 1)
    weights = str(setting.get("weights", "length"))
    made = InverseSettings(objective=objective, lr=_lr(setting), pay=_PAY, weights=weights)  # type: ignore[arg-type]
    return InverseReward(_head(stage, name, setting), stage.policy, made, examples)


def _montecarlo(stage: Stage, name: str, setting: Setting) -> ProcessReward:
    if name == "visits":
        return MonteCarloReward(stage.player.go_on, MonteCarloSettings(pay=_PAY, source="visits", form="progress"))
    if name == "continuations":
        number = int(setting.get("continuations", 1))
        return MonteCarloReward(stage.player.go_on, MonteCarloSettings(pay=_PAY, continuations=number, form="progress"))
    made = MonteCarloSettings(pay=_PAY, continuations=1, form=_form(name), members=1)
    return MonteCarloReward(stage.player.go_on, made, reader=HeadReader(_head(stage, name, setting)), lr=_lr(setting), updates=2)


def _temporal(stage: Stage, name: str, setting: Setting) -> ProcessReward:
    made = TemporalSettings(pay=_PAY, form=_form(name), lam=float(setting.get("lam", 0.95)), lr=_lr(setting))
    return TemporalReward(_head(stage, name, setting), made)


def _soft_q(stage: Stage, name: str, setting: Setting) -> ProcessReward:
    beta, lr = float(setting.get("beta", 0.2)), _lr(setting)
    value = stage.engine(setting).model(f"{name} value", ModelSpec(kind="head", of="policy"))
    return SoftQReward(_second(stage, name, setting), value, SoftQSettings(pay=_PAY, beta=beta, lr=lr, value_lr=lr))


def _labelled(stage: Stage, name: str, setting: Setting) -> ProcessReward:
    """Steps of the starting policy's episodes. Labels say whether a step was good for it: 1, 0, or 1/2 for no difference."""
    world = stage.player.world
    now = world.values(stage.player.chosen_XA)
    lessons = []
    for episode in stage.player.play(1, LABELLED_EPISODES)[0].members:
        advantage_S = world.advantages(now, episode)
        label_S = np.where(np.abs(advantage_S) < TIE, 0.5, advantage_S > 0)
        [reading] = readings(episode, by_turn(episode))
        lessons.append(Lesson(reading._replace(ends=reading.ends[1:], places=reading.places[1:]), label_S))
    made = LabelledSettings(pay=_PAY, warm=60, lr=_lr(setting))
    return LabelledReward(HeadReader(_head(stage, name, setting)), Encoded(lessons, 0, 0), made, seed=stage.seed)


def _critic(stage: Stage, name: str, setting: Setting) -> ProcessReward:
    return Critic(OutcomeReward(_PAY), _head(stage, name, setting), _gae(setting), CriticSettings(lr=_lr(setting), clip=None))


_Make = Callable[[Stage, str, Setting], ProcessReward]
JUDGES: dict[str, _Make] = {
    "istar": _implicit,
    "implicit": _implicit,
    "prime": _implicit,
    "repirl_own": _inverse,
    "visits": _montecarlo,
    "montecarlo": _montecarlo,
    "temporal": _temporal,
    "soft_q": _soft_q,
    "critic": _critic,
    "entropy": lambda stage, name, setting: EntropyReward(stage.policy, EntropySettings(beta=float(setting.get("beta", 0.01)), pay=_PAY)),
    "intrinsic": lambda stage, name, setting: IntrinsicReward(stage.policy, IntrinsicSettings(pay=_PAY)),
    "labelled": _labelled,
    "repirl": _inverse,
    "regail": _inverse,
    "iq": _inverse,
}
EXPERTS = ("labelled", "repirl", "regail", "iq")
"""Judges that are told something that the outcomes do not say: demonstrations, or labels."""
OUTCOME_ONLY = ("grpo", "rloo", "grpo_kl", "gigpo")
CLONING = "cloning"
"""GRPO on outcomes, and before each step a demonstration is cloned: what demonstrations are worth without a judge."""
LEARN_FIRST = ("repirl", "repirl_own", "regail", "iq")
"""Judges that learn before they score, as their papers do."""


def judge_of(name: str, stage: Stage, setting: Setting) -> ProcessReward:
    """The judge of an arm; plain outcomes for an arm without one. `temporal value` says chances where `temporal` says what changed."""
    if name in (*OUTCOME_ONLY, CLONING):
        outcome = OutcomeReward(_PAY)
        return WithReference(outcome, stage.policy.keep()) if name == "grpo_kl" else outcome
    if name == "oracle":
        return Oracle(stage.player)
    kind = name.removesuffix(" value")
    if kind not in JUDGES:
        raise StudyError(f"There is no arm {name!r} in this study; known: {', '.join([*OUTCOME_ONLY, 'oracle', *JUDGES])}.")
    return JUDGES[kind](stage, name, setting)


def scores_of(scored: Scored) -> tuple[Floats, Bools]:
    """What a judge says of each step, and where; of a critic what it expects to change. [S] each"""
    if scored.values_S is None:
        return scored.process_S, scored.scored_S
    end = scored.outcome if scored.outcome is not None else 0.0
    return np.append(scored.values_S[1:], end) - scored.values_S, np.ones(len(scored.steps), np.bool_)
