"""The six variants of an ablation, and any other change by name: from one config to another.

| variant | step rewards | curriculum | interruptions | judge learns |
|---|---|---|---|---|
| `full` | yes | yes | yes | yes |
| `no_curriculum` | yes | no | yes | yes |
| `no_step_rewards` | no | yes | yes | - |
| `no_interruptions` | yes | yes | no | yes |
| `static_judge` | yes | yes | yes | before, then no more |
| `vanilla_grpo` | no | no | no | - |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.config import BasketConfig, Config, CustomConfig, OutcomeRewardConfig, QuestionsConfig, ShopConfig, each_judge
from stepwell.configure import dump, parse
from stepwell.errors import ConfigError, RunError, nearest
from stepwell.opening import check_reads

__all__ = ["BUILT_IN", "Variant", "can_interrupt", "clean", "full", "judged", "perturbed", "variants_of"]

Tree = dict[str, Any]

_FROZEN = 1e-12
"""A learning rate below the precision of float32: the policy stays what the warm start made of it, to the bit."""
_ANYWHERE = ["tool_error", "stale_page"]
_OUTCOME_PARTS = {"prime": "rloo", "repirl": "rloo"}
"""What rules compare outcomes by that have no choice of it."""
_SHOP = ["price_rise", "stock_out", "option_revised", "tool_error"]


@dataclass(frozen=True, slots=True)
class Variant:
    """What is run under a name.

    Attributes:
        config: Of its runs; the seed is set for each.
        judge: Of the run before them that teaches a judge, which then learns no more; None where there is none.
    """

    name: str
    config: Config
    judge: Config | None = None


def full(base: Config) -> Config:
    """All ideas at once. What the config names is taken as it is; an idea that it leaves out gets a default.

    A uniform curriculum becomes `entropy` of the same range; where nothing interrupts, half of the training episodes are interrupted.
    Held-out tasks are never interrupted in the run itself. A run computes on one thread, and is validated at least five times.

    Raises:
        ConfigError: There are no step rewards.
    """
    if isinstance(base.reward, OutcomeRewardConfig):
        raise ConfigError(
            "reward.kind is 'outcome', so there are no step rewards to take away; choose a judge and a rule that reads it, "
            "such as reward.kind=implicit credit.kind=istar."
        )
    tree = dump(base)
    if tree["curriculum"]["kind"] == "uniform":
        tree["curriculum"] = {**tree["curriculum"], "kind": "entropy"}
    if can_interrupt(base):
        known = tree["domain"]["interruptions"]
        kinds = known["kinds"] or (_SHOP if isinstance(base.domain, ShopConfig | BasketConfig) else _ANYWHERE)
        share = known["share"] if known["kinds"] else 0.5
        tree["domain"]["interruptions"] = {**known, "kinds": kinds, "share": share, "splits": ["train"]}
    if "threads" in tree["engine"]:
        tree["engine"]["threads"] = 1
    most = max(1, base.steps // 5)
    tree["evaluation"]["every"] = min(base.evaluation.every or most, most)
    tree["tracking"]["episodes_every"] = base.tracking.episodes_every or 1
    return parse(tree)


def can_interrupt(config: Config) -> bool:
    """Whether the domain has episodes of several turns in which something can happen."""
    return not isinstance(config.domain, QuestionsConfig | CustomConfig)


def clean(config: Config) -> Config:
    """The same in a world in which nothing happens."""
    return _changed(config, _without_interruptions)


def perturbed(config: Config) -> Config:
    """The same where something happens in every held-out episode, as in training."""

    def change(tree: Tree) -> None:
        tree["domain"]["interruptions"] |= {"share": 1.0, "splits": ["test"]}

    return _changed(config, change)


def judged(config: Config, run: str) -> Config:
    """The same with the judge of another run, which learns no more.

    Raises:
        ConfigError: The credit rule wants more of the judge than that.
    """

    def change(tree: Tree) -> None:
        tree["reward"] = {"kind": "trained", "run": run, "pay": tree["reward"].get("pay", "success")}

    try:
        for setting, judge in each_judge(config.reward).items():
            check_reads(judge, setting, "A run of it")
        return _changed(config, change)
    except (ConfigError, RunError) as error:
        raise ConfigError(f"Variant 'static_judge': {error} Or leave the variant out (--only).") from None


# -- the changes --------------------------------------------------------------------------------------------------------------


def _without_curriculum(tree: Tree) -> None:
    tree["curriculum"] = {"kind": "uniform", "difficulty": tree["curriculum"].get("difficulty")}


def _without_step_rewards(tree: Tree) -> None:
    tree["reward"] = {"kind": "outcome", "pay": tree["reward"].get("pay", "success")}
    tree["credit"] = _of_outcomes(tree["credit"])
    tree["shaping"], tree["alarms"] = {}, {}


def _of_outcomes(credit: Tree) -> Tree:
    """The rule's own comparison of outcomes, without a process part."""
    kind = credit["kind"]
    if kind in _OUTCOME_PARTS:
        return {"kind": _OUTCOME_PARTS[kind]}
    if kind in ("istar", "process_to_go", "process_supervision", "min_form"):
        baseline = credit["baseline"]
        return {"kind": baseline} if baseline in ("grpo", "drgrpo", "rloo") else {"kind": "grpo"}
    if kind == "gae":
        return {**credit, "outcome_weight": credit["outcome_weight"] or 1.0}
    return {**credit, "pays": "outcome"} if "pays" in credit else credit


