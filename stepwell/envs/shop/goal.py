"""What a shopper wants, and what a purchase is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stepwell.envs.shop.catalogue import Product
from stepwell.errors import ConfigError
from stepwell.types import JSON, Task

__all__ = ["Goal", "Grade", "Offer"]


class Grade(NamedTuple):
    """What a purchase is worth, part by part."""

    type: float
    """1.0 for the type asked for, 0.5 for another type of the same department, 0.0 else."""
    num_attributes: int
    """Attributes asked for that the product has."""
    num_options: int
    """Options asked for that were chosen."""
    price: bool | None
    """Whether the price is under the limit; None where there is no limit."""
    num_wanted: int
    """Attributes, options and limits asked for."""

    @property
    def reward(self) -> float:
        """`type * matched / wanted`, in [0, 1]; 1.0 exactly where everything matches."""
        return self.type * (self.num_attributes + self.num_options + bool(self.price)) / self.num_wanted


class Offer(NamedTuple):
    """What can be bought, with the options that match the wish, and what it is worth."""

    product: int
    options: tuple[tuple[str, str], ...]
    reward: float


@dataclass(frozen=True, slots=True)
class Goal:
    """A wanted product.

    Attributes:
        limit: The price must be below it; None is any price.
        query: Attributes and type as one searches for them, in the order of the instruction.
        target: A product that is worth 1.0 (there may be others).
        states_limit: Whether the instruction says the limit. Where it does not, the cheapest product that fits is under it.
    """

    type: str
    department: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    limit: int | None
    query: tuple[str, ...]
    target: int
    states_limit: bool = True

    def __post_init__(self) -> None:
        if not self.attributes:
            raise ConfigError("A shop goal asks for no attribute; it needs at least 1.")

    @property
    def num_wanted(self) -> int:
        return len(self.attributes) + len(self.options) + (self.limit is not None)

    def accepts(self, product: Product) -> bool:
        """Whether buying this product, with the right options chosen, is worth 1.0."""
        return (
            product.stock > 0
            and product.type == self.type
            and (self.limit is None or product.price < self.limit)
            and all(word in product.attributes for word in self.attributes)
            and all(product.offers(name, value) for name, value in self.options)
        )

    def grade(self, product: Product, chosen: Mapping[str, str]) -> Grade:
        """What buying this product with these options chosen is worth.

        ```
        reward = type * (attributes matched + options matched + [price under the limit]) / (attributes + options + [limit])
        ```

        As in WebShop (arXiv 2207.01206, section 3.1).
        Differs from the paper: the price counts only where the goal has a limit; the type match is by type and department of the
        catalogue, not by words of the title; options match by equality of name and value.
        """
        return Grade(
            type=1.0 if product.type == self.type else 0.5 if product.department == self.department else 0.0,
            num_attributes=sum(word in product.attributes for word in self.attributes),
            num_options=sum(chosen.get(name) == value for name, value in self.options),
            price=None if self.limit is None else product.price < self.limit,
            num_wanted=self.num_wanted,
        )

    def payload(self) -> dict[str, JSON]:
        """The goal as a task's payload."""
        unsaid: dict[str, JSON] = {} if self.states_limit else {"states_limit": False}
        return {
            "type": self.type,
            "department": self.department,
            "attributes": list(self.attributes),
            "options": [list(pair) for pair in self.options],
            "limit": self.limit,
            "query": list(self.query),
            "target": self.target,
            **unsaid,
        }

    @classmethod
    def of(cls, task: Task) -> Goal:
        """The goal in a task's payload.

        Raises:
            ConfigError: The payload is not that of a task of this shop.
        """
        payload = task.payload
        limit, target = payload.get("limit"), payload.get("target")
        options = [_strings(task, "options", pair) for pair in _list(task, "options")]
        if not (limit is None or isinstance(limit, int)) or not isinstance(target, int) or any(len(pair) != 2 for pair in options):
            raise _not_ours(task, "limit, target or options")
        type_, department = _strings(task, "type and department", [payload.get("type"), payload.get("department")])
        return cls(
            type=type_,
            department=department,
            attributes=_strings(task, "attributes", _list(task, "attributes")),
            options=tuple((name, value) for name, value in options),
            limit=limit,
            query=_strings(task, "query", _list(task, "query")),
            target=target,
            states_limit=payload.get("states_limit") is not False,
        )


def _list(task: Task, key: str) -> Sequence[JSON]:
    value = task.payload.get(key)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _not_ours(task, key)
    return value


def _strings(task: Task, key: str, value: JSON) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _not_ours(task, key)
    words = tuple(word for word in value if isinstance(word, str))
    if len(words) != len(value):
        raise _not_ours(task, key)
    return words


def _not_ours(task: Task, key: str) -> ConfigError:
    return ConfigError(
        f"Task {task.key!r} is no task of the generated shop: its payload has no usable {key}; take tasks from ShopDomain.task."
    )
