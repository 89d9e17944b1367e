"""The search: sample, judge, choose."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from stepwell.build import first_tasks
from stepwell.errors import ConfigError
from stepwell.evaluation.aggregate import Aggregate
from stepwell.rollout import Player, began, rollout
from stepwell.searching.answers import answering
from stepwell.searching.curves import choices, floors_of, prices, sampled_curves
from stepwell.searching.found import FLOOR, Found
from stepwell.searching.grow import ByPiece, ByTurn, Grow
from stepwell.searching.judge import Judge
from stepwell.searching.open import ORACLE, SEPARATOR, judge_of
from stepwell.searching.pool import pool_of
from stepwell.searching.settings import SAMPLED, TREES, Method, SearchSettings
from stepwell.searching.steered import Steering, plan_of
from stepwell.trained import Trained
from stepwell.types import Episode, Group, Task

__all__ = ["search"]

_SHOWN = 32
"""Tasks whose words a judge with another tokenizer must know."""


def search(model: Trained, judge: Path | str | Judge | None = None, settings: SearchSettings | None = None) -> Found:
    """Samples several answers to each problem, and lets a judge or a vote choose.

    Candidates are sampled once; every rule is measured for every number of candidates, on subsets of them. The ceiling (one of them is
    right) and the floor (the majority) are always measured too.

    Args:
        model: Who answers, see `open_run` and `open_model`.
        judge: The folder of a run with a judge; `oracle`, the checker of a reasoning domain; a `Judge`; or None for majority alone.
        settings: How; by default best of 16.

    Raises:
        ConfigError: Settings that do not fit together, or a judge that does not fit the model.
        RunError: No run, or no judge in it; or the judge says nothing.
    """
    asked = settings or SearchSettings()
    tasks = _tasks(model, asked)
    who = _who(judge, model, tasks, asked)
    how = None if who is None else who.aggregate(asked.aggregate)
    methods = _methods(model, who, asked)
    seed = model.config.seed if asked.seed is None else asked.seed
    clock = [time.monotonic()]
    player = model.player.at(asked.temperature)
    groups = rollout(model.domain, tasks, model.policy, player, group_size=asked.n, seed=(seed, "search", asked.split))
    clock.append(time.monotonic())
    judged = _judged(groups, who, how)
    pools = [
        pool_of(model.domain, g.task, g.members, scores, votes=FLOOR in methods) for g, scores in zip(groups, judged.scores, strict=True)
    ]
    clock.append(time.monotonic())
    sampled = [method for method in methods if method in SAMPLED]
    probability = who is not None and who.probability
    price = prices([one for group in groups for one in group.members], judged.read, 0 if who is None else who.passes)
    floors = floors_of(pools, asked.sizes, seed) if FLOOR in methods else {}
    curves = sampled_curves(pools, sampled, asked.sizes, floors, price, seed=seed, probability=probability)
    made = choices(pools, sampled, model.domain, probability=probability)
    ties = Counter(one.method for one in made if one.tied)
    clock.append(time.monotonic())
    for method in methods:
        if method in TREES and who is not None and how is not None:
            steering = _steering(model, player, tasks, who, how, (seed, "search", asked.split), asked)
            found = [steering.search(method, plan_of(method, n, asked), price, floors.get(n, {})) for n in asked.sizes]
            curves[method] = tuple(one.point for one in found)
            made += found[-1].made
            ties[method] = sum(one.tied for one in found[-1].made)
            ties[f"{method}, on the way"] = found[-1].ties
    clock.append(time.monotonic())
    return Found(
        model=model.origin,
        judge="" if who is None else who.origin,
        domain=str(model.config.domain.kind),
        split=asked.split,
        problems=len(tasks),
        n=asked.n,
        seed=seed,
        temperature=asked.temperature,
        aggregate=how or "",
        curves=curves,
        made=tuple(made),
        unfinished=sum(pool.unfinished for pool in pools),
        left_out=sum(pool.left_out for pool in pools),
        unscored=0 if who is None else sum(c.score is None and c.answer is not None for pool in pools for c in pool.candidates),
        ties=dict(ties),
        seconds={name: b - a for name, (a, b) in zip(("sampling", "judging", "choosing", "trees"), pairwise(clock), strict=True)},
    )


class _Judged(NamedTuple):
    scores: list[list[float | None]]
    read: int


def _who(judge: Path | str | Judge | None, model: Trained, tasks: Sequence[Task], asked: SearchSettings) -> Judge | None:
    which = asked.judge_checkpoint
    if which is not None and (judge is None or isinstance(judge, Judge) or str(judge) == ORACLE):
        raise ConfigError(f"The judge's checkpoint is to be the {which} one, and no run is named as judge; leave it out, or name one.")
    if judge is None or isinstance(judge, Judge):
        return judge
    return judge_of(judge, model, _starts(model, tasks), separator=asked.separator, checkpoint=which or "last")


def _judged(groups: Sequence[Group[Episode]], who: Judge | None, how: Aggregate | None) -> _Judged:
    """Scores of all members (None of those that failed), and how many positions were read for them."""
    if who is None or how is None:
        return _Judged([[None] * len(group.members) for group in groups], 0)
    before = who.positions
    played = [one for group in groups for one in group.members if not one.failed]
    said = iter(who.scores(played, how))
    return _Judged([[None if one.failed else next(said) for one in group.members] for group in groups], who.positions - before)


def _steering(
    model: Trained, player: Player, tasks: Sequence[Task], who: Judge, how: Aggregate, seed: tuple[int | str, ...], asked: SearchSettings
) -> Steering:
    grow: Grow = ByTurn(model.domain, model.policy, player)
    if player.limits.turns == 1:
        grow = ByPiece(model.domain, model.policy, player, who.separator or SEPARATOR, model.tokenizer.decode)
    together = max(1, player.limits.rows // asked.n)
    return Steering(model.domain, tasks, grow, who, how, seed, together, answering(model.domain) is not None)


def _tasks(model: Trained, asked: SearchSettings) -> Sequence[Task]:
    tasks = first_tasks(model.domain, asked.split, asked.problems or model.config.evaluation.episodes)
    if not tasks:
        raise ConfigError(f"Split {asked.split!r} of {model.config.domain.kind} has no tasks to search; name another split, such as test.")
    if asked.problems is not None and len(tasks) < asked.problems:
        raise ConfigError(f"Split {asked.split!r} has {len(tasks)} tasks and {asked.problems} problems are asked for; ask for fewer.")
    return tasks


def _starts(model: Trained, tasks: Sequence[Task]) -> list[str]:
    return [began(model.domain.environment(task, 0)).text for task in tasks[:_SHOWN]]


def _methods(model: Trained, who: Judge | None, asked: SearchSettings) -> list[Method]:
    """Those that were asked for, and the floor where answers can be counted."""
    needing = [method for method in asked.methods if method != FLOOR]
    if who is None and needing:
        raise ConfigError(f"Method {needing[0]} needs a judge; name one (--judge RUN, or oracle in reasoning), or use --method majority.")
    floor: list[Method] = [FLOOR] if answering(model.domain) is not None or FLOOR in asked.methods else []
    return list(dict.fromkeys([*floor, *asked.methods]))
