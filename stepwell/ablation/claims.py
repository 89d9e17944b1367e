"""What is claimed of such a system, and what the runs say to it: held, not held or undecided, by how much."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from stepwell.ablation.comparing import Ratio, over_seeds
from stepwell.ablation.results import OVER_SEEDS, Study
from stepwell.evaluation.intervals import Interval

__all__ = ["Answer", "Claim", "answer", "claims_of"]

Answer = Literal["held", "not held", "undecided"]


class Claim(NamedTuple):
    """A claim, its answer, and the sentence that says both."""

    name: str
    answer: Answer
    sentence: str


def answer(found: Interval, at_least: float, nothing: float = 0.0) -> Answer:
    """Held where the whole interval is at or above what is claimed, not held where it is below, undecided between; so without interval.

    Undecided also where it is `nothing` throughout: runs that did the same everywhere (all failed, say) have an interval without width,
    which comes from no measurement of how they could differ.

    >>> answer(Interval(0.2, 0.11, 0.3), 0.1), answer(Interval(0.2, 0.05, 0.3), 0.1), answer(Interval(0.0, -0.1, 0.05), 0.1)
    ('held', 'undecided', 'not held')
    >>> answer(Interval(0.0, 0.0, 0.0), 0.1)
    'undecided'
    """
    if math.isnan(found.low) or math.isnan(found.high) or _is(nothing, found):
        return "undecided"
    return "held" if found.low >= at_least else "not held" if found.high < at_least else "undecided"


def _is(value: float, found: Interval) -> bool:
    return found == (value, value, value)


def claims_of(study: Study) -> list[Claim]:
    """The claims whose variants were run; every number with its 95 % interval over seeds and tasks, or seeds."""
    made = []
    if _are_there(study, "full", "vanilla_grpo"):
        made.append(_points(study, "completion", "vanilla_grpo", 0.10, "completes at least 10 points more tasks than vanilla GRPO"))
    if _are_there(study, "full", "no_step_rewards"):
        made.append(_efficiency(study))
    if _are_there(study, "full", "no_curriculum"):
        made.append(_hacking(study))
    if _are_there(study, "full"):
        made.append(_difficulty(study))
    if _are_there(study, "full", "no_interruptions"):
        text = "completes more interrupted tasks than without training for them"
        made.append(_points(study, "interruptions", "no_interruptions", 0.0, text, "perturbed"))
    if _are_there(study, "full", "static_judge"):
        made.append(_points(study, "learning judge", "static_judge", 0.0, "completes more tasks with a judge that goes on learning"))
    return made


def _are_there(study: Study, *names: str) -> bool:
    return all(name in study.arms for name in names) and bool(study.seeds(names[0], names[-1]))


def _points(study: Study, name: str, other: str, at_least: float, text: str, world: str = "clean") -> Claim:
    found, seeds = study.difference("full", other, world), study.seeds("full", other)
    said = answer(found, at_least) if at_least or found.low != 0 else "undecided"
    if len(seeds) < 2:
        said = "undecided"
    measured = f"{100 * found.mean:+.1f} points against {other} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
    measured = f"no difference from {other} on any task" if _is(0.0, found) else measured
    measured = "nothing: no such tasks were played" if math.isnan(found.mean) else measured
    return Claim(name, said, f"{_start(said)}: the full system {text}; measured {measured}{_few(seeds)}.")


def _efficiency(study: Study) -> Claim:
    ratio, seeds = study.ratio("full", "no_step_rewards"), study.seeds("full", "no_step_rewards")
    said = _bounded(ratio)
    text = "process rewards reach the same success with at least 2 times fewer episodes"
    value = ratio.value
    bound = f"{ratio.bound} " if ratio.bound in ("at least", "at most") else ""
    measured = "no ratio, since one was there before it learnt anything" if math.isnan(value.mean) else f"{bound}{value.mean:.2f} times"
    if ratio.bound == "unknown":
        measured = "no ratio, since runs of both never got there"
    elif not math.isnan(value.low):
        measured += f" ({value.low:.2f} to {value.high:.2f})"
    measured = "as many, run by run," if _is(1.0, value) else measured
    sentence = f"{_start(said)}: {text}; measured {measured} against no_step_rewards, to a validation success of {study.target:.3f}"
    return Claim("sample efficiency", said, f"{sentence}{_few(seeds)}.")


def _bounded(ratio: Ratio) -> Answer:
    """A bound decides only in its own direction."""
    said = answer(ratio.value, 2.0, 1.0)
    wrong = {"at least": "not held", "at most": "held"}.get(ratio.bound)
    return "undecided" if ratio.bound == "unknown" or said == wrong else said


def _hacking(study: Study) -> Claim:
    """By the alarms where both variants were watched; else by the judge's reward against validation success."""
    seeds = study.seeds("full", "no_curriculum")
    found = study.paired("full", "no_curriculum", OVER_SEEDS["alarms"])
    text, unit = "with the curriculum fewer alarms of reward hacking are raised", "alarms a run"
    if math.isnan(found.mean):
        found = study.paired("full", "no_curriculum", OVER_SEEDS["divergences"])
        text = "with the curriculum the judge's reward rises while validation success falls less often (no alarms watched)"
        unit = "as a share of the intervals between validations"
    less = Interval(-found.mean, -found.high, -found.low)
    said = answer(less, 0.0) if less.low != 0 else "undecided"
    measured = f"{found.mean:+.3f} against no_curriculum{_span(found)}, {unit}"
    if _is(0.0, found):
        total = sum(sum(study.arms[name].values(OVER_SEEDS["alarms"], seeds)) for name in ("full", "no_curriculum"))
        measured = "no alarm in any run of the two" if total == 0 else f"no difference from no_curriculum, {unit}"
    measured = "nothing: too few validations" if math.isnan(found.mean) else measured
    return Claim("hacking", said, f"{_start(said)}: {text}; measured {measured}{_few(seeds)}.")


def _difficulty(study: Study) -> Claim:
    arm, seeds = study.arms["full"], study.seeds("full")
    first, last = (arm.values(OVER_SEEDS[f"difficulty_{when}"], seeds) for when in ("first", "last"))
    found = over_seeds([b - a for a, b in zip(first, last, strict=True)])
    said = answer(found, 0.0) if found.low != 0 else "undecided"
    text = "the difficulty of what is asked grows as the agent improves"
    measured = f"{found.mean:+.3f} from the first third of the run to the last{_span(found)}"
    return Claim("difficulty", said, f"{_start(said)}: {text}; measured {measured}{_few(seeds)}.")


def _span(found: Interval) -> str:
    return "" if math.isnan(found.low) else f" ({found.low:+.3f} to {found.high:+.3f})"


def _start(said: Answer) -> str:
    return said.capitalize()


def _few(seeds: list[int]) -> str:
    if len(seeds) == 1:
        return "; one seed says nothing about how runs differ"
    return f"; {len(seeds)} seeds are few, and their interval is rough" if len(seeds) < 5 else f"; {len(seeds)} seeds"
