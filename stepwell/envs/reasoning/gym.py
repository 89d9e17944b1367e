"""Tasks of the package reasoning-gym (Apache-2.0), any of its data sets by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from stepwell.envs.reasoning.family import Axes, Payload, as_written, number_in, text_in
from stepwell.envs.reasoning.references import judge_text
from stepwell.envs.reasoning.truth import AFTER, StepTruth, Truth
from stepwell.errors import ConfigError, MissingExtraError, nearest
from stepwell.types import JSON

__all__ = ["Gym"]


class Gym:
    """A data set of reasoning-gym. Its difficulty is the level of the package's own curriculum, where it has one.

    The package's scores know partial credit; an answer is right from `threshold` on. What a line says is checked as far as it holds
    equations in numbers (see `references`); all else is unknown.

    Args:
        dataset: Its name, such as `chain_sum`.
        threshold: The least score of a right answer, above 0.

    Raises:
        MissingExtraError: The package is not installed.
        ConfigError: It has no such data set, or the threshold is outside (0, 1].
    """

    name = "gym"
    axes: Mapping[str, tuple[int, int]] = {"level": (0, 4)}

    def __init__(self, dataset: str, threshold: float = 1.0) -> None:
        known = _package().factory.DATASETS
        if dataset not in known:
            raise ConfigError(f"reasoning-gym has no data set {dataset!r}; {nearest(dataset, known)}.")
        if not 0.0 < threshold <= 1.0:
            raise ConfigError(f"The threshold of a right answer is {threshold}; it lies above 0 and is at most 1.")
        self.dataset, self.threshold = dataset, threshold

    def draw(self, axes: Axes, rng: np.random.Generator) -> dict[str, JSON]:
        """The first entry of the data set at this level, of a seed drawn at random."""
        seed = int(rng.integers(2**31))
        made = _entry(self.dataset, axes["level"], seed)
        return {"dataset": self.dataset, "level": axes["level"], "seed": seed, "question": str(made.entry["question"]).strip()}

    def ask(self, payload: Payload) -> str:
        return text_in(payload, "question")

    def solve(self, payload: Payload) -> list[str] | None:
        """The answer alone, where the package knows one, it is one line, and it is right by the threshold."""
        answer = _of(payload).entry["answer"]
        if answer is None or not str(answer).strip() or "\n" in str(answer).strip() or not self.answers(payload, str(answer)):
            return None
        return [str(answer).strip()]

    def slip(self, payload: Payload, at: int, rng: np.random.Generator) -> list[str]:
        raise ConfigError("The solutions of reasoning-gym have no steps that could be got wrong; take another task.")

    def judge(self, payload: Payload, lines: Sequence[str]) -> list[StepTruth]:
        found = judge_text(lines)
        end = next((at for at, one in enumerate(found) if one.truth is Truth.WRONG), len(found))
        return [*found[: end + 1], *(AFTER for _ in found[end + 1 :])]

    def answers(self, payload: Payload, answer: str) -> bool:
        made = _of(payload)
        try:
            return float(made.dataset.score_answer(answer=answer.strip(), entry=made.entry)) >= self.threshold
        except Exception:  # its scorers raise all kinds of errors on answers that they cannot read
            return False

    def meaning(self, payload: Payload, answer: str) -> str:
        """The answer as it is written: the package compares answers with the right one alone."""
        return as_written(answer)

    def shortcut(self, payload: Payload) -> str | None:
        return None

    def possible(self, payload: Payload, lines: Sequence[str]) -> tuple[str, ...] | None:
        return None


class _Made(NamedTuple):
    dataset: Any
    entry: Any


def _of(payload: Payload) -> _Made:
    return _entry(text_in(payload, "dataset"), number_in(payload, "level"), number_in(payload, "seed"))


@lru_cache(maxsize=4096)
def _entry(dataset: str, level: int, seed: int) -> _Made:
    gym = _package()
    if dataset in gym.factory.CURRICULA:
        curriculum = gym.factory.create_curriculum(dataset)
        for name, attribute in curriculum.attributes.items():
            curriculum.set_attr_level(name, min(level, len(attribute.levels) - 1))
        config = curriculum.generate_configuration({"seed": seed, "size": 1})
        made = gym.factory.DATASETS[dataset][0](config=config)
    else:
        made = gym.create_dataset(dataset, seed=seed, size=1)
    return _Made(made, made[0])


def _package() -> Any:
    try:
        import reasoning_gym
    except ImportError:
        raise MissingExtraError("reasoning-gym", "reasoning") from None
    return reasoning_gym
