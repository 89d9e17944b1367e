"""A catalogue with its search: what the shop's pages are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from stepwell.envs.shop.catalogue import Catalogue, Product
from stepwell.envs.shop.goal import Goal, Offer
from stepwell.envs.shop.index import Index

__all__ = ["FILTER_DEPTH", "MAX_RESULTS", "NO_FILTERS", "PAGE_SIZE", "Filters", "Memo", "Shelves", "Store", "product_page", "results_page"]

PAGE_SIZE = 4
MAX_RESULTS = 40
FILTER_DEPTH = 1_000
"""Filters look at so many best hits."""
_CACHE = 50_000


class Filters(NamedTuple):
    """What every result must satisfy."""

    under: int | None = None
    options: tuple[tuple[str, str], ...] = ()

    def admit(self, product: Product) -> bool:
        return (self.under is None or product.price < self.under) and all(product.offers(name, value) for name, value in self.options)

    def __str__(self) -> str:
        price = () if self.under is None else (f"price under {self.under}",)
        return " ".join((*price, *(f"{name} {value}" for name, value in self.options)))


NO_FILTERS = Filters()


Memo = dict[tuple[str, Goal], Offer | None]


class Shelves(Protocol):
    """What a shop's pages are made of: a `Store`, or one in which something has changed."""

    @property
    def catalogue(self) -> Catalogue: ...
    @property
    def memo(self) -> Memo:
        """What an oracle has found out about these shelves."""
        ...

    def product(self, index: int) -> Product: ...
    def search(self, words: Sequence[str], filters: Filters = NO_FILTERS) -> tuple[int, ...]: ...
    def results_text(self, found: Sequence[int], page: int) -> str: ...
    def product_text(self, index: int) -> str: ...


class Store:
    """A catalogue and its index. Rendered products and search results are kept in bounded caches; answers do not depend on them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._index = Index(catalogue.documents())
        self._products: dict[int, Product] = {}
        self._found: dict[tuple[tuple[str, ...], Filters], tuple[int, ...]] = {}
        self._pages: dict[int, str] = {}
        self._memo: Memo = {}

    @property
    def memo(self) -> Memo:
        if len(self._memo) >= _CACHE:
            self._memo.clear()
        return self._memo

    def product(self, index: int) -> Product:
        product = self._products.get(index)
        if product is None:
            if len(self._products) >= _CACHE:
                self._products.clear()
            product = self._products[index] = self.catalogue.product(index)
        return product

    def search(self, words: Sequence[str], filters: Filters = NO_FILTERS) -> tuple[int, ...]:
        """The best 40 products for these words that pass the filters, best first.

        BM25 over type, attributes and option values; ties by place in the catalogue. Filters are applied to the best 1,000 hits.
        """
        key = (tuple(words), filters)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _CACHE:
                self._found.clear()
            found = self._found[key] = self._search(key[0], filters)
        return found

    def _search(self, words: tuple[str, ...], filters: Filters) -> tuple[int, ...]:
        hits = self.hits(words, MAX_RESULTS if filters == NO_FILTERS else FILTER_DEPTH)
        if filters != NO_FILTERS:
            hits = [hit for hit in hits if filters.admit(self.product(hit))][:MAX_RESULTS]
        return tuple(hits)

    def hits(self, words: Sequence[str], number: int) -> list[int]:
        """The best `number` products for these words, best first, whatever the filters."""
        found: list[int] = self._index.search(tuple(words), number).ids.tolist()
        return found

    def results_text(self, found: Sequence[int], page: int) -> str:
        """One page of results: a slot, title and price in each line; `next` where there are more."""
        return results_page([self.product(index) for index in found[page * PAGE_SIZE : (page + 1) * PAGE_SIZE + 1]])

    def product_text(self, index: int) -> str:
        """A product's page."""
        text = self._pages.get(index)
        if text is None:
            if len(self._pages) >= _CACHE:
                self._pages.clear()
            text = self._pages[index] = product_page(self.product(index))
        return text


def results_page(products: Sequence[Product]) -> str:
    """The first four of these products as a page of results, with `next` where there are more."""
    lines = []
    for slot, product in enumerate(products[:PAGE_SIZE], start=1):
        lines.append(f"p{slot} {product.title} {product.price}" + ("" if product.stock else " sold out"))
    if len(products) > PAGE_SIZE:
        lines.append("next")
    return "\n".join(lines) if lines else "no results"


def product_page(product: Product) -> str:
    """A product's page."""
    lines = [f"{product.title} {product.price}", f"also {' '.join(product.hidden)}"]
    lines += [f"{name} {' '.join(values)}" for name, values in product.options]
    lines += [f"sold out {name} {value}" for name, value in product.sold_out]
    if not product.stock:
        lines.append("sold out")
    return "\n".join(lines)
