"""Uniform: the n-th task of a run is a function of seed and n, whatever happened in between."""

from __future__ import annotations

import pytest
from speakers import shop

from stepwell.curriculum import Uniform
from stepwell.errors import ConfigError
from stepwell.types import Group, Task


def draw(curriculum: Uniform, *sizes: int) -> list[Task]:
    return [task for step, size in enumerate(sizes) for task in curriculum.draw(size, step)]


def test_the_stream_does_not_depend_on_how_it_is_cut() -> None:
    one, two = Uniform(shop(), (0.1, 0.6), 7), Uniform(shop(), (0.1, 0.6), 7)
    tasks = draw(one, 3, 4, 5)
    assert draw(two, 12) == tasks
    assert len({task.key for task in tasks}) == 12
    assert all(0.1 <= task.difficulty <= 0.6 and task.split == "train" for task in tasks)
    assert draw(Uniform(shop(), (0.1, 0.6), 8), 12) != tasks


def test_it_goes_on_from_its_state() -> None:
    """U72: the next task after resuming is the next task."""
    one = Uniform(shop(), (0.1, 0.6), 7)
    draw(one, 5)
    two = Uniform(shop(), (0.1, 0.6), 7)
    two.restore(one.state())
    assert draw(two, 3) == draw(one, 3)


def test_it_says_what_it_asked() -> None:
    curriculum = Uniform(shop(), (0.3, 0.3), 0)
    groups = [Group(task, ()) for task in draw(curriculum, 4)]
    assert all(curriculum.admit(group) for group in groups)
    assert curriculum.observe(groups) == {"curriculum/difficulty": pytest.approx(0.3), "curriculum/drawn": 4.0}


@pytest.mark.parametrize("difficulty", [(0.6, 0.1), (-0.1, 0.5), (0.5, 1.1)])
def test_a_range_that_is_none_is_refused(difficulty: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="allowed is a range"):
        Uniform(shop(), difficulty, 0)
