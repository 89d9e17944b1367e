"""A catalogue with its search: what the shop's pages are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepwell.envs.shop.catalogue import Catalogue, Product
from stepwell.envs.shop.index import Index

__all__ = ["NO_FILTERS", "PAGE_SIZE", "Filters", "Store"]

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


class Store:
    """A catalogue and its index. Rendered products and search results are kept in bounded caches; answers do not depend on them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._index = Index(catalogue.documents())
        self._products: dict[int, Product] = {}
        self._found: dict[tuple[tuple[str, ...], Filters], tuple[int, ...]] = {}
        self._pages: dict[int, str] = {}

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
        hits: list[int] = self._index.search(words, MAX_RESULTS if filters == NO_FILTERS else FILTER_DEPTH).ids.tolist()
        if filters != NO_FILTERS:
            hits = [hit for hit in hits if filters.admit(self.product(hit))][:MAX_RESULTS]
        return tuple(hits)

    def results_text(self, found: Sequence[int], page: int) -> str:
        """One page of results: a slot, title and price in each line; `next` where there are more."""
        lines = []
        for slot, index in enumerate(found[page * PAGE_SIZE : (page + 1) * PAGE_SIZE], start=1):
            product = self.product(index)
            lines.append(f"p{slot} {product.title} {product.price}" + ("" if product.stock else " sold out"))
        if len(found) > (page + 1) * PAGE_SIZE:
            lines.append("next")
        return "\n".join(lines) if lines else "no results"

    def product_text(self, index: int) -> str:
        """A product's page."""
        text = self._pages.get(index)
        if text is None:
            if len(self._pages) >= _CACHE:
                self._pages.clear()
            text = self._pages[index] = _product_text(self.product(index))
        return text


def _product_text(product: Product) -> str:
    lines = [f"{product.title} {product.price}", f"also {' '.join(product.hidden)}"]
    lines += [f"{name} {' '.join(values)}" for name, values in product.options]
    lines += [f"sold out {name} {value}" for name, value in product.sold_out]
    if not product.stock:
        lines.append("sold out")
    return "\n".join(lines)
