"""Seeded catalogues of any size, held as arrays; titles and pages are rendered when they are looked at.

Legend of shape suffixes: P product, K attribute of a product, O option slot of a product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepwell.envs.shop.words import DEPARTMENTS, OPTION_VALUES, brand_names
from stepwell.errors import ConfigError
from stepwell.seeding import generator

__all__ = ["Catalogue", "Product"]

MAX_PRODUCTS = 5_000_000
NUM_ATTRIBUTES = 4
NUM_SHOWN = 3
"""The title shows so many of a product's attributes; the others stand on its page only (the search finds them all the same)."""
MAX_VALUES = 4
"""A product comes in at most so many values of an option."""
PRICE_STEP = 5
MAX_PRICE = 95
SOLD_OUT_PRODUCTS = 0.03
SOLD_OUT_VALUES = 0.06
BRANDS_FROM = 20_000
"""Catalogues of at least so many products have brands, one for every 100 products; a task there always names the brand."""
_CHUNK = 100_000


class Product(NamedTuple):
    """One product, rendered. `shown` are the attributes in the title, `hidden` those on the page only."""

    type: str
    department: str
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    price: int
    options: tuple[tuple[str, tuple[str, ...]], ...]
    """(name, values in stock) for each option that the product has."""
    sold_out: tuple[tuple[str, str], ...]
    """(name, value) pairs that exist but are out of stock."""
    stock: int

    @property
    def title(self) -> str:
        return " ".join((*self.shown, self.type))

    @property
    def attributes(self) -> tuple[str, ...]:
        return self.shown + self.hidden

    def offers(self, name: str, value: str) -> bool:
        """Whether this option value can be bought."""
        return any(name == other and value in values for other, values in self.options)


