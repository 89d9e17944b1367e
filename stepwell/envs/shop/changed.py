"""A store in which something has changed since the catalogue was printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from stepwell.envs.shop.catalogue import Catalogue, Product
from stepwell.envs.shop.store import FILTER_DEPTH, MAX_RESULTS, NO_FILTERS, PAGE_SIZE, Filters, Memo, Store, product_page, results_page

__all__ = ["ChangedStore", "Shift", "Views"]

_KEPT = 4_096


class Shift(NamedTuple):
    """One change.

    Attributes:
        what: `price`; `stock` (sold out); `option` (one value sold out); `listing` (searches do not list it); `search` (all are empty).
        product: Of which product.
        price: The new price.
        option: Name and value.
    """

    what: Literal["price", "stock", "option", "listing", "search"]
    product: int = -1
    price: int = 0
    option: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class _View:
    """What is known of the shop under some changes; shared by all visits that see the same ones."""

    products: dict[int, Product]
    gone: frozenset[int]
    is_down: bool
    found: dict[tuple[tuple[str, ...], Filters], tuple[int, ...]] = field(default_factory=dict)
    memo: Memo = field(default_factory=dict)


class Views:
    """A store and the shapes that it has under changes; answers do not depend on what is kept."""

    def __init__(self, base: Store) -> None:
        self.base = base
        self._views: dict[tuple[Shift, ...], _View] = {}

    def under(self, shifts: tuple[Shift, ...]) -> _View:
        """The shop under these changes, made in this order."""
        view = self._views.get(shifts)
        if view is None:
            if len(self._views) >= _KEPT:
                self._views.clear()
            products: dict[int, Product] = {}
            for shift in shifts:
                if shift.product >= 0:
                    products[shift.product] = _shifted(products.get(shift.product, self.base.product(shift.product)), shift)
            gone = frozenset(shift.product for shift in shifts if shift.what == "listing")
            view = self._views[shifts] = _View(products, gone, any(shift.what == "search" for shift in shifts))
        return view


class ChangedStore:
    """A store seen through changes; the store itself stays as it is. Without changes it answers as the store does."""

    def __init__(self, views: Views, shifts: tuple[Shift, ...] = ()) -> None:
        self._views, self._shifts = views, shifts
        self._view = views.under(shifts)

    @property
    def catalogue(self) -> Catalogue:
        return self._views.base.catalogue

    @property
    def memo(self) -> Memo:
        return self._view.memo if self._shifts else self._views.base.memo

    @property
    def is_down(self) -> bool:
        """Whether searches find nothing at present."""
        return self._view.is_down

    def add(self, shift: Shift) -> None:
        """Something changes."""
        self._set((*self._shifts, shift))

    def remove(self, shift: Shift) -> None:
        """A change is over; nothing where it has not been made."""
        at = next((n for n, other in enumerate(self._shifts) if other == shift), None)
        if at is not None:
            self._set((*self._shifts[:at], *self._shifts[at + 1 :]))

    def _set(self, shifts: tuple[Shift, ...]) -> None:
        self._shifts, self._view = shifts, self._views.under(shifts)

    def twin(self) -> ChangedStore:
        """The same store; what changes in one does not change in the other."""
        return ChangedStore(self._views, self._shifts)

    def product(self, index: int) -> Product:
        return self._view.products.get(index) or self._views.base.product(index)

    def search(self, words: Sequence[str], filters: Filters = NO_FILTERS) -> tuple[int, ...]:
        """As the store's, over products as they are now."""
        view = self._view
        if view.is_down:
            return ()
        if not self._shifts:
            return self._views.base.search(words, filters)
        key = (tuple(words), filters)
        found = view.found.get(key)
        if found is None:
            depth = (MAX_RESULTS if filters == NO_FILTERS else FILTER_DEPTH) + len(view.gone)
            hits = [hit for hit in self._views.base.hits(words, depth) if hit not in view.gone]
            found = view.found[key] = tuple(hit for hit in hits if filters.admit(self.product(hit)))[:MAX_RESULTS]
        return found

    def results_text(self, found: Sequence[int], page: int) -> str:
        return results_page([self.product(index) for index in found[page * PAGE_SIZE : (page + 1) * PAGE_SIZE + 1]])

    def product_text(self, index: int) -> str:
        changed = self._view.products.get(index)
        return self._views.base.product_text(index) if changed is None else product_page(changed)


def _shifted(product: Product, shift: Shift) -> Product:
    if shift.what == "price":
        return product._replace(price=shift.price)
    if shift.what == "stock":
        return product._replace(stock=0)
    if shift.what == "option" and product.offers(*shift.option):
        name, gone = shift.option
        left = [(other, tuple(v for v in values if (other, v) != (name, gone))) for other, values in product.options]
        return product._replace(options=tuple(pair for pair in left if pair[1]), sold_out=(*product.sold_out, shift.option))
    return product
