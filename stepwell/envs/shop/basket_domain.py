"""Shopping lists as a domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.envs.shop.axes import FREE, FixedAxes
from stepwell.envs.shop.basket import BasketShop, ShoppingList
from stepwell.envs.shop.catalogue import MAX_PRICE, PRICE_STEP, Catalogue
from stepwell.envs.shop.domain import NO_HASTE, check_settings, distinct_tasks, option_of, potentials, words_of
from stepwell.envs.shop.lists import ListMaker, list_plan
from stepwell.envs.shop.store import Store
from stepwell.envs.splits import FiniteSplits
from stepwell.errors import ConfigError
from stepwell.seeding import generator
from stepwell.types import Action, Episode, Invalid, Task, Verdict

__all__ = ["BasketDomain"]

_WORDS = (
    *("then", "total", "order", "orders", "return", "checkout", "ordered", "returned", "left", "dollars", "too", "expensive"),
    *(f"o{n}" for n in range(1, 10)),
)


class BasketDomain:
    """Shopping lists in a generated shop: 2 to 6 products under one budget, about 7 to 30 turns, paid 1 or 0 at the end.

    Args:
        products: Size of the catalogue, 50 to five million.
        seed: Of catalogue and tasks.
        difficulty: Range from which `draw` and the finite splits take difficulties, within [0, 1].
        num_test_tasks: Length of `tasks("test")` and of `tasks("validation")`.
        items: Fewest and most products of a list; None is by difficulty (see `ListMaker`).
        fee: Dollars that a returned order costs.
        expert_haste: Probability with which the scripted expert orders without having chosen an option, by the option's name.
        expert_forgets: Probability with which it takes the list for done after an order, asked anew before each item but the first, and
            checks out: a mistake that no list forgives, whatever it asks for.
        axes: Axes of each item that are not drawn by difficulty.

    >>> domain = BasketDomain(products=300)
    >>> task = domain.task(0.0, seed=3, split="train")
    >>> [action.name for action in domain.expert(task)][-2:]
    ['order', 'checkout']
    """

    def __init__(
        self,
        *,
        products: int = 1_000,
        seed: int = 0,
        difficulty: tuple[float, float] = (0.0, 0.5),
        num_test_tasks: int = 200,
        items: tuple[int, int] | None = None,
        fee: int = PRICE_STEP,
        expert_haste: Mapping[str, float] = NO_HASTE,
        expert_forgets: float = 0.0,
        axes: FixedAxes = FREE,
    ) -> None:
        check_settings(difficulty, num_test_tasks, expert_haste)
        if not 0.0 <= expert_forgets <= 1.0:
            raise ConfigError(f"expert_forgets is {expert_forgets}; a probability lies in [0, 1].")
        self.difficulty = (float(difficulty[0]), float(difficulty[1]))
        self.expert_haste = dict(expert_haste)
        self.expert_forgets = expert_forgets
        self.store = Store(Catalogue.generate(products, seed))
        self._maker = ListMaker(self.store, items, fee, axes)
        self._splits = FiniteSplits("The shop has", lambda split: distinct_tasks(self.draw, split, num_test_tasks, products))

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """All words and numbers of instructions, pages and expert, sorted."""
        money = {str(n) for n in range(0, 6 * (MAX_PRICE + 50) + 1, PRICE_STEP)}
        return tuple(sorted({*words_of(self.store.catalogue), *_WORDS, *money}))

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """The list of this difficulty (in [0, 1], whatever the domain's range), seed and split."""
        return self._maker.task(difficulty, seed, split)

    def draw(self, seed: int, split: str = "train") -> Task:
        """The list of this seed, its difficulty drawn from the domain's range."""
        low, high = self.difficulty
        return self.task(round(float(generator("basket difficulty", split, seed).uniform(low, high)), 4), seed, split)

    def tasks(self, split: str) -> Sequence[Task]:
        """The lists of `test` or `validation`, no two alike; none of `train`, whose lists are generated without end."""
        return self._splits(split)

    def environment(self, task: Task, member: int = 0) -> BasketShop:
        """A visit with the list; all members of a group see the same shop."""
        return BasketShop(task, self.store)

    def grade(self, episode: Episode) -> Verdict:
        """1 for the whole list within the budget, else 0."""
        if episode.failed:
            return Verdict.unscored(episode.ending.reason or "the episode failed")
        return Verdict.of(sum(turn.reply.reward for turn in episode.turns))

    def expert(self, task: Task) -> Sequence[Action]:
        """Actions that earn 1.0 (see `stepwell.envs.shop.lists.pick`), unless this domain's expert is hasty or forgetful on this task."""
        done = list_plan(ShoppingList.of(task).items, self.store)
        if done is None:
            raise ConfigError(f"Task {task.key!r} cannot be solved in this shop; was it made for another catalogue?")
        rng = generator("shop haste", task.key)
        hasty = [action for action in done if rng.random() >= self.expert_haste.get(option_of(action), 0.0)]
        forgets = generator("shop forgets", task.key)
        orders = [n for n, action in enumerate(hasty) if action.name == "order"]
        last = next((n for n in orders[:-1] if forgets.random() < self.expert_forgets), orders[-1])
        return [*hasty[: last + 1], hasty[-1]]

    def progress(self, task: Task, actions: Sequence[Action | Invalid], member: int = 0) -> list[float]:
        """`BasketShop.potential` at the start and after each action: what a judge that knows everything would say."""
        return potentials(self.environment(task, member), actions)
