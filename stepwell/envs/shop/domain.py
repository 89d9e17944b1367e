"""The generated shop as a domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from stepwell.envs.shop.axes import FREE, FixedAxes
from stepwell.envs.shop.catalogue import MAX_PRICE, PRICE_STEP, Catalogue
from stepwell.envs.shop.expert import plan
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.players import RulePlayer
from stepwell.envs.shop.shop import Shop
from stepwell.envs.shop.store import Store
from stepwell.envs.shop.tasks import Maker
from stepwell.envs.shop.words import OPTION_VALUES, PLAIN_WORDS, SYNONYMS
from stepwell.envs.splits import FiniteSplits
from stepwell.errors import ConfigError, nearest
from stepwell.protocols import Environment
from stepwell.seeding import generator
from stepwell.types import Action, Episode, Invalid, Task, Verdict

__all__ = ["NO_HASTE", "ShopDomain", "Visit", "check_settings", "distinct_tasks", "option_of", "potentials", "words_of"]

NO_HASTE: Mapping[str, float] = MappingProxyType({})


class Visit(Environment, Protocol):
    """An environment that knows how near its end it is."""

    def potential(self) -> float:
        """In [0, 1]."""
        ...


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
        check_settings(difficulty, num_test_tasks, expert_haste)
        self.difficulty = (float(difficulty[0]), float(difficulty[1]))
        self.expert_haste = dict(expert_haste)
        self.store = Store(Catalogue.generate(products, seed))
        self._maker = Maker(self.store, axes)
        self._splits = FiniteSplits("The shop has", lambda split: distinct_tasks(self.draw, split, num_test_tasks, products))

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """All words and numbers of instructions, pages and expert, sorted: what a word-level tokenizer needs, but for punctuation."""
        return tuple(sorted(words_of(self.store.catalogue)))

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """The task of this difficulty (in [0, 1], whatever the domain's range), seed and split."""
        return self._maker.task(difficulty, seed, split)

    def draw(self, seed: int, split: str = "train") -> Task:
        """The task of this seed, its difficulty drawn from the domain's range."""
        low, high = self.difficulty
        return self._maker.task(round(float(generator("shop difficulty", split, seed).uniform(low, high)), 4), seed, split)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `test` or `validation`, no two alike; none of `train`, whose tasks are generated without end."""
        return self._splits(split)

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
        hasty = next((n for n, action in enumerate(done.actions) if rng.random() < self.expert_haste.get(option_of(action), 0.0)), None)
        return done.actions if hasty is None else [*done.actions[:hasty], Action("buy")]

    def rule_player(self, task: Task) -> RulePlayer:
        """A player that reads only what is shown and never goes back: a baseline without learning."""
        return RulePlayer(task.prompt, self.store.catalogue)

    def progress(self, task: Task, actions: Sequence[Action | Invalid], member: int = 0) -> list[float]:
        """`Shop.potential` at the start and after each action: what a judge that knows everything would say."""
        return potentials(self.environment(task, member), actions)


def potentials(visit: Visit, actions: Sequence[Action | Invalid]) -> list[float]:
    """How near its end a visit is at the start and after each action."""
    visit.start()
    found = [visit.potential()]
    for action in actions:
        visit.step(action)
        found.append(visit.potential())
    return found


def option_of(action: Action) -> str:
    """The name of the option that the action chooses a value of, or ""."""
    name = action.arguments["element"].split(" ")[0] if action.name == "click" else ""
    return name if name in OPTION_VALUES else ""


def check_settings(difficulty: tuple[float, float], num_test_tasks: int, expert_haste: Mapping[str, float]) -> None:
    """Raises `ConfigError` where one of these settings of a shop is out of range."""
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


def words_of(catalogue: Catalogue) -> set[str]:
    """All words and numbers of a shop's instructions, pages and expert."""
    numbers = {str(n) for n in (*range(PRICE_STEP, MAX_PRICE + 1, PRICE_STEP), *range(10, MAX_PRICE + 21, 10))}
    options = {word for names in catalogue.options for name in names for word in (name, *OPTION_VALUES[name])}
    synonyms = {SYNONYMS[word] for word in catalogue.attribute_words if word in SYNONYMS}
    return {*PLAIN_WORDS, *catalogue.types, *catalogue.attribute_words, *options, *synonyms, *numbers}


def distinct_tasks(draw: Callable[[int, str], Task], split: str, number: int, products: int) -> tuple[Task, ...]:
    """The first `number` tasks that are drawn for a split, by their seeds, and whose instructions differ.

    Raises:
        ConfigError: The catalogue of so many products has fewer.
    """
    found: dict[str, Task] = {}
    for seed in range(20 * number + 1):
        task = draw(seed, split)
        found.setdefault(task.prompt, task)
        if len(found) == number:
            return tuple(found.values())
    raise ConfigError(
        f"The shop of {products} products has only {len(found)} different tasks to test on; "
        f"{number} are wanted: ask for fewer test_tasks, or for more products."
    )
