"""The generated shop as a domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from stepwell.envs.shop.axes import FREE, FixedAxes
from stepwell.envs.shop.catalogue import MAX_PRICE, PRICE_STEP, Catalogue
from stepwell.envs.shop.expert import plan
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.players import RulePlayer
from stepwell.envs.shop.shop import Shop
from stepwell.envs.shop.store import Store
from stepwell.envs.shop.tasks import SPLITS, Maker
from stepwell.envs.shop.words import OPTION_VALUES, PLAIN_WORDS, SYNONYMS
from stepwell.errors import ConfigError, nearest
from stepwell.seeding import generator
from stepwell.types import Action, Episode, Invalid, Task, Verdict

__all__ = ["ShopDomain"]

NO_HASTE: Mapping[str, float] = MappingProxyType({})


class ShopDomain:
    """A generated shop: tasks without end to train on, and a finite list of others to test on.

    Args:
        products: Size of the catalogue, 50 to five million.
        seed: Of catalogue and tasks.
        difficulty: Range from which `draw` and the finite splits take difficulties, within [0, 1].
        num_test_tasks: Length of `tasks("test")` and of `tasks("validation")`.
        expert_haste: Probability with which the scripted expert, before it chooses an option, buys instead, by the option's name (0 for one
            that is not named): demonstrations by a fallible player, whom a policy can learn to surpass. Empty: it always succeeds.
        axes: What every task has, whatever its difficulty: axes of difficulty set one by one.

    Splits are `train`, `validation` and `test`. No two of them ask for the same product, nor for the same type with the same attributes.

    >>> domain = ShopDomain(products=200)
    >>> task = domain.task(0.0, seed=3, split="train")
    >>> [action.name for action in domain.expert(task)][-1]
    'buy'
    """

    def __init__(
        self,
        *,
        products: int = 1_000,
        seed: int = 0,
        difficulty: tuple[float, float] = (0.0, 0.5),
        num_test_tasks: int = 200,
        expert_haste: Mapping[str, float] = NO_HASTE,
        axes: FixedAxes = FREE,
    ) -> None:
        low, high = difficulty
        if not 0.0 <= low <= high <= 1.0:
            raise ConfigError(f"The shop's difficulty is {difficulty}; allowed is a range (low, high) with 0 <= low <= high <= 1.")
        if num_test_tasks < 1:
            raise ConfigError(f"num_test_tasks is {num_test_tasks}; a shop needs at least 1 task to test on.")
        for name, haste in expert_haste.items():
            if name not in OPTION_VALUES:
                raise ConfigError(f"expert_haste names the option {name!r}; {nearest(name, OPTION_VALUES)}")
            if not 0.0 <= haste <= 1.0:
                raise ConfigError(f"expert_haste of {name!r} is {haste}; a probability lies in [0, 1].")
        self.difficulty = (float(low), float(high))
        self.expert_haste = dict(expert_haste)
        self.store = Store(Catalogue.generate(products, seed))
        self._maker = Maker(self.store, axes)
        self._num_test_tasks = num_test_tasks
        self._finite: dict[str, tuple[Task, ...]] = {}

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """All words and numbers of instructions, pages and expert, sorted: what a word-level tokenizer needs, but for punctuation."""
        catalogue = self.store.catalogue
        numbers = {str(n) for n in (*range(PRICE_STEP, MAX_PRICE + 1, PRICE_STEP), *range(10, MAX_PRICE + 21, 10))}
        options = {word for names in catalogue.options for name in names for word in (name, *OPTION_VALUES[name])}
        synonyms = {SYNONYMS[word] for word in catalogue.attribute_words if word in SYNONYMS}
        return tuple(sorted({*PLAIN_WORDS, *catalogue.types, *catalogue.attribute_words, *options, *synonyms, *numbers}))

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """The task of this difficulty (in [0, 1], whatever the domain's range), seed and split."""
        return self._maker.task(difficulty, seed, split)

    def draw(self, seed: int, split: str = "train") -> Task:
        """The task of this seed, its difficulty drawn from the domain's range."""
        low, high = self.difficulty
        return self._maker.task(round(float(generator("shop difficulty", split, seed).uniform(low, high)), 4), seed, split)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `test` or `validation`, no two alike; none of `train`, whose tasks are generated without end."""
        if split not in SPLITS:
            raise ConfigError(f"The shop has no split {split!r}; {nearest(split, SPLITS)}.")
        if split == "train":
            return ()
        if split not in self._finite:
            self._finite[split] = tuple(self._distinct(split))
        return self._finite[split]

    def _distinct(self, split: str) -> Iterator[Task]:
        seen: set[str] = set()
        seed = 0
        while len(seen) < self._num_test_tasks:
            task = self.draw(seed, split)
            if task.prompt not in seen:
                seen.add(task.prompt)
                yield task
            seed += 1
            if seed > 20 * self._num_test_tasks:
                raise ConfigError(
                    f"The shop of {len(self.store.catalogue)} products has only {len(seen)} different tasks to test on; "
                    f"{self._num_test_tasks} are wanted: ask for fewer test_tasks, or for more products."
                )

    def environment(self, task: Task, member: int = 0) -> Shop:
        """A visit to the shop; all members of a group see the same shop."""
        return Shop(task, self.store)

    def grade(self, episode: Episode) -> Verdict:
        """The purchase's reward; 0 where nothing was bought."""
        if episode.failed:
            return Verdict.unscored(episode.ending.reason or "the episode failed")
        return Verdict.of(sum(turn.reply.reward for turn in episode.turns))

    def expert(self, task: Task) -> Sequence[Action]:
        """Actions that earn 1.0 (see `stepwell.envs.shop.expert.plan`), unless this domain's expert is hasty on this task."""
        done = plan(Goal.of(task), self.store)
        if done is None:
            raise ConfigError(f"Task {task.key!r} cannot be solved in this shop; was it made for another catalogue?")
        rng = generator("shop haste", task.key)
        hasty = next((n for n, action in enumerate(done.actions) if rng.random() < self.expert_haste.get(_option(action), 0.0)), None)
        return done.actions if hasty is None else [*done.actions[:hasty], Action("buy")]

    def rule_player(self, task: Task) -> RulePlayer:
        """A player that reads only what is shown and never goes back: a baseline without learning."""
        return RulePlayer(task.prompt, self.store.catalogue)

    def progress(self, task: Task, actions: Sequence[Action | Invalid]) -> list[float]:
        """`Shop.potential` at the start and after each action: what a judge that knows everything would say."""
        shop = self.environment(task)
        shop.start()
        potentials = [shop.potential()]
        for action in actions:
            shop.step(action)
            potentials.append(shop.potential())
        return potentials


def _option(action: Action) -> str:
    """The name of the option that the action chooses a value of, or ""."""
    name = action.arguments["element"].split(" ")[0] if action.name == "click" else ""
    return name if name in OPTION_VALUES else ""
