"""Judges of steps on labelled solutions: ProcessBench, PRMBench, and any labelled steps, each beside baselines that read nothing.

Legend: S step of a solution, N labelled step, I solution, K problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from stepwell.errors import ConfigError
from stepwell.evaluation.intervals import Interval
from stepwell.evaluation.judged import (
    Judged,
    Result,
    Threshold,
    by_subset,
    halves,
    length_baseline,
    position_baseline,
    with_scores,
)
from stepwell.evaluation.step_metrics import (
    NOTHING,
    Statistic,
    auc_over,
    best_threshold,
    calibration_error,
    f1,
    harmonic,
    last_minimum,
    share,
)
from stepwell.types import Bools, Floats

__all__ = ["prmbench", "processbench", "shape", "steps"]

# -- ProcessBench -------------------------------------------------------------------------------------------------------------


def processbench(judged: Sequence[Judged], *, threshold: float | None = None, tune: Sequence[Judged] = ()) -> tuple[list[Result], str]:
    """The share of solutions with an error whose first one is found, of those without that are passed, and their harmonic mean
    (ProcessBench, arXiv 2412.06559), for each subset, with intervals over problems; beside baselines.

    A step is the first that is wrong if it is the first with a score below the threshold. Each way to judge has a threshold chosen in the
    same way.

    Args:
        judged: Solutions of the benchmark.
        threshold: Below which a step is wrong.
        tune: Solutions that the threshold is chosen on in its place. With neither, each half of the problems has the one that is best on
            the other half (never on itself: U13).

    Returns:
        results, and where the judge's threshold comes from.
    """
    chosen = _threshold(judged, threshold, tune)
    results = _processbench("judge", judged, _right(judged, chosen))
    results += _processbench("all correct", judged, [float(one.first_error < 0) for one in judged])
    results += _processbench("random step or none", judged, [1.0 / (len(one.labels) + 1) for one in judged])
    if tune or _has_halves(judged):
        longest, long_tune = length_baseline(judged), length_baseline(tune)
        results += _processbench("length of the step", judged, _right(longest, _threshold(longest, None, long_tune)))
    return results, chosen.told


def _right(judged: Sequence[Judged], threshold: Threshold) -> list[float]:
    return [float(one.bounds.low < t <= one.bounds.high) for one, t in zip(judged, threshold.values, strict=True)]


def _processbench(who: str, judged: Sequence[Judged], right: Sequence[float]) -> list[Result]:
    """Results for each subset, and their mean where there are several."""
    wrong = [one.first_error >= 0 for one in judged]
    columns = [(w * r, w, (1 - w) * r, 1 - w) for w, r in zip(map(float, wrong), right, strict=True)]
    shares: dict[str, Statistic] = {
        "error_accuracy": lambda s: share(s[..., 0], s[..., 1]),
        "correct_accuracy": lambda s: share(s[..., 2], s[..., 3]),
        "f1": lambda s: harmonic(share(s[..., 0], s[..., 1]), share(s[..., 2], s[..., 3])),
    }
    return by_subset(who, judged, columns, shares)


def _threshold(judged: Sequence[Judged], threshold: float | None, tune: Sequence[Judged]) -> Threshold:
    if threshold is not None:
        return Threshold.fixed(threshold, len(judged), f"{threshold:g}, as given")
    if tune:
        found = _best(tune)
        return Threshold.fixed(found, len(judged), f"{found:.4g}, the best on {len(tune)} other solutions")
    return _halves(judged, _best)


def _has_halves(judged: Sequence[Judged]) -> bool:
    return len({one.problem for one in judged}) > 1


def _halves(judged: Sequence[Judged], best: Callable[[Sequence[Judged]], float]) -> Threshold:
    half = halves(judged)
    if not _has_halves(judged):
        raise ConfigError(
            "All solutions are on one problem, so that there is no other half to choose a threshold on; give --threshold, or a file for "
            "--tune."
        )
    first, second = (best([one for one, h in zip(judged, half, strict=True) if h == side]) for side in (False, True))
    told = f"{second:.4g} and {first:.4g}: for each half of the problems the best on the other half"
    return Threshold(np.where(half, first, second), told)


def _best(judged: Sequence[Judged]) -> float:
    return best_threshold([one.bounds for one in judged], np.array([one.first_error >= 0 for one in judged]))


# -- PRMBench -----------------------------------------------------------------------------------------------------------------


def prmbench(judged: Sequence[Judged], *, threshold: float | None = None, tune: Sequence[Judged] = ()) -> tuple[list[Result], str]:
    """F1 of right steps, F1 of wrong steps, and their mean PRMScore (PRMBench, arXiv 2501.03124), for each class; beside baselines.

    A step is right if its score is above the threshold. A step without a score counts as one that was judged wrongly.

    Args:
        judged: Solutions with labels of 0 and 1.
        threshold: As in `processbench`; by default 1/2, as in the benchmark, where the judge says probabilities.
        tune: As in `processbench`.
    """
    probabilities = all(0.0 <= score <= 1.0 for one in judged for score in one.scores if score is not None)
    if threshold is not None:
        chosen = Threshold.fixed(threshold, len(judged), f"{threshold:g}, as given")
    elif tune:
        found = _best_score(tune)
        chosen = Threshold.fixed(found, len(judged), f"{found:.4g}, the best on {len(tune)} other solutions")
    elif probabilities:
        chosen = Threshold.fixed(0.5, len(judged), "0.5, as in the benchmark")
    else:
        chosen = _halves(judged, _best_score)
    results = _prmbench("judge", judged, [_counts(one, t) for one, t in zip(judged, chosen.values, strict=True)])
    results += _prmbench("all correct", judged, [_counts(with_scores(one, [1.0] * len(one.labels)), 0.5) for one in judged])
    half = [tuple((a + b) / 2 for a, b in zip(_flat(one, 1.0), _flat(one, 0.0), strict=True)) for one in judged]
    results += _prmbench("a coin for each step", judged, half)
    if tune or _has_halves(judged):
        longest = length_baseline(judged)
        at = _halves(longest, _best_score) if not tune else Threshold.fixed(_best_score(length_baseline(tune)), len(judged), "")
        results += _prmbench("length of the step", judged, [_counts(one, t) for one, t in zip(longest, at.values, strict=True)])
    return results, chosen.told


def _flat(one: Judged, score: float) -> tuple[float, ...]:
    return _counts(with_scores(one, [score] * len(one.labels)), 0.5)


def _counts(one: Judged, threshold: float) -> tuple[float, ...]:
    """Right steps that pass, wrong ones that pass, right ones that do not, wrong ones that do not; whether the first error is found, and
    whether there is one."""
    made = [0.0] * 6
    for score, label in zip(one.scores, one.labels, strict=True):
        if label is not None:
            passed = label == 0 if score is None else score > threshold
            made[(0 if passed else 2) + (0 if label == 1 else 1)] += 1
    error = one.first_error
    if error >= 0:
        score = one.scores[error]
        made[4:] = [float(score is not None and score <= threshold), 1.0]
    return tuple(made)


def _score(s: Floats) -> Floats:
    return (f1(s[..., 0], s[..., 1], s[..., 2]) + f1(s[..., 3], s[..., 2], s[..., 1])) / 2


def _prmbench(who: str, judged: Sequence[Judged], counts: Sequence[tuple[float, ...]]) -> list[Result]:
    shares: dict[str, Statistic] = {
        "prmscore": _score,
        "f1": lambda s: f1(s[..., 0], s[..., 1], s[..., 2]),
        "negative_f1": lambda s: f1(s[..., 3], s[..., 2], s[..., 1]),
        "first_error_accuracy": lambda s: share(s[..., 4], s[..., 5]),
        "step_accuracy": lambda s: share(s[..., 0] + s[..., 3], s[..., :4].sum(-1)),
    }
    return by_subset(who, judged, counts, shares)


def _best_score(judged: Sequence[Judged]) -> float:
    """The threshold with the highest PRMScore on these solutions."""
    found = sorted({score for one in judged for score in one.scores if score is not None})
    if not found:
        return 0.0
    tried = np.unique(np.quantile(found, np.linspace(0, 1, min(len(found), 200) + 1)))
    reached = _score(np.array([np.sum([_counts(one, t) for one in judged], axis=0) for t in tried.tolist()]))
    return float(tried[int(np.argmax(np.nan_to_num(reached, nan=-1.0)))])


# -- any labelled steps -------------------------------------------------------------------------------------------------------


def steps(judged: Sequence[Judged]) -> list[Result]:
    """How often a right step has a higher score than a wrong one, over all labelled steps (labels of 1/2 are left out), with intervals over
    problems; beside the length of a step and its position."""
    made = []
    for who, by in (
        ("judge", judged),
        ("length of the step", length_baseline(judged)),
        ("position of the step", position_baseline(judged)),
    ):
        numbers = {"auc": _auc(by)} | (_calibrated(by) if who == "judge" else {})
        made.append(Result(who, "all", len(by), numbers))
    return made


def _auc(judged: Sequence[Judged]) -> Interval:
    said, good, problem = _pooled(judged)
    return auc_over(said, good, np.unique(problem, return_inverse=True)[1]) if len(said) else NOTHING


def _calibrated(judged: Sequence[Judged]) -> dict[str, Interval]:
    """Brier score, calibration error and accuracy at 1/2, where the judge says probabilities."""
    said, good, _ = _pooled(judged)
    if not len(said) or np.any((said < 0) | (said > 1)):
        return {}
    numbers = {
        "accuracy": float((((said > 0.5) == good) & (said != 0.5)).mean()),
        "right_steps": float(good.mean()),
        "brier": float(((said - good) ** 2).mean()),
        "calibration_error": calibration_error(said, good),
    }
    return {name: Interval(value, math.nan, math.nan) for name, value in numbers.items()}


def _pooled(judged: Sequence[Judged]) -> tuple[Floats, Bools, list[str]]:
    rows = [
        (score, label > 0.5, one.problem)
        for one in judged
        for score, label in zip(one.scores, one.labels, strict=True)
        if score is not None and label is not None and label != 0.5
    ]
    return np.array([r[0] for r in rows], np.float64), np.array([r[1] for r in rows], np.bool_), [r[2] for r in rows]


def shape(judged: Sequence[Judged]) -> dict[str, float]:
    """Where a judge puts its least score: the share of solutions in which that is the last step (above 0.4 it judges outcomes rather than
    steps; arXiv 2501.07301), and the share that chance would give."""
    said = [np.array([score for score in one.scores if score is not None]) for one in judged if not one.cut]
    several = [one for one in said if len(one) >= 2]
    if not several:
        return {"minimum_last": math.nan, "minimum_last_by_chance": math.nan}
    return {
        "minimum_last": float(np.mean([last_minimum(one) for one in several])),
        "minimum_last_by_chance": float(np.mean([1.0 / len(one) for one in several])),
    }
