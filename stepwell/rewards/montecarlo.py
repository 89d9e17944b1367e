"""The Monte Carlo judge: how good a step is, is how often the policy succeeds from there.

Legend: S step, P place (S + 1: the start, and after each step), D draw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from stepwell.credit.segment import Segment, by_turn
from stepwell.errors import ConfigError
from stepwell.protocols import Saveable
from stepwell.rewards.confidence import Confidence, pair_accuracy
from stepwell.rewards.fitted import Form, Places, Reader, attached, lessons_of, ranked, readings, said_about, step_rewards
from stepwell.rewards.outcome import Pay, paid
from stepwell.rollout import Prefix
from stepwell.types import JSON, Episode, Group, Metrics, Scored, Steps

__all__ = ["Continue", "MonteCarlo", "MonteCarloReward", "MonteCarloSettings"]

Continue = Callable[[Sequence[Prefix]], list[Episode]]
"""Whole episodes that begin as told and go on as the policy does; see `rollout.continued`."""


@dataclass(frozen=True, slots=True)
class MonteCarloSettings:
    """How steps are valued.

    Attributes:
        pay: What the end of an episode is paid.
        source: `continuations`: the policy goes on from every step. `visits`: what the group's own episodes came to that share the step and
            all before it; costs nothing, and says little where few do.
        continuations: From each place.
        budget: `fixed`: that many everywhere. `adaptive`: `first` everywhere, and `continuations` where the answers at the two
            neighbouring places are not all the same.
        first: For the adaptive budget.
        labels: `soft`: the mean of what was paid. `hard`: 1 where anything was paid, else 0.
        form: `value`: what stands after a step. `progress`: what the step changed.
        discount: For each turn that is still to come, in (0, 1].
        members: How many episodes of a group are continued; None is all. The steps of the others are unscored (without a fitted judge).
    """

    pay: Pay = "success"
    source: Literal["continuations", "visits"] = "continuations"
    continuations: int = 4
    budget: Literal["fixed", "adaptive"] = "fixed"
    first: int = 2
    labels: Literal["soft", "hard"] = "soft"
    form: Form = "value"
    discount: float = 1.0
    members: int | None = None

    def __post_init__(self) -> None:
        for name, value in {"continuations": self.continuations, "first": self.first, "members": self.members}.items():
            if value is not None and value < 1:
                raise ConfigError(f"reward.{name} is {value}; it needs at least 1.")
        if self.budget == "adaptive" and self.first >= self.continuations:
            raise ConfigError(
                f"reward.first is {self.first} and reward.continuations {self.continuations}; an adaptive budget needs more of them "
                "where answers differ: make first smaller."
            )
        if not 0.0 < self.discount <= 1.0:
            raise ConfigError(f"reward.discount is {self.discount}; it lies in (0, 1].")
        if self.labels == "hard" and self.discount < 1.0:
            raise ConfigError(f"reward.labels is 'hard' with reward.discount {self.discount}; a hard label is 0 or 1: set discount to 1.")
        if self.source == "visits" and (self.budget == "adaptive" or self.members is not None):
            raise ConfigError("reward.source is 'visits', which draws nothing: leave reward.budget at 'fixed' and reward.members unset.")


class _Draw(NamedTuple):
    """What one way to the end was paid, and the number of its last turn."""

    pay: float
    last_turn: int


@dataclass
class _Asked:
    """One episode, and the draws at each of its places."""

    episode: Episode
    steps: Steps
    draws: dict[int, list[_Draw]] = field(default_factory=lambda: defaultdict(list))

    @property
    def end(self) -> int | None:
        """The place after the last step with tokens: nothing is left to the policy there."""
        spoken = np.flatnonzero(self.steps.lengths_S > 0)
        return int(spoken[-1]) + 1 if len(spoken) else None

    def open_places(self, form: Form) -> list[int]:
        """Places from which the policy can go on, in order."""
        spoken = (np.flatnonzero(self.steps.lengths_S > 0) + 1).tolist()
        return ([0] if form == "progress" and spoken else []) + spoken[:-1]

    def kept(self, place: int) -> int:
        return int(self.steps.stop_S[place - 1]) if place else 0

    def turn(self, place: int) -> int:
        return int(self.steps.turn_S[place - 1]) if place else 0


class MonteCarlo:
    """Estimates of `Q(s, a)`: the expected discounted pay after a step, under the policy that goes on.

    `Q_s = mean over draws d of discount^(turns that d took after the turn of s) x pay(d)`. After the last step nothing is drawn: the
    outcome itself is known. A draw that failed or has no verdict is left out; a step without any is unknown.

    Unbiased for the policy's `Q` with `labels="soft"`, at either budget: with the adaptive one, how often a place is asked depends on the
    answers at **other** places alone. (Stopping where a place's own answers agree would bias it towards 0 and 1.) `hard` labels are
    1 with probability `1 - (1 - Q)^n`: optimistic.

    Source: Math-Shepherd, arXiv 2312.08935 (8 continuations a step, hard and soft labels); AgentPRM, arXiv 2502.10325 (visits). Differs
    from the authors' code of the latter, which discounts by the turns since the start, so that late steps count least, and maps what was
    paid to [-1, 1] first; without a discount the two are the same.

    Args:
        go_on: Continues episodes.
        settings: As above.
        segment: Where steps begin and end.
    """

    def __init__(self, go_on: Continue, settings: MonteCarloSettings, segment: Segment = by_turn) -> None:
        self._go_on, self._settings, self._segment = go_on, settings, segment

    def __call__(self, groups: Sequence[Group[Episode]]) -> tuple[list[list[Places]], Metrics]:
        """For each episode what is known about its places, and what it cost: `judge/continuations` (episodes played),
        `judge/continuation_tokens` (tokens that were sampled for them), `judge/lost_continuations` (those without a verdict)."""
        asked = [[_Asked(episode, self._segment(episode)) for episode in group.members] for group in groups]
        metrics: Metrics = {}
        if self._settings.source == "visits":
            for some in asked:
                _visit(some, self._settings.pay)
        else:
            metrics = self._continue([one for some in asked for one in some[: self._settings.members] if not one.episode.failed])
        return [[self._places(one) for one in some] for some in asked], metrics

    def _continue(self, asked: Sequence[_Asked]) -> Metrics:
        settings = self._settings
        for one in asked:
            outcome = paid(one.episode, settings.pay)
            if one.end is not None and outcome is not None:
                one.draws[one.end].append(_Draw(outcome, len(one.episode.turns) - 1))
        open_places = [(one, place) for one in asked for place in one.open_places(settings.form)]
        first = settings.first if settings.budget == "adaptive" else settings.continuations
        costs = [self._ask([(one, place, draw) for one, place in open_places for draw in range(first)])]
        if settings.budget == "adaptive":
            doubtful = [(one, place) for one, place in open_places if _neighbours_differ(one, place, settings.form)]
            more = range(first, settings.continuations)
            costs.append(self._ask([(one, place, draw) for one, place in doubtful for draw in more]))
        return {name: float(sum(cost[name] for cost in costs)) for name in costs[0]}

    def _ask(self, wanted: Sequence[tuple[_Asked, int, int]]) -> Mapping[str, int]:
        made = self._go_on([Prefix(one.episode, one.kept(place), draw) for one, place, draw in wanted])
        tokens = lost = 0
        for (one, place, _), episode in zip(wanted, made, strict=True):
            tokens += max(episode.num_tokens - one.kept(place), 0)
            outcome = paid(episode, self._settings.pay)
            if outcome is None:
                lost += 1
            else:
                one.draws[place].append(_Draw(outcome, len(episode.turns) - 1))
        return {"judge/continuations": len(made), "judge/continuation_tokens": tokens, "judge/lost_continuations": lost}

    def _places(self, one: _Asked) -> Places:
        worth, known = np.zeros(len(one.steps) + 1), np.zeros(len(one.steps) + 1, np.bool_)
        for place, draws in one.draws.items():
            if draws:
                worth[place], known[place] = self._worth(draws, one.turn(place)), True
        return Places(worth, known)

    def _worth(self, draws: Sequence[_Draw], turn: int) -> float:
        if self._settings.labels == "hard":
            return float(any(draw.pay > 0 for draw in draws))
        return float(np.mean([draw.pay * self._settings.discount ** (draw.last_turn - turn) for draw in draws]))


def _neighbours_differ(one: _Asked, place: int, form: Form) -> bool:
    """Whether the places before and after got different answers: then this one lies where things are decided."""
    end = one.end
    line = [*one.open_places(form), *([] if end is None else [end])]
    at = line.index(place)
    answers = {draw.pay for near in (*line[max(at - 1, 0) : at], *line[at + 1 : at + 2]) for draw in one.draws[near]}
    return len(answers) > 1


def _visit(group: Sequence[_Asked], pay: Pay) -> None:
    """Every member's outcome is a draw at each place that it shares with another: after the same tokens in the same context."""
    seen: dict[bytes, list[_Draw]] = defaultdict(list)
    keys = [_keys(one) for one in group]
    for one, places in zip(group, keys, strict=True):
        outcome = paid(one.episode, pay)
        if outcome is not None:
            for key in places.values():
                seen[key].append(_Draw(outcome, len(one.episode.turns) - 1))
    for one, places in zip(group, keys, strict=True):
        if not one.episode.failed:
            one.draws.update({place: seen[key] for place, key in places.items()})


def _keys(one: _Asked) -> dict[int, bytes]:
    """What stands before each place."""
    made: dict[int, bytes] = {}
    offset = 0
    for number, turn in enumerate(one.episode.turns):
        context = np.asarray(turn.context_ids, np.int64)
        if number == 0:
            made[0] = context.tobytes()
        for s in np.flatnonzero((one.steps.turn_S == number) & (one.steps.lengths_S > 0)).tolist():
            said = turn.token_ids[: int(one.steps.stop_S[s]) - offset]
            made[s + 1] = b"%d/" % number + np.concatenate([context, said]).tobytes()
        offset += len(turn.token_ids)
    return made


class MonteCarloReward:
    """Step rewards from Monte Carlo estimates: the estimates themselves, or those of a judge that is fitted to them.

    With a `reader`, every batch is scored by the fitted judge, which then learns from estimates on the episodes of this batch (`members` of
    each group): no continuation is played but for learning. `learn` reports what they cost, `judge/fresh_error`, the mean distance between
    judge and estimate before the judge has learnt from it, and `judge/confidence`. Estimates have no confidence: they know the outcome.

    Args:
        go_on: Lets the policy go on from a place.
        settings: How many continuations, and what is read off them.
        segment: Where steps begin and end.
        reader: A fitted judge, or None.
        lr: Its learning rate.
        updates: Its gradient steps on each batch.
        memory: Of its confidence, see `rewards.confidence.Confidence`.

    Raises:
        ConfigError: a learning rate or a number of updates that is not positive.
    """

    def __init__(
        self,
        go_on: Continue,
        settings: MonteCarloSettings,
        *,
        segment: Segment = by_turn,
        reader: Reader | None = None,
        lr: float = 1e-5,
        updates: int = 1,
        memory: float = 0.9,
    ) -> None:
        if not (np.isfinite(lr) and lr > 0) or updates < 1:
            raise ConfigError(f"The judge's lr is {lr} and its updates {updates}; both need to be positive.")
        self._estimate, self._settings, self._segment = MonteCarlo(go_on, settings, segment), settings, segment
        self._reader, self._lr, self._updates = reader, lr, updates
        self._cost: Metrics = {}
        self._confidence = Confidence(memory)
        self._ranked: list[list[tuple[float, float]]] = []

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `judge`; what is not known is unscored."""
        steps = [[self._segment(episode) for episode in group.members] for group in groups]
        if self._reader is None:
            places, self._cost = self._estimate(groups)
        else:
            places = said_about(self._reader, groups, steps)
        rewards = [
            [step_rewards(one, cut, self._settings.form, self._settings.discount) for one, cut in zip(some, cuts, strict=True)]
            for some, cuts in zip(places, steps, strict=True)
        ]
        scored = attached(groups, steps, rewards, self._settings.pay, confidence=self._confidence.value)
        self._ranked = [] if self._reader is None else ranked(scored, places)
        return scored

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """What the estimates cost; with a reader, it is taught them."""
        if self._reader is None:
            return dict(self._cost)
        episodes = [Group(group.task, tuple(member.episode for member in group.members)) for group in groups]
        places, metrics = self._estimate(episodes)
        metrics |= self._confidence.remember(pair_accuracy(self._ranked))
        pairs = [(e, p) for g, some in zip(episodes, places, strict=True) for e, p in zip(g.members, some, strict=True) if p.known.any()]
        lessons = [lesson for episode, known in pairs for lesson in lessons_of(readings(episode, self._segment(episode)), known)]
        if not lessons:
            return metrics
        said = self._reader.say([lesson.reading for lesson in lessons])
        gaps = np.concatenate([np.abs(s - lesson.targets) for s, lesson in zip(said, lessons, strict=True)])
        metrics["judge/fresh_error"] = float(gaps.mean())
        for _ in range(self._updates):
            metrics |= self._reader.teach(lessons, self._lr)
        return metrics

    def models(self) -> dict[str, Saveable]:
        """The fitted judge, if there is one."""
        return {} if self._reader is None else {"judge": self._reader.model}

    def state(self) -> dict[str, JSON]:
        """The confidence; draws are seeded by what they continue."""
        return {"confidence": self._confidence.state()}

    def restore(self, state: dict[str, JSON]) -> None:
        """The confidence."""
        self._confidence.restore(state["confidence"])