@dataclass(frozen=True, slots=True, eq=False)
class Catalogue:
    """Products as arrays: about 30 bytes each.

    Attributes:
        type_P: Index into `types`.
        attributes_PK: Indices into `attribute_words`, distinct within a product; the first `num_shown` stand in the title.
        price_P: Whole dollars, a multiple of 5 from 5 to 95.
        offered_PO: Bit v is set where the product comes in value v of its department's option o.
        in_stock_PO: The bits of `offered_PO` that can be bought.
        stock_P: Pieces at hand, 0 is sold out.
    """

    seed: int
    types: tuple[str, ...]
    departments: tuple[str, ...]
    """Department of each type."""
    options: tuple[tuple[str, ...], ...]
    """Option names of each type."""
    attribute_words: tuple[str, ...]
    num_shown: int
    num_brands: int
    type_P: NDArray[np.int16]
    attributes_PK: NDArray[np.int16]
    price_P: NDArray[np.int16]
    offered_PO: NDArray[np.uint16]
    in_stock_PO: NDArray[np.uint16]
    stock_P: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.type_P)

    @classmethod
    def generate(cls, size: int, seed: int) -> Catalogue:
        """A catalogue of `size` products; equal arguments give equal catalogues.

        Small catalogues use few words: 4 kinds of product and 10 attributes per department up to 1,000 products, all 8 and 16 from 5,000.

        Raises:
            ConfigError: `size` is below 50 or above five million.
        """
        if not 50 <= size <= MAX_PRODUCTS:
            raise ConfigError(f"The shop has {size} products; allowed are 50 to {MAX_PRODUCTS}.")
        rng = generator("shop catalogue", seed, size)
        num_types = 4 if size <= 1_000 else 6 if size < 5_000 else 8
        pool = 10 if size <= 1_000 else 13 if size < 5_000 else 16
        brands = brand_names(size // 100, rng) if size >= BRANDS_FROM else ()
        words = (*brands, *(word for d in DEPARTMENTS for word in d.attributes[:pool]))
        type_P = rng.integers(len(DEPARTMENTS) * num_types, size=size).astype(np.int16)
        parts = [_draw(rng, type_P[at : at + _CHUNK] // num_types, pool, len(brands)) for at in range(0, size, _CHUNK)]
        attributes_PK, offered_PO, in_stock_PO = (np.concatenate([part[i] for part in parts]) for i in range(3))
        stock_P = rng.integers(1, 21, size=size) * (rng.random(size) >= SOLD_OUT_PRODUCTS)
        return cls(
            seed=seed,
            types=tuple(name for d in DEPARTMENTS for name in d.types[:num_types]),
            departments=tuple(d.name for d in DEPARTMENTS for _ in range(num_types)),
            options=tuple(d.options for d in DEPARTMENTS for _ in range(num_types)),
            attribute_words=words,
            num_shown=NUM_SHOWN + bool(brands),
            num_brands=len(brands),
            type_P=type_P,
            attributes_PK=attributes_PK.astype(np.int16),
            price_P=(PRICE_STEP * rng.integers(1, MAX_PRICE // PRICE_STEP + 1, size=size)).astype(np.int16),
            offered_PO=offered_PO.astype(np.uint16),
            in_stock_PO=in_stock_PO.astype(np.uint16),
            stock_P=stock_P.astype(np.int16),
        )

    def product(self, index: int) -> Product:
        """The product at this place, rendered."""
        kind = int(self.type_P[index])
        names = [self.attribute_words[i] for i in self.attributes_PK[index].tolist()]
        options, sold_out = [], []
        stocks = zip(self.options[kind], self.offered_PO[index].tolist(), self.in_stock_PO[index].tolist(), strict=True)
        for name, offered, in_stock in stocks:
            values = OPTION_VALUES[name]
            here = tuple(value for v, value in enumerate(values) if in_stock >> v & 1)
            sold_out += [(name, value) for v, value in enumerate(values) if (offered & ~in_stock) >> v & 1]
            if here:
                options.append((name, here))
        return Product(
            type=self.types[kind],
            department=self.departments[kind],
            shown=tuple(names[: self.num_shown]),
            hidden=tuple(names[self.num_shown :]),
            price=int(self.price_P[index]),
            options=tuple(options),
            sold_out=tuple(sold_out),
            stock=int(self.stock_P[index]),
        )

    def documents(self) -> Iterator[list[str]]:
        """What the search index reads of each product, in order: type, attributes (hidden ones too) and the values of its options."""
        values = [
            [_values_of(name) for name in names]  # one table per type and option slot: mask -> words
            for names in self.options
        ]
        words = self.attribute_words
        for at in range(0, len(self), _CHUNK):
            here = slice(at, at + _CHUNK)
            columns = zip(self.type_P[here].tolist(), self.attributes_PK[here].tolist(), self.offered_PO[here].tolist(), strict=True)
            for kind, attributes, masks in columns:
                document = [words[i] for i in attributes]
                document.append(self.types[kind])
                for table, mask in zip(values[kind], masks, strict=True):
                    document += table[mask]
                yield document


def _values_of(name: str) -> list[list[str]]:
    """mask -> the option values whose bits are set."""
    values = OPTION_VALUES[name]
    return [[value for v, value in enumerate(values) if mask >> v & 1] for mask in range(1 << len(values))]


def _draw(
    rng: np.random.Generator, department_P: NDArray[np.int16], pool: int, num_brands: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Attributes [P, K], offered masks [P, O] and masks in stock [P, O] of one chunk of products."""
    size = len(department_P)
    picks_PK = np.argsort(rng.random((size, pool), dtype=np.float32), axis=1)[:, :NUM_ATTRIBUTES]
    attributes_PK = num_brands + department_P[:, None].astype(np.int64) * pool + picks_PK
    if num_brands:
        attributes_PK = np.concatenate([rng.integers(num_brands, size=(size, 1)), attributes_PK], axis=1)
    num_slots = max(len(d.options) for d in DEPARTMENTS)
    offered_PO = np.zeros((size, num_slots), np.int64)
    in_stock_PO = np.zeros((size, num_slots), np.int64)
    for slot in range(num_slots):
        widths_P = np.array([len(OPTION_VALUES[d.options[slot]]) for d in DEPARTMENTS])[department_P]
        width = int(widths_P.max())
        keys = np.where(np.arange(width) < widths_P[:, None], rng.random((size, width), dtype=np.float32), 2.0)
        ranks = np.argsort(np.argsort(keys, axis=1), axis=1)
        count_P = rng.integers(2, MAX_VALUES + 1, size=size)
        chosen = ranks < np.minimum(count_P, widths_P)[:, None]
        kept = chosen & (rng.random((size, width), dtype=np.float32) >= SOLD_OUT_VALUES)
        bits = 1 << np.arange(width)
        offered_PO[:, slot], in_stock_PO[:, slot] = chosen @ bits, kept @ bits
    return attributes_PK, offered_PO, in_stock_PO
