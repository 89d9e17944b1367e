"""The claims of the papers, and whether they hold here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from chains.plan import SIZES
from chains.results import Arm, over, ratio
from stepwell.evaluation.intervals import Interval
from stepwell.types import Floats

__all__ = ["Claim", "claims", "decided"]

Verdict = Literal["held", "not held", "undecided"]


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
        (("repirl", "rloo"), _over_rloo),
        (("repirl", "rloo_cloned"), _over_cloned),
        (("prm_only", "rloo"), _prm_only),
        *([(("prm_only", "rloo"), _prm_only_gain)] if "start" in arms else []),
        (("repirl",), _best_of_n),
        (("repirl",), _weighted),
        (("prl", "grpo_kl"), _pass_at_16),
        (("prl", "grpo_kl"), _pass_at_1),
        (("repirl_hard", "rloo_hard"), _hard_end),
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


def _over_rloo(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    gap = _difference(arms, "repirl", "rloo", 1, seeds)
    return Claim("rePIRL is at least 5 points above RLOO, by an interval without 0 (pass@1)", _points(gap), len(seeds), _five_points(gap))


def _over_cloned(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    gap = _difference(arms, "repirl", "rloo_cloned", 1, seeds)
    said = "rePIRL is above RLOO that has first imitated as many demonstrations as rePIRL's judge sees (pass@1)"
    return Claim(said, _points(gap), len(seeds), _above_0(gap))


def _five_points(gap: Interval) -> Verdict:
    return "held" if gap.mean >= 0.05 and gap.low > 0 else "not held" if gap.high < 0.05 else "undecided"


def _prm_only(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    share = ratio(arms["prm_only"].success(1, seeds), arms["rloo"].success(1, seeds))
    found = f"{100 * share.mean:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"
    return Claim("Without any outcome, by the judge alone: at least 95 % of RLOO's pass@1", found, len(seeds), decided(share, 0.95))


def _prm_only_gain(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    """The start has a share of any success, so that 95 % of a success may be no gain at all."""
    start = np.mean(arms["start"].success(1, sorted(arms["start"].runs)), axis=0)
    share = ratio(arms["prm_only"].success(1, seeds) - start, arms["rloo"].success(1, seeds) - start)
    found = f"{100 * share.mean:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"
    return Claim("The same of what RLOO gained over the start", found, len(seeds), decided(share, 0.95))


def _best_of_n(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    return _search(arms["repirl"], seeds, "best_of_n", "Best of n by rePIRL's judge is above majority at every n of 4 and more")


def _weighted(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    return _search(arms["repirl"], seeds, "weighted", "Votes weighted by rePIRL's judge are above majority at every n of 4 and more")


def _search(arm: Arm, seeds: Sequence[int], rule: str, said: str) -> Claim:
    gaps = {n: over(arm.chosen(rule, n, seeds) - arm.chosen("majority", n, seeds)) for n in SIZES if n >= 4}
    above, below = all(gap.low > 0 for gap in gaps.values()), any(gap.high < 0 for gap in gaps.values())
    found = "; ".join(f"n={n}: {_points(gap)}" for n, gap in gaps.items())
    verdict: Verdict = "held" if above else "not held" if below else "undecided"
    return Claim(said, found, len(seeds), verdict)


def _pass_at_16(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    gap = _difference(arms, "prl", "grpo_kl", 16, seeds)
    return Claim("PRL has a higher pass@16 than GRPO with a KL loss", _points(gap), len(seeds), _above_0(gap))


def _pass_at_1(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    gap = _difference(arms, "prl", "grpo_kl", 1, seeds)
    return Claim("PRL has a higher pass@1 than GRPO with a KL loss", _points(gap), len(seeds), _above_0(gap))


def _hard_end(arms: Mapping[str, Arm], seeds: Sequence[int]) -> Claim:
    gap = _difference(arms, "repirl_hard", "rloo_hard", 1, seeds)
    return Claim("On hard tasks rePIRL ends above RLOO (pass@1)", _points(gap), len(seeds), _above_0(gap))


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
