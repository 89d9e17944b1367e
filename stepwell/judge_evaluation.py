"""How good the judge of a run is on labelled solutions: what `stepwell eval-judge` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stepwell.engine.chat import Message
from stepwell.errors import ConfigError, RunError
from stepwell.evaluation.intervals import Interval
from stepwell.evaluation.judge_benchmarks import prmbench, processbench, shape, steps
from stepwell.evaluation.judged import Judged, Result
from stepwell.scoring import OpenedJudge
from stepwell.seeding import generator
from stepwell.solutions import Solution
from stepwell.step_labels import LabelledSolution, Labels, read_step_labels
from stepwell.types import JSON

__all__ = ["Benchmark", "JudgeEvaluation", "evaluate_judge"]

Benchmark = Literal["processbench", "prmbench", "prm800k", "steps"]

_LAYOUTS: Mapping[Benchmark, tuple[str, ...]] = {
    "processbench": ("ProcessBench",),
    "prmbench": ("PRMBench",),
    "prm800k": ("PRM800K", "PRM800K by rows", "TRL", "plain"),
    "steps": (),
}


@dataclass(frozen=True, slots=True)
class JudgeEvaluation:
    """A judge on a benchmark.

    Attributes:
        origin: Which judge, in words.
        on: The benchmark.
        file: Where it was read from.
        solutions: That were judged.
        drawn_from: How many the file holds; more than `solutions` where a limit drew some.
        problems: Different ones.
        truncated: Solutions that did not fit into the judge's context as a whole.
        unscored: Steps without a number.
        unlabelled: Solutions of which nobody has said anything that can be right (PRMBench: an error beyond the last step); left out.
        threshold: Below which score a step is wrong, and where that comes from; "" where none is needed.
        shape: See `evaluation.judge_benchmarks.shape`.
        results: Of the judge and of baselines, for each subset.
    """

    origin: str
    on: Benchmark
    file: str
    solutions: int
    drawn_from: int
    problems: int
    truncated: int
    unscored: int
    unlabelled: int
    threshold: str
    shape: Mapping[str, float]
    results: tuple[Result, ...]

    def to_json(self) -> dict[str, JSON]:
        """All of it; None where a number is not defined."""
        results: list[JSON] = [
            {
                "who": one.who,
                "subset": one.subset,
                "solutions": one.solutions,
                **{name: _named(number) for name, number in one.numbers.items()},
            }
            for one in self.results
        ]
        counts = {name: getattr(self, name) for name in ("solutions", "drawn_from", "problems", "truncated", "unscored", "unlabelled")}
        shaped = {name: _number(value) for name, value in self.shape.items()}
        return {
            "origin": self.origin,
            "on": self.on,
            "file": self.file,
            **counts,
            "threshold": self.threshold,
            **shaped,
            "results": results,
        }


def evaluate_judge(
    judge: OpenedJudge, on: Benchmark, data: Path, *, threshold: float | None = None, tune: Path | None = None, limit: int | None = None
) -> JudgeEvaluation:
    """Measures a judge on labelled solutions, beside baselines that read nothing.

    Args:
        judge: From `open_judge`.
        on: `processbench`, `prmbench`: with those benchmarks' own numbers. `prm800k`, `steps` (any labelled steps): how often a right step
            has a higher score than a wrong one.
        data: The benchmark's file.
        threshold: Below which score a step is wrong. By default see `evaluation.judge_benchmarks`.
        tune: A file of the same benchmark, other problems, that the threshold is chosen on.
        limit: So many solutions at most, drawn at random (always the same).

    Raises:
        DataError: A file is not one of the benchmark's; what was expected and found is listed.
        ConfigError: A threshold where none is needed, or in two ways; or `tune` shares a problem with `data`.
        RunError: The judge says NaN, or no number at all.
    """
    if on in ("prm800k", "steps") and (threshold is not None or tune is not None):
        raise ConfigError(f"--on {on} compares steps with each other and needs no threshold; leave out --threshold and --tune.")
    if threshold is not None and tune is not None:
        raise ConfigError("--threshold and --tune both say what the threshold is; give one of the two.")
    every = read_step_labels(data, Labels(), only=_LAYOUTS[on])
    labelled = [one for one in every if any(label is not None for label in one.labels)]
    tuning = [] if tune is None else read_step_labels(tune, Labels(), only=_LAYOUTS[on])
    _check_apart(labelled, tuning, tune)
    chosen = _drawn(labelled, limit)
    judged, unscored = _judged(judge, chosen)
    told = ""
    if on == "processbench":
        results, told = processbench(judged, threshold=threshold, tune=_judged(judge, tuning)[0])
        results += steps(judged)
    elif on == "prmbench":
        results, told = prmbench(judged, threshold=threshold, tune=_judged(judge, tuning)[0])
        results += steps(judged)
    else:
        results = steps(judged)
    return JudgeEvaluation(
        origin=judge.origin,
        on=on,
        file=str(data),
        solutions=len(judged),
        drawn_from=len(labelled),
        problems=len({one.problem for one in judged}),
        truncated=sum(one.cut for one in judged),
        unscored=unscored,
        unlabelled=len(every) - len(labelled),
        threshold=told,
        shape=shape(judged),
        results=tuple(results),
    )


def _check_apart(labelled: Sequence[LabelledSolution], tuning: Sequence[LabelledSolution], tune: Path | None) -> None:
    common = {_problem(one) for one in labelled} & {_problem(one) for one in tuning}
    if common:
        raise ConfigError(
            f"{tune} has {len(common)} problems that are measured on, such as {sorted(common)[0][:60]!r}; a threshold is chosen on others. "
            "Leave --tune out, and each half of the problems has the threshold of the other."
        )


def _drawn(solutions: Sequence[LabelledSolution], limit: int | None) -> list[LabelledSolution]:
    if limit is None or limit >= len(solutions):
        return list(solutions)
    order = generator("solutions of a benchmark").permutation(len(solutions))[:limit]
    return [solutions[i] for i in sorted(order.tolist())]


def _judged(judge: OpenedJudge, solutions: Sequence[LabelledSolution]) -> tuple[list[Judged], int]:
    """What the judge says, and of how many steps it says nothing."""
    if not solutions:
        return [], 0
    asked = [Solution(one.name or str(at), (Message("user", one.prompt),), one.steps) for at, one in enumerate(solutions)]
    said = judge.score(asked)
    unscored = sum(score is None for one in said for score in one.scores)
    if unscored == sum(len(one.scores) for one in said):
        cut, empty = sum(one.cut for one in said), sum(one.empty for one in said)
        raise RunError(
            f"{judge.origin[0].upper()}{judge.origin[1:]} says no number about any of {unscored} steps: {cut} do not fit into its context, "
            f"{empty} have no text. A model that can read more does so with rollout.context=N."
        )
    made = [
        Judged(_problem(one), one.subset, scores.scores, one.labels, tuple(map(len, one.steps)), cut=scores.cut > 0)
        for one, scores in zip(solutions, said, strict=True)
    ]
    return made, unscored


def _problem(solution: LabelledSolution) -> str:
    return " ".join(solution.prompt.split())


def _named(interval: Interval) -> JSON:
    return {name: _number(value) for name, value in interval._asdict().items()}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
