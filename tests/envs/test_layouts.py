"""Splits are decided by the layout itself, and finite lists hold no layout twice."""

from __future__ import annotations

from collections import Counter

import pytest

from stepwell.envs.layouts import different_tasks, drawn_for, split_of
from stepwell.errors import ConfigError
from stepwell.types import Task


def task(difficulty: float, seed: int, split: str) -> Task:
    return Task(f"{split}/{seed}", "x", difficulty, split, {"kind": seed % 3})


def test_one_in_five_is_for_the_test_and_one_in_ten_for_validation() -> None:
    counts = Counter(split_of(f"layout {n}") for n in range(5000))
    assert counts["test"] == pytest.approx(1000, abs=120) and counts["validation"] == pytest.approx(500, abs=90)
    assert sum(counts.values()) == 5000 and set(counts) == {"train", "validation", "test"}


def test_the_first_that_belongs_is_taken() -> None:
    asked: list[int] = []

    def draw(attempt: int) -> str:
        asked.append(attempt)
        return f"layout {attempt}"

    assert split_of(drawn_for("validation", draw, str)) == "validation"
    assert asked == list(range(len(asked))) and all(split_of(f"layout {n}") != "validation" for n in asked[:-1])


def test_lists_hold_no_layout_twice() -> None:
    made = different_tasks("test", 3, (0.2, 0.3), task)
    assert [t.payload["kind"] for t in made] == [0, 1, 2]
    assert all(0.2 <= t.difficulty <= 0.3 for t in made)
    with pytest.raises(ConfigError, match=r"hardly more than 3 different tasks.*and 4 are wanted: ask for fewer"):
        different_tasks("test", 4, (0.2, 0.3), task)


def test_too_few_layouts_are_an_error() -> None:
    with pytest.raises(ConfigError, match="raise the difficulty"):
        drawn_for("test" if split_of("the only one") == "train" else "train", lambda attempt: "the only one", str)
