"""WebShop as a domain: tasks, worlds, verdicts and an expert over a folder of real products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from stepwell.envs.shop.webshop import pages
from stepwell.envs.shop.webshop.clean import CleanEnvironment
from stepwell.envs.shop.webshop.compat import CompatEnvironment, CompatSettings
from stepwell.envs.shop.webshop.players import clean_oracle, compat_oracle, play, scripted
from stepwell.envs.shop.webshop.store import Catalogue, Goals, Store, colour_words, open_store
from stepwell.errors import ConfigError, nearest
from stepwell.seeding import generator
from stepwell.types import Action, Episode, Task, Verdict

__all__ = ["WebShopDomain", "WebShopSettings"]

Variant = Literal["compat", "clean"]
_NUM_TEST, _NUM_EVAL = 500, 1000
_CLEAN_SHARES = {"test": 0.2, "validation": 0.1}
_NEAR = 0.1
"""How far a task's difficulty may lie from the one asked for."""


@dataclass(frozen=True, slots=True)
class WebShopSettings:
    """What to load, and how the shop behaves.

    Attributes:
        data: Folder with the products (see `open_store`).
        variant: `compat`, the original to the letter; or `clean`, without its accidents, for training (see `clean`).
        mode: Of `compat`: `text` or `text_rich`.
        show_attrs: Of `compat`: an extra page lists a product's attributes.
        seed: Of prices and price limits, and of the clean split; `compat` with 0 is the recorded original.
        catalogue, goals, nouns: See `open_store`.
        goals_per_product: Of `clean`: so many goals of one product at most (one product alone makes 558 of the original's 6,910).
    """

    data: str | Path
    variant: Variant = "compat"
    mode: pages.Mode = "text"
    show_attrs: bool = False
    seed: int = 0
    catalogue: Catalogue = "auto"
    goals: Goals = "synthetic"
    nouns: str = "en_core_web_sm-3.6.0"
    goals_per_product: int = 4

    def __post_init__(self) -> None:
        if self.variant not in ("compat", "clean"):
            raise ConfigError(f"variant is {self.variant!r}; {nearest(self.variant, ('compat', 'clean'))}.")
        pages.render(self.mode)
        if self.goals_per_product < 1:
            raise ConfigError(f"goals_per_product is {self.goals_per_product}; at least 1 goal of a product must stay.")
        if self.variant == "clean" and (self.mode != "text" or self.show_attrs):
            raise ConfigError("mode and show_attrs belong to variant=compat; variant=clean has one form of its pages. Leave them out.")
        if self.variant == "clean" and self.goals == "human":
            raise ConfigError(
                "goals=human needs variant=compat: people's goals name bare option values, which variant=clean cannot match by name."
            )


