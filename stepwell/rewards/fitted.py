"""What fitted judges share: where a text is read, a model that says a number there, and how numbers become step rewards.

A **place** is where an episode stands: place 0 before the first step, place s + 1 after step s. A judge says at each place how good
things stand; a step's reward is what stands after it (`value`), or what it changed (`progress`).

Legend: S step, P place (S + 1), K place that one row reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from stepwell.engine.batch import parts_of
from stepwell.errors import CapabilityError, ConfigError, RunError
from stepwell.losses.fitted import FitLoss, Fitting, LabelLoss
from stepwell.protocols import Capabilities, Model
from stepwell.rewards.outcome import Pay, paid
from stepwell.types import Bools, Episode, Floats, Group, Ids, Metrics, Row, Scored, Steps

__all__ = [
    "Form",
    "HeadReader",
    "LabelReader",
    "Lesson",
    "Places",
    "Reader",
    "Reading",
    "attached",
    "check_head",
    "finite",
    "lessons_of",
    "ranked",
    "read",
    "readings",
    "said_about",
    "step_rewards",
]

Form = Literal["value", "progress"]
_VALUES = frozenset({"values"})


def check_head(capabilities: Capabilities, reward: str) -> None:
    """Whether an engine can carry a judge with a scalar head.

    Raises:
        CapabilityError: It has no models with one.
    """
    if "head" not in capabilities.kinds or not capabilities.values:
        raise CapabilityError(
            f"reward.kind is {reward!r} with a scalar head, and this engine has only {', '.join(sorted(capabilities.kinds))}; "
            "choose a judge without a head, or another engine."
        )


# -- where a text is read -----------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """A stretch of text, and where in it a judge is asked.

    Attributes:
        ids: The text. [L]
        ends: Each place is read after `ids[:end]`; ascending, in [1, L]. [K]
        places: Their numbers. [K]
    """

    ids: Ids
    ends: Ids
    places: Ids


class Lesson(NamedTuple):
    """A reading, and what should have been said. [K]"""

    reading: Reading
    targets: Floats


def readings(episode: Episode, steps: Steps) -> list[Reading]:
    """Every place of an episode that a judge can be asked about, in the rows of `parts_of`: exactly the contexts that sampling saw.

    The place after a step is read at its last token, before the environment answers; place 0 at the end of the first context. A step
    without tokens has no place of its own.
    """
    made = []
    for number, part in enumerate(parts_of(episode)):
        inside = (steps.lengths_S > 0) & (steps.start_S >= part.first) & (steps.stop_S <= part.last)
        (chosen,) = np.nonzero(inside)
        ends = part.targets[steps.stop_S[chosen] - 1 - part.first] + 1
        first = [0] * (number == 0)
        made.append(Reading(part.ids, np.array([part.targets[0]] * len(first) + ends.tolist()), np.array(first + (chosen + 1).tolist())))
    return made


# -- who reads it -------------------------------------------------------------------------------------------------------------


class Reader(Protocol):
    """Says a number at each place, and learns."""

    @property
    def model(self) -> Model:
        """Its weights."""
        ...

    def say(self, asked: Sequence[Reading]) -> list[Floats]:
        """For each reading a number at each of its places, [K]."""
        ...

    def teach(self, lessons: Sequence[Lesson], lr: float) -> Metrics:
        """One update; every place has the same weight."""
        ...


@dataclass(frozen=True, slots=True)
class HeadReader:
    """A scalar head: on a trunk of its own, or on the policy's hidden states (no second model).

    Attributes:
        model: Of kind head.
        fitting: `logistic`: the number is the head's sigmoid, a probability; `square`: the head's value itself.
    """

    model: Model
    fitting: Fitting = "logistic"

    def say(self, asked: Sequence[Reading]) -> list[Floats]:
        """See `Reader`."""
        values = [made["values"] for made in self.model.forward([_head_row(reading) for reading in asked], _VALUES)]
        return [_sigmoid(v) if self.fitting == "logistic" else v for v in map(finite, values)]

    def teach(self, lessons: Sequence[Lesson], lr: float) -> Metrics:
        """See `Reader`."""
        rows = [replace(_head_row(lesson.reading), returns=lesson.targets) for lesson in lessons]
        return _update(self.model, _alike(rows, _num_places(lessons)), FitLoss(self.fitting), lr)


@dataclass(frozen=True, slots=True)
class LabelReader:
    """A language model that says one of a few label tokens after the text; the number is the mean of the labels' worths.

    Each place is a row of its own for each label, so that no label stands in the text of the places after it.

    Attributes:
        model: A language model.
        labels: Token ids of the labels.
        worths: Of each label, in [0, 1], ascending or descending; the order of both lists does not matter.

    Raises (when built):
        ConfigError: Fewer than two labels, equal ones, or not one worth for each.
    """

    model: Model
    labels: tuple[int, ...]
    worths: tuple[float, ...] = (1.0, 0.0)

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels) or len(self.labels) != len(set(self.worths)):
            raise ConfigError(
                f"The label tokens are {list(self.labels)} with worths {list(self.worths)}; at least two labels are needed, all different, "
                "with a worth of its own for each."
            )
        self.model.snapshot()  # A head has no words, and says so here.

    def say(self, asked: Sequence[Reading]) -> list[Floats]:
        """See `Reader`."""
        rows = [row for reading in asked for row in self._rows(reading)]
        said = np.array([made["logprobs"][0] for made in self.model.forward(rows)]).reshape(-1, len(self.labels))
        share = np.exp(finite(said) - said.max(axis=1, keepdims=True, initial=-np.inf))
        number = share @ np.array(self.worths) / share.sum(axis=1)
        return np.split(number, np.cumsum([len(reading.ends) for reading in asked])[:-1]) if asked else []

    def teach(self, lessons: Sequence[Lesson], lr: float) -> Metrics:
        """See `Reader`. What lies between two worths is shared among their labels, so that the mean is right."""
        rows: list[Row] = []
        for lesson in lessons:
            shares = self.shares(lesson.targets)
            for number, row in enumerate(self._rows(lesson.reading)):
                place, label = divmod(number, len(self.labels))
                step = np.array([len(rows) // len(self.labels)])
                rows.append(replace(row, returns=np.array([shares[place, label]]), step=step))
        return _update(self.model, _alike(rows, _num_places(lessons)), LabelLoss(), lr)

    def shares(self, targets: Floats) -> Floats:
        """The probabilities of the labels that have this mean, on the two nearest worths. [K] -> [K, labels]"""
        order = np.argsort(self.worths)
        worths = np.array(self.worths)[order]
        if np.any((targets < worths[0]) | (targets > worths[-1])):
            raise ValueError(
                f"A target of {targets.min()} to {targets.max()} lies outside the labels' worths, {worths[0]} to {worths[-1]}."
            )
        above = np.clip(np.searchsorted(worths, targets, side="left"), 1, len(worths) - 1)
        share = (targets - worths[above - 1]) / (worths[above] - worths[above - 1])
        made = np.zeros((len(targets), len(worths)))
        places = np.arange(len(targets))
        made[places, order[above]], made[places, order[above - 1]] = share, 1.0 - share
        return made

    def _rows(self, reading: Reading) -> list[Row]:
        return [
            replace(Row.of(np.append(reading.ids[:end], token), np.array([end])), label=float(number))
            for end in reading.ends.tolist()
            for number, token in enumerate(self.labels)
        ]


def _head_row(reading: Reading) -> Row:
    """One token longer than the text, as its last place has no token after it; that token is never read."""
    return Row.of(np.append(reading.ids, reading.ids[-1]), reading.ends)


def _alike(rows: Sequence[Row], num_places: int) -> list[Row]:
    return [replace(row, weight=np.full(len(row.targets), 1.0 / num_places)) for row in rows]


def _num_places(lessons: Sequence[Lesson]) -> int:
    return sum(len(lesson.targets) for lesson in lessons)


def _update(model: Model, rows: Sequence[Row], loss: FitLoss | LabelLoss, lr: float) -> Metrics:
    metrics = model.backward(rows, loss)
    return metrics | {f"judge/{name}": value for name, value in model.step(lr).items()}


def finite(values: Floats) -> Floats:
    """The values, if they are numbers.

    Raises:
        RunError: They are not; says what to do.
    """
    if not np.isfinite(values).all():
        raise RunError(
            f"The judge said {values[~np.isfinite(values)][0]}: its weights hold NaN or infinity. Lower reward.lr; in a model from a file, "
            "look after the file."
        )
    return values


def _sigmoid(values: Floats) -> Floats:
    return np.exp(-np.logaddexp(0.0, -values))


# -- from numbers to rewards --------------------------------------------------------------------------------------------------


class Places(NamedTuple):
    """How good an episode stands at each place, and where that is known (0 elsewhere). [P]"""

    worth: Floats
    known: Bools


def read(reader: Reader, episodes: Sequence[Episode], steps: Sequence[Steps]) -> list[Places]:
    """What a reader says about all places of these episodes."""
    asked = [readings(episode, cut) for episode, cut in zip(episodes, steps, strict=True)]
    said = iter(reader.say([reading for some in asked for reading in some]))
    made = []
    for some, cut in zip(asked, steps, strict=True):
        worth, known = np.zeros(len(cut) + 1), np.zeros(len(cut) + 1, np.bool_)
        for reading in some:
            worth[reading.places], known[reading.places] = next(said), True
        made.append(Places(worth, known))
    return made


def said_about(reader: Reader, groups: Sequence[Group[Episode]], steps: Sequence[Sequence[Steps]]) -> list[list[Places]]:
    """What a reader says about every episode of these groups; nothing about one that failed."""
    alive = [(e, s) for group, cuts in zip(groups, steps, strict=True) for e, s in zip(group.members, cuts, strict=True) if not e.failed]
    said = iter(read(reader, [e for e, _ in alive], [s for _, s in alive]))
    return [
        [
            Places(np.zeros(len(cut) + 1), np.zeros(len(cut) + 1, np.bool_)) if episode.failed else next(said)
            for episode, cut in zip(group.members, cuts, strict=True)
        ]
        for group, cuts in zip(groups, steps, strict=True)
    ]


def step_rewards(places: Places, steps: Steps, form: Form, discount: float = 1.0) -> tuple[Floats, Bools]:
    """Rewards of steps, and where there are any. [S], [S]

    `value`: what stands after the step. `progress`: that, less what stood before it. Where a turn begins, what stood before is
    `worth / discount`: the discount is per turn, and the place before it was read a turn earlier. A step without tokens is
    no decision: it has no reward, and the next one is compared with what stood before it.

    Progress telescopes: without a discount its sum is the worth of the last place less that of the first.
    """
    after, known = places.worth[1:].copy(), places.known[1:].copy()
    if form == "value":
        return np.where(known, after, 0.0), known
    reward, told = np.zeros(len(steps)), np.zeros(len(steps), np.bool_)
    before, turn = 0, 0
    for s in range(len(steps)):
        if steps.lengths_S[s] == 0:
            continue
        told[s] = places.known[before] and places.known[s + 1]
        later = int(steps.turn_S[s]) - turn
        reward[s] = places.worth[s + 1] - places.worth[before] / discount**later if told[s] else 0.0
        before, turn = s + 1, int(steps.turn_S[s])
    return reward, told


def attached(
    groups: Sequence[Group[Episode]],
    steps: Sequence[Sequence[Steps]],
    made: Sequence[Sequence[tuple[Floats, Bools]]],
    pay: Pay,
    *,
    confidence: float | None = None,
) -> list[Group[Scored]]:
    """Episodes with the component `judge`."""
    return [
        Group(
            group.task,
            tuple(
                Scored(episode, cut, paid(episode, pay), {"judge": reward_S}, scored_S, confidence=confidence)
                for episode, cut, (reward_S, scored_S) in zip(group.members, cuts, rewards, strict=True)
            ),
        )
        for group, cuts, rewards in zip(groups, steps, made, strict=True)
    ]


def lessons_of(asked: Sequence[Reading], places: Places) -> list[Lesson]:
    """What a reader is to say at the places that are known."""
    made = []
    for reading in asked:
        known = places.known[reading.places]
        if known.any():
            kept = Reading(reading.ids, reading.ends[known], reading.places[known])
            made.append(Lesson(kept, places.worth[kept.places]))
    return made


def ranked(groups: Sequence[Group[Scored]], places: Sequence[Sequence[Places]]) -> list[list[tuple[float, float]]]:
    """Outcome and mean worth after steps, of each episode that has both: what `pair_accuracy` compares."""
    return [
        [
            (member.outcome, float(some.worth[1:][some.known[1:]].mean()))
            for member, some in zip(group.members, known, strict=True)
            if member.outcome is not None and some.known[1:].any()
        ]
        for group, known in zip(groups, places, strict=True)
    ]
