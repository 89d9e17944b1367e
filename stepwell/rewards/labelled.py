"""The labelled judge: a judge of steps, fitted to labels that somebody gave.

Legend: S step, K place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepwell.credit.segment import Segment, by_turn
from stepwell.errors import ConfigError
from stepwell.protocols import Saveable
from stepwell.rewards.confidence import Confidence, auc, pair_accuracy
from stepwell.rewards.fitted import Form, Lesson, Reader, Reading, attached, ranked, said_about, step_rewards
from stepwell.rewards.outcome import Pay
from stepwell.seeding import generator
from stepwell.step_labels import LabelledSolution
from stepwell.types import JSON, Episode, Group, Ids, Metrics, Scored

__all__ = ["Encoded", "LabelledReward", "LabelledSettings", "encoded"]

Encode = Callable[[str], Ids]


class Encoded(NamedTuple):
    """Labelled solutions as lessons, and what did not fit.

    Attributes:
        dropped_steps: Labelled steps that did not fit.
        dropped_solutions: Solutions of which no labelled step fitted.
        problems: Equal numbers mark lessons on the same problem; empty where each is on its own.
    """

    lessons: list[Lesson]
    dropped_steps: int
    dropped_solutions: int
    problems: tuple[int, ...] = ()


def encoded(solutions: Sequence[LabelledSolution], opening: Encode, text: Encode, *, separator: str, max_length: int) -> Encoded:
    """Solutions as token ids, with a place behind the separator of each labelled step.

    Problem, steps and separators are encoded each by itself and then joined: no token can reach over the end of a step, whatever the
    tokenizer would merge, and there is one place for every label by construction. What is longer than `max_length` loses whole steps from
    its end, each with its label; the rest stays paired.

    Args:
        solutions: What somebody labelled.
        opening: A problem, as the policy sees it.
        text: A text in a solution.
        separator: What ends a step.
        max_length: In tokens.

    Raises:
        ConfigError: The separator is no token; or not one labelled step fits.
    """
    end = np.asarray(text(separator), np.int64)
    if not len(end):
        raise ConfigError(
            f"reward.separator is {separator!r}, which is no token; choose a text that the tokenizer keeps, such as a newline."
        )
    lessons: list[Lesson] = []
    problems: list[int] = []
    numbers: dict[str, int] = {}
    dropped_steps = dropped_solutions = 0
    for solution in solutions:
        ids = [np.asarray(opening(solution.prompt), np.int64)]
        ends: list[int] = []
        targets: list[float] = []
        places: list[int] = []
        length = len(ids[0])
        for number, (step, label) in enumerate(zip(solution.steps, solution.labels, strict=True), 1):
            piece = np.concatenate([np.asarray(text(step), np.int64), end])
            if length + len(piece) > max_length:
                dropped_steps += sum(label is not None for label in solution.labels[number - 1 :])
                break
            ids.append(piece)
            length += len(piece)
            if label is not None:
                ends.append(length)
                targets.append(label)
                places.append(number)
        if targets:
            lessons.append(Lesson(Reading(np.concatenate(ids), np.array(ends), np.array(places)), np.array(targets)))
            problems.append(numbers.setdefault(solution.prompt, len(numbers)))
        elif any(label is not None for label in solution.labels):
            dropped_solutions += 1
    if not lessons:
        raise ConfigError(f"No labelled step fits into {max_length} tokens; raise reward.max_length, or look at the problems' length.")
    return Encoded(lessons, dropped_steps, dropped_solutions, tuple(problems))


@dataclass(frozen=True, slots=True)
class LabelledSettings:
    """How the judge learns.

    Attributes:
        pay: What the end of an episode is paid.
        form: `value`: how good the text is up to the end of the step, by its labels. `progress`: what the step changed.
        warm: Updates before the first episode is scored.
        updates: Updates on each batch besides; of use where the judge reads the policy's states, which move.
        batch: Solutions of an update.
        held_out: Share of the problems whose solutions are not learnt from, but measured on: at least one, if the share is not 0. Where
            there is one problem, of the solutions.
        lr: Learning rate.
        memory: Of the confidence, see `rewards.confidence.Confidence`.

    Raises (when built):
        ConfigError: a number out of range.
    """

    pay: Pay = "success"
    form: Form = "value"
    warm: int = 200
    updates: int = 0
    batch: int = 16
    held_out: float = 0.1
    lr: float = 1e-5
    memory: float = 0.9

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lr) and self.lr > 0) or self.batch < 1 or min(self.warm, self.updates) < 0:
            raise ConfigError(
                f"The judge's lr is {self.lr}, batch {self.batch}, warm {self.warm} and updates {self.updates}; the first two need to be "
                "positive, the others at least 0."
            )
        if self.warm + self.updates == 0:
            raise ConfigError("reward.warm and reward.updates are both 0: the judge would never learn; make one of them positive.")
        if not 0.0 <= self.held_out < 1.0:
            raise ConfigError(f"reward.held_out is {self.held_out}; it lies in [0, 1).")


class LabelledReward:
    """A judge that is fitted to labelled steps before it scores the first episode.

    The component `judge` of a step is what it says behind the step's last token, in [0, 1]: supervised process reward models, such as those
    trained on PRM800K (arXiv 2305.20050) and Math-Shepherd's data (arXiv 2312.08935). It judges text that the policy writes by what it
    learnt from text that others wrote; `judge/confidence` says whether its opinion has to do with outcomes here.

    `learn` reports `judge/fresh_error`, `judge/label_accuracy` and `judge/label_auc` on the solutions that are held out (problems are held
    out as a whole, so that no solution of theirs was learnt from), `judge/labels` (labelled steps that are learnt from) and
    `judge/dropped_labels` (those that did not fit).

    Args:
        reader: What is fitted.
        data: Labelled solutions.
        settings: As above.
        segment: Where steps of episodes begin and end.
        seed: Of the order in which solutions are shown.
    """

    def __init__(self, reader: Reader, data: Encoded, settings: LabelledSettings, *, segment: Segment = by_turn, seed: int = 0) -> None:
        self._reader, self._settings, self._segment, self._seed = reader, settings, segment, seed
        problems = data.problems if len(set(data.problems)) > 1 else range(len(data.lessons))
        order = generator(seed, "held-out labels").permutation(len(set(problems)))
        fresh = set(order[: _num_held_out(settings.held_out, len(order))].tolist())
        self._fresh = [lesson for lesson, problem in zip(data.lessons, problems, strict=True) if problem in fresh]
        self._lessons = [lesson for lesson, problem in zip(data.lessons, problems, strict=True) if problem not in fresh]
        self._dropped = data.dropped_steps
        self._done = 0
        self._confidence = Confidence(settings.memory)
        self._ranked: list[list[tuple[float, float]]] = []

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `judge`; the first call fits the judge."""
        self.teach(self._settings.warm - self._done)
        steps = [[self._segment(episode) for episode in group.members] for group in groups]
        places = said_about(self._reader, groups, steps)
        rewards = [
            [step_rewards(one, cut, self._settings.form) for one, cut in zip(some, cuts, strict=True)]
            for some, cuts in zip(places, steps, strict=True)
        ]
        scored = attached(groups, steps, rewards, self._settings.pay, confidence=self._confidence.value)
        self._ranked = ranked(scored, places)
        return scored

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """How good it is on labels and on outcomes; then its updates."""
        metrics = self._confidence.remember(pair_accuracy(self._ranked)) | self.measured()
        return metrics | self.teach(self._settings.updates)

    @property
    def done(self) -> int:
        """Updates so far."""
        return self._done

    def measured(self) -> Metrics:
        """How good it is on the solutions that are held out."""
        metrics = {"judge/labels": float(sum(len(one.targets) for one in self._lessons)), "judge/dropped_labels": float(self._dropped)}
        if self._fresh:
            said = np.concatenate(self._reader.say([lesson.reading for lesson in self._fresh]))
            told = np.concatenate([lesson.targets for lesson in self._fresh])
            metrics["judge/fresh_error"] = float(np.abs(said - told).mean())
            clear = told != 0.5
            if clear.any():
                metrics["judge/label_accuracy"] = float((((said > 0.5) == (told > 0.5)) & (said != 0.5))[clear].mean())
                metrics["judge/label_auc"] = auc(said[clear], told[clear] > 0.5)
        return metrics

    def teach(self, times: int) -> Metrics:
        """The next updates; each epoch shows every solution once, in an order of its own; its last batch is what is left. Last metrics."""
        metrics: Metrics = {}
        if times > 0 and not self._lessons:
            raise ConfigError("The labelled judge has nothing to learn from; name a file: reward.data=FILE, and hold less of it out.")
        size = min(self._settings.batch, len(self._lessons))
        for _ in range(times):
            epoch, at = divmod(self._done, -(-len(self._lessons) // size))
            order = generator(self._seed, "labels", epoch).permutation(len(self._lessons))
            metrics = self._reader.teach([self._lessons[i] for i in order[at * size : (at + 1) * size]], self._settings.lr)
            self._done += 1
        return metrics

    def models(self) -> dict[str, Saveable]:
        """The judge."""
        return {"judge": self._reader.model}

    def state(self) -> dict[str, JSON]:
        """How much has been shown, and the confidence."""
        return {"done": self._done, "confidence": self._confidence.state()}

    def restore(self, state: dict[str, JSON]) -> None:
        """Goes on where it was."""
        done = state["done"]
        assert isinstance(done, int)
        self._done = done
        self._confidence.restore(state["confidence"])


def _num_held_out(share: float, num: int) -> int:
    """Of so many problems.

    Raises:
        ConfigError: There is one alone, and nothing else to learn from.
    """
    if share and num == 1:
        raise ConfigError(
            f"reward.held_out is {share:g}, and there is one labelled solution: nothing would be left to learn from; give more, or set "
            "reward.held_out=0."
        )
    return max(1, int(share * num)) if share and num else 0
