"""Whoever says which candidate is best, and how the scores of its steps become one.

What a judge says of a step decides how steps are put together. Zhang et al. 2025 (arXiv 2501.07301) measured that a judge which was taught
how the rest will go is misread by product and minimum, and one that was taught whether a step is right by the last step.

- `right`, the probability that the step is right (labelled steps): a chain is as good as its weakest link, `min`. The product (Lightman et
  al. 2023, arXiv 2305.20050) also charges every further step for being there.
- `value`, how things stand after the step (Monte Carlo, temporal differences): all that is known is in the `last` number.
- `change`, what the step changed (log-ratios of implicit judges, progress): changes add up to what the whole episode changed, `sum` (Yuan
  et al. 2024, arXiv 2412.01981: the sum of log-ratios is the value of the outcome).
- `reward`, on a scale of its own (rePIRL and all others): the `mean`, as in the code of rePIRL (arXiv 2602.07832), which does not grow with
  the number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from stepwell.credit import Segment, by_turn
from stepwell.engine.batch import parts_of
from stepwell.errors import ConfigError, RunError, sentence
from stepwell.evaluation.aggregate import Aggregate, of_steps
from stepwell.protocols import ProcessReward
from stepwell.searching.steps import as_turns
from stepwell.types import Episode, Group, Scored

__all__ = ["FITTING", "Counted", "Judge", "Says"]

Says = Literal["right", "value", "change", "reward"]
FITTING: Mapping[Says, Aggregate] = {"right": "min", "value": "last", "change": "sum", "reward": "mean"}
"""What a judge says of a step -> how steps are put together by default."""
_TOGETHER = 256


@dataclass(slots=True)
class Counted:
    """A reward whose reading is counted.

    Attributes:
        positions: Token positions that it has read so far, prompts included, each once for an episode that it was shown.
    """

    reward: ProcessReward
    positions: int = 0

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """As the reward does."""
        self.positions += sum(len(part.ids) for group in groups for episode in group.members for part in parts_of(episode))
        return self.reward.score(groups)


@dataclass(frozen=True, slots=True)
class Judge:
    """A judge of candidates.

    Attributes:
        reward: Scores episodes, a number a step.
        says: What the number of a step is.
        probability: Whether it lies in [0, 1].
        origin: Who it is, in words.
        read: Counts what it reads; None of one that reads nothing.
        passes: How many models read each position: 2 where a judge is compared with a reference.
        segment: Where steps end.
        separator: What ends a step within a message that is the whole solution; None where only turns end steps.
        splits: Whether it must be shown a turn for each step, because its steps are turns.
        version: Of the judge's own policy, which stands for whoever sampled where a log-ratio is to the policy; None: episodes say it.
    """

    reward: ProcessReward
    says: Says
    probability: bool
    origin: str
    read: Counted | None = field(default=None, compare=False)
    passes: int = 1
    segment: Segment = by_turn
    separator: str | None = None
    splits: bool = True
    version: int | None = None

    def aggregate(self, wanted: Aggregate | None) -> Aggregate:
        """How its steps are put together.

        Raises:
            ConfigError: It says no probabilities, and they are needed.
        """
        how = wanted or FITTING[self.says]
        if how in ("product", "log_odds") and not self.probability:
            others = ", ".join(dict.fromkeys((FITTING[self.says], "sum", "mean", "min", "last")))
            raise ConfigError(f"The aggregate {how} needs probabilities, and {self.origin} says rewards without bounds; use {others}.")
        return how

    @property
    def positions(self) -> int:
        """Token positions that it has read so far."""
        return 0 if self.read is None else self.read.positions

    def scores(self, episodes: Sequence[Episode], how: Aggregate) -> list[float | None]:
        """One score of each episode; None where the judge says none (of `last`: where it says none of the last step).

        Raises:
            RunError: It says nothing of any of them.
        """
        found = self.scores_so_far(episodes, how)
        if found and all(one is None for one in found):
            raise RunError(
                f"{sentence(self.origin)} says no number about any of {len(episodes)} candidates, so that none can be chosen; use a judge "
                "of steps such as these, a longer rollout.context for it, or --method majority, which needs none."
            )
        return found

    def scores_so_far(self, episodes: Sequence[Episode], how: Aggregate) -> list[float | None]:
        """The same of episodes that go on, of which nothing may be known yet."""
        found: list[float | None] = []
        for at in range(0, len(episodes), _TOGETHER):
            found += [_whole(scored, how) for scored in self._scored(episodes[at : at + _TOGETHER])]
        return found

    def _scored(self, episodes: Sequence[Episode]) -> list[Scored | None]:
        shown = [as_turns(one, self.segment(one)) if self.splits else one for one in map(self._by_own_policy, episodes)]
        groups = [Group(one.task, (one,)) for one in shown if one.num_tokens]
        said = iter(self.reward.score(groups) if groups else ())
        return [next(said).members[0] if one.num_tokens else None for one in shown]

    def _by_own_policy(self, episode: Episode) -> Episode:
        if self.version is None:
            return episode
        return replace(episode, turns=tuple(replace(turn, version=self.version) for turn in episode.turns))


def _whole(scored: Scored | None, how: Aggregate) -> float | None:
    if scored is None or not len(scored.steps):
        return None
    said = scored.scored_S & (scored.steps.lengths_S > 0)
    if not said.any() or (how == "last" and not said[-1]):
        return None
    return of_steps([float(one) for one in scored.process_S[said]], how)