class WebShopDomain:
    """WebShop over a folder of products.

    Splits of `compat`: `test` is goals 0..499 and `train` the rest, as in published work on the 1,000 products; with more than 1,500 goals
    written by people also `eval`, goals 500..1499. Splits of `clean`: `test`, `validation` and `train` share no product.
    """

    def __init__(self, settings: WebShopSettings) -> None:
        self.settings = settings
        colours = colour_words(settings.data) if settings.variant == "compat" else ()
        self.store: Store = open_store(
            settings.data, seed=settings.seed, catalogue=settings.catalogue, goals=settings.goals, nouns=settings.nouns
        )
        self._compat = CompatSettings(settings.mode, colours, settings.show_attrs)
        self._splits = _clean_splits(self.store, settings) if settings.variant == "clean" else _compat_splits(self.store, settings)
        self._tasks: dict[str, tuple[Task, ...]] = {}

    @property
    def splits(self) -> Mapping[str, Sequence[int]]:
        """Split -> the goals in it, by index into `store.goals`."""
        return self._splits

    @cached_property
    def _most_parts(self) -> int:
        return max(len(goal.attributes) + len(goal.options) for goal in self.store.goals)

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """A task of the split drawn by the seed among those of about this difficulty (the number of things asked for, over the most)."""
        tasks = self.tasks(split)
        if not tasks:
            raise ConfigError(
                f"Split {split!r} has no tasks: the catalogue makes {len(self.store.goals)} goals, and the test split takes {_NUM_TEST}."
            )
        nearest_by = max(_NEAR, min(abs(task.difficulty - difficulty) for task in tasks))
        near = [task for task in tasks if abs(task.difficulty - difficulty) <= nearest_by]
        return near[int(generator("webshop", split, seed).integers(len(near)))]

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self._splits:
            raise ConfigError(f"WebShop ({self.settings.variant}) has no split {split!r}; {nearest(split, self._splits)}.")
        if split not in self._tasks:
            self._tasks[split] = tuple(self._task(goal, split) for goal in self._splits[split])
        return self._tasks[split]

    def goal_task(self, index: int) -> Task:
        """The task of a goal by its index, whatever its split."""
        split = next((name for name, goals in self._splits.items() if index in goals), "unused")
        return self._task(index, split)

    def environment(self, task: Task, member: int) -> CompatEnvironment | CleanEnvironment:
        goal = self._goal_of(task)
        return CleanEnvironment(self.store, goal) if self.settings.variant == "clean" else CompatEnvironment(self.store, goal, self._compat)

    def replayed(self, goal: int, settings: CompatSettings) -> CompatEnvironment | CleanEnvironment:
        """An environment for a goal with other settings of `compat` (`clean` has none)."""
        return CleanEnvironment(self.store, goal) if self.settings.variant == "clean" else CompatEnvironment(self.store, goal, settings)

    @property
    def compat_settings(self) -> CompatSettings:
        """How `compat` shows itself here."""
        return self._compat

    def grade(self, episode: Episode) -> Verdict:
        """The reward of the purchase, 0 without one; success is a reward of 1."""
        bought = bool(episode.turns) and episode.turns[-1].reply.done
        return Verdict.of(episode.turns[-1].reply.reward if bought else 0.0)

    def expert(self, task: Task) -> Sequence[Action] | None:
        """Actions that are worth 1, or None: 458 of the original's 6,910 goals cannot be met, as colour words hide their options."""
        goal = self.store.goals[self._goal_of(task)]
        plan = clean_oracle(self.store, goal) if self.settings.variant == "clean" else compat_oracle(self.store, goal)
        return plan if plan and play(self.environment(task, 0), scripted(plan), len(plan)).reward == 1 else None

    def _task(self, index: int, split: str) -> Task:
        goal = self.store.goals[index]
        parts = len(goal.attributes) + len(goal.options)
        difficulty = (parts - 1) / (self._most_parts - 1) if self._most_parts > 1 else 0.0
        return Task(f"webshop/{self.settings.variant}/{index}", goal.instruction, max(difficulty, 0.0), split, {"goal": index})

    def _goal_of(self, task: Task) -> int:
        goal = task.payload.get("goal")
        if not isinstance(goal, int) or not 0 <= goal < len(self.store.goals) or self.store.goals[goal].instruction != task.prompt:
            raise ConfigError(f"Task {task.key!r} is not of this shop; it was made with other data, goals or seed.")
        return goal


def _compat_splits(store: Store, settings: WebShopSettings) -> dict[str, Sequence[int]]:
    total = len(store.goals)
    splits: dict[str, Sequence[int]] = {"test": range(min(_NUM_TEST, total))}
    if settings.goals == "human" and total > _NUM_TEST + _NUM_EVAL:
        splits["eval"] = range(_NUM_TEST, _NUM_TEST + _NUM_EVAL)
    return splits | {"train": range(sum(map(len, splits.values())), total)}


def _clean_splits(store: Store, settings: WebShopSettings) -> dict[str, Sequence[int]]:
    """Goals split by product, at most `goals_per_product` of each, no goal twice."""
    goals_of: dict[str, dict[tuple[tuple[str, str], ...], int]] = {}
    for index, goal in enumerate(store.goals):
        goals_of.setdefault(goal.asin, {}).setdefault(goal.options, index)
    asins = sorted(goals_of)
    rng = generator("webshop", "clean", settings.seed)
    order = [asins[i] for i in rng.permutation(len(asins)).tolist()]
    kept: dict[str, list[int]] = {}
    for asin in order:
        goals = list(goals_of[asin].values())
        kept[asin] = sorted(goals[i] for i in rng.permutation(len(goals))[: settings.goals_per_product].tolist())
    splits: dict[str, Sequence[int]] = {}
    start = 0
    for name, share in _CLEAN_SHARES.items():
        stop = start + round(share * len(order))
        splits[name] = [goal for asin in order[start:stop] for goal in kept[asin]]
        start = stop
    return splits | {"train": [goal for asin in order[start:] for goal in kept[asin]]}