def _without_interruptions(tree: Tree) -> None:
    if "interruptions" in tree["domain"]:
        tree["domain"]["interruptions"] = {}
    tree["interrupted_credit"] = {}


def _vanilla(tree: Tree) -> None:
    _without_curriculum(tree)
    _without_step_rewards(tree)
    _without_interruptions(tree)
    tree["credit"] = {"kind": "grpo"}


def _changed(config: Config, change: Callable[[Tree], None]) -> Config:
    tree = dump(config)
    change(tree)
    return parse(tree)


_CHANGES: Mapping[str, Callable[[Tree], None]] = {
    "full": lambda tree: None,
    "no_curriculum": _without_curriculum,
    "no_step_rewards": _without_step_rewards,
    "no_interruptions": _without_interruptions,
    "static_judge": lambda tree: None,
    "vanilla_grpo": _vanilla,
}
BUILT_IN = tuple(_CHANGES)
"""Names of the six variants."""


def variants_of(base: Config, named: Mapping[str, Sequence[str]], only: Sequence[str], judge_steps: int | None = None) -> list[Variant]:
    """The variants that are asked for, in their order; without `only` the six and the named ones.

    Args:
        base: The config whose ideas are taken away.
        named: Name -> `key=value` changes of the full system.
        only: Names.
        judge_steps: Batches of the warm-started policy's episodes that the static judge learns from; None is a quarter of `steps`.

    Raises:
        ConfigError: An unknown name, a name given twice or taken, a change that cannot be; or nothing can be interrupted here.
    """
    taken = [name for name in named if name in BUILT_IN]
    if taken:
        raise ConfigError(f"The variant {taken[0]!r} is built in; give your change another name.")
    twice = [name for at, name in enumerate(only) if name in only[:at]]
    if twice:
        raise ConfigError(f"The variant {twice[0]!r} is asked for twice; name each one once.")
    for name in only:
        if name not in (*BUILT_IN, *named):
            raise ConfigError(f"There is no variant {name!r}; {nearest(name, [*BUILT_IN, *named])}.")
    if "no_interruptions" in only and not can_interrupt(base):
        raise ConfigError(f"Nothing can be interrupted in the domain {base.domain.kind!r}; leave the variant 'no_interruptions' out.")
    whole = full(base)
    possible = [name for name in BUILT_IN if name != "no_interruptions" or can_interrupt(base)]
    return [_variant(name, whole, named.get(name, ()), judge_steps) for name in only or (*possible, *named)]


def _variant(name: str, whole: Config, changes: Sequence[str], judge_steps: int | None) -> Variant:
    if name == "static_judge":
        judged(whole, "runs/judge")
        return Variant(name, whole, _teaching(whole, judge_steps))
    if name in _CHANGES:
        return Variant(name, _changed(whole, _CHANGES[name]))
    for change in changes:
        if change.partition("=")[0] in ("seed", "name", "steps"):
            raise ConfigError(f"Variant {name!r} changes {change!r}; seeds, names and steps are the same for all variants.")
    try:
        return Variant(name, parse(dump(whole), changes))
    except ConfigError as error:
        raise ConfigError(f"Variant {name!r}: {error}") from None


def _teaching(whole: Config, judge_steps: int | None) -> Config:
    """A run whose policy stays as the warm start left it, and whose judge learns from what it plays."""
    steps = max(1, whole.steps // 4) if judge_steps is None else judge_steps
    if steps < 1:
        raise ConfigError(f"The static judge is to learn from {steps} batches; give 1 or more.")

    def change(tree: Tree) -> None:
        tree["steps"] = steps
        tree["optimizer"] = {**tree["optimizer"], "lr": _FROZEN, "weight_decay": 0.0}
        tree["evaluation"] |= {"every": 0, "episodes": 1}
        tree["alarms"] = {}

    return _changed(whole, change)
