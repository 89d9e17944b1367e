"""The claims of the papers, and whether they hold here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from chains.plan import AGGREGATE, SIZES
from chains.results import Arm, over, ratio
from stepwell.evaluation.intervals import Interval
from stepwell.types import Floats

__all__ = ["Claim", "claims", "decided"]

Verdict = Literal["held", "not held", "undecided"]
_FIVE_POINTS = {
    ("repirl", "rloo"): "rePIRL is at least 5 points above RLOO, by an interval without 0 (pass@1)",
    ("truth", "rloo"): "Step rewards of the checker itself are at least 5 points above RLOO, by an interval without 0 (pass@1)",
    ("truth_slow", "rloo"): "The same at RLOO's rate",
    ("labelled", "rloo"): "A judge from labelled steps is at least 5 points above RLOO, by an interval without 0 (pass@1)",
}
_HIGHER = {
    ("prime", "rloo"): "PRIME is above RLOO (pass@1)",
    ("montecarlo", "rloo"): "Monte Carlo step rewards are above RLOO (pass@1)",
    ("repirl", "rloo_cloned"): "rePIRL is above RLOO that has first imitated as many demonstrations as rePIRL's judge sees (pass@1)",
    ("rloo_cloned", "rloo"): "That RLOO is above RLOO without them (pass@1)",
}
_HARD = {
    ("repirl_hard", "rloo_hard"): "On hard tasks rePIRL ends above RLOO (pass@1)",
    ("repirl_hard", "grpo_kl_hard"): "On hard tasks rePIRL ends above GRPO with a KL loss (pass@1)",
    ("truth_hard", "rloo_hard"): "On hard tasks step rewards of the checker end above RLOO (pass@1)",
    ("truth_hard", "grpo_kl_hard"): "On hard tasks step rewards of the checker end above GRPO with a KL loss (pass@1)",
    ("labelled_hard", "rloo_hard"): "On hard tasks a judge from labelled steps ends above RLOO (pass@1)",
}


class Claim(NamedTuple):
    """A claim and what was measured.

    Attributes:
        said: In words.
        found: The number with its 95 % interval, in words.
        seeds: On how many seeds.
    """

    said: str
    found: str
    seeds: int
    verdict: Verdict


def decided(interval: Interval, least: float) -> Verdict:
    """Held where the whole interval is at least `least`, not held where it is below, undecided else."""
    return "held" if interval.low >= least else "not held" if interval.high < least else "undecided"


def claims(arms: Mapping[str, Arm]) -> list[Claim]:
    """All claims of whose arms there are runs; one seed decides nothing."""
    made: list[tuple[tuple[str, ...], Callable[[Mapping[str, Arm], Sequence[int]], Claim]]] = [
        *((pair, _above_by_five(*pair, said)) for pair, said in _FIVE_POINTS.items()),
        *((pair, _above(*pair, 1, said)) for pair, said in _HIGHER.items()),
        (("prm_only", "rloo"), _prm_only),
        *([(("prm_only", "rloo"), _prm_only_gain), (("certainty",), _certainty)] if "start" in arms else []),
        (("repirl",), _best_of_n),
        *([(("repirl",), _best_by_worst)] if "repirl" in arms and arms["repirl"].says_best_by else []),
        (("repirl",), _weighted),
        *((("prl", "grpo_kl"), _above("prl", "grpo_kl", k, f"PRL has a higher pass@{k} than GRPO with a KL loss")) for k in (4, 16, 1)),
        (
            ("prl_hard", "grpo_kl_hard"),
            _above("prl_hard", "grpo_kl_hard", 16, "On hard tasks PRL has a higher pass@16 than GRPO with a KL loss"),
        ),
        *((pair, _above(*pair, 1, said)) for pair, said in _HARD.items()),
        (("repirl_hard", "rloo_hard"), _hard_area),
        (("repirl", "rloo"), _time),
    ]
    found = []
    for names, claim in made:
        seeds = sorted(set.intersection(*(set(arms[name].runs) if name in arms else set() for name in names)))
        if seeds:
            made_of = claim(arms, seeds)
            found.append(made_of if len(seeds) > 1 else made_of._replace(verdict="undecided"))
    return found


def _points(interval: Interval) -> str:
    return f"{100 * interval.mean:+.1f} points [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"


def _difference(arms: Mapping[str, Arm], one: str, other: str, k: int, seeds: Sequence[int]) -> Interval:
    return over(arms[one].success(k, seeds) - arms[other].success(k, seeds))


def _above_by_five(one: str, other: str, said: str) -> Callable[[Mapping[str, Arm], Sequence[int]], Claim]:
    def claim(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
        gap = _difference(arms, one, other, 1, seeds)
        return Claim(said, _points(gap), len(seeds), _five_points(gap))

    return claim


def _above(one: str, other: str, k: int, said: str) -> Callable[[Mapping[str, Arm], Sequence[int]], Claim]:
    def claim(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
        gap = _difference(arms, one, other, k, seeds)
        return Claim(said, _points(gap), len(seeds), _above_0(gap))

    return claim


def _five_points(gap: Interval) -> Verdict:
    return "held" if gap.mean >= 0.05 and gap.low > 0 else "not held" if gap.high < 0.05 else "undecided"


def _prm_only(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    share = ratio(arms["prm_only"].success(1, seeds), arms["rloo"].success(1, seeds))
    found = f"{100 * share.mean:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"
    return Claim("Without any outcome, by the judge alone: at least 95 % of RLOO's pass@1", found, len(seeds), decided(share, 0.95))


def _prm_only_gain(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    """The start has a share of any success, so that 95 % of a success may be no gain at all."""
    start = _start(arms)
    share = ratio(arms["prm_only"].success(1, seeds) - start, arms["rloo"].success(1, seeds) - start)
    found = f"{100 * share.mean:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"
    return Claim("The same of what RLOO gained over the start", found, len(seeds), decided(share, 0.95))


def _start(arms: Mapping[str, Arm]) -> Floats:
    """pass@1 of the policy that all runs begin as. [K]"""
    found: Floats = np.mean(arms["start"].success(1, sorted(arms["start"].runs)), axis=0)
    return found


def _certainty(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    gap = over(arms["certainty"].success(1, seeds) - _start(arms))
    return Claim("Paid for being certain alone, the policy ends above the start (pass@1)", _points(gap), len(seeds), _above_0(gap))


def _best_of_n(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    return _search(arms["repirl"], seeds, "best_of_n", "Best of n by rePIRL's judge is above majority at every n of 4 and more")


def _weighted(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    return _search(arms["repirl"], seeds, "weighted", "Votes weighted by rePIRL's judge are above majority at every n of 4 and more")


def _best_by_worst(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    arm, said = (
        arms["repirl"],
        f"The same with the {AGGREGATE} of its step rewards in place of the mean, which was best on validation tasks",
    )
    return _searched({n: arm.best_by(AGGREGATE, n, seeds) - arm.chosen("majority", n, seeds) for n in SIZES if n >= 4}, len(seeds), said)


def _search(arm: Arm, seeds: Sequence[int], rule: str, said: str) -> Claim:
    return _searched({n: arm.chosen(rule, n, seeds) - arm.chosen("majority", n, seeds) for n in SIZES if n >= 4}, len(seeds), said)


def _searched(differences: Mapping[int, Floats], seeds: int, said: str) -> Claim:
    gaps = {n: over(difference) for n, difference in differences.items()}
    above, below = all(gap.low > 0 for gap in gaps.values()), any(gap.high < 0 for gap in gaps.values())
    found = "; ".join(f"n={n}: {_points(gap)}" for n, gap in gaps.items())
    verdict: Verdict = "held" if above else "not held" if below else "undecided"
    return Claim(said, found, seeds, verdict)


def _hard_area(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    area = {name: _area(arms[name], seeds) for name in ("repirl_hard", "rloo_hard")}
    gap = over((area["repirl_hard"] - area["rloo_hard"])[:, None])
    said = "On hard tasks rePIRL converges faster: mean success of all training episodes"
    return Claim(said, _points(gap), len(seeds), _above_0(gap))


def _area(arm: Arm, seeds: Sequence[int]) -> Floats:
    found: Floats = np.nanmean(arm.curve("success", seeds), axis=1)
    return found


def _time(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    share = ratio(arms["repirl"].step_s(seeds)[:, None], arms["rloo"].step_s(seeds)[:, None])
    found = f"{share.mean:.2f} times [{share.low:.2f}, {share.high:.2f}]"
    verdict: Verdict = "held" if share.high <= 1.4 else "not held" if share.low > 1.4 else "undecided"
    return Claim("A step of rePIRL costs no more than 1.4 times RLOO's (processor time)", found, len(seeds), verdict)


def _above_0(gap: Interval) -> Verdict:
    return "held" if gap.low > 0 else "not held" if gap.high < 0 else "undecided"
