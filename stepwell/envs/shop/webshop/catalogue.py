"""WebShop's products: raw records cleaned as the original cleans them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stepwell.envs.shop.webshop.files import stream_array, stream_object
from stepwell.errors import DataError
from stepwell.types import JSON

__all__ = ["Product", "load_products", "products_of"]

_NO_PRICE = (100.0,)
_NOT_A_NUMBER = re.compile(r"[^0-9.]")


@dataclass(frozen=True, slots=True)
class Product:
    """One product.

    Attributes:
        asin: Its key, at most 10 characters.
        query: The search phrase under which it was found, lower-case.
        path: The levels of its product category, from the widest.
        prices: One number, or the two ends of a range; its actual price is drawn between them.
        price_tag: What the shop shows.
        options: Option name -> values to choose from, lower-case, in the order shown.
        attributes: What it is said to be ("water resistant"); what goals ask for.
        instruction: The text of its synthetic goals, "" where it has none.
        wanted: Of the attributes, those that the instruction asks for.
    """

    asin: str
    title: str
    category: str
    query: str
    product_category: str
    path: frozenset[str]
    description: str
    bullets: tuple[str, ...]
    prices: tuple[float, ...]
    price_tag: str
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    instruction: str
    wanted: tuple[str, ...]

    @property
    def indexed_text(self) -> str:
        """What the search index holds: title, description, first bullet, options; lower-case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return f"{self.title} {self.description} {self.bullets[0] if self.bullets else ''} {options}".lower()


def load_products(items: Path, attributes: Path) -> tuple[Product, ...]:
    """All products of a catalogue file, in file order.

    Args:
        items: The raw catalogue, a JSON array (`items_shuffle*.json`); it is streamed.
        attributes: Attributes and instructions by asin, a JSON object (`items_ins_v2*.json`).
    """
    return tuple(products_of(items, dict(stream_object(attributes))))


def products_of(items: Path, notes: Mapping[str, JSON]) -> Iterator[Product]:
    """The products of a catalogue file one by one; repeated and impossible asins are dropped, as in the original."""
    seen: set[str] = set()
    for number, record in enumerate(stream_array(items)):
        if not isinstance(record, Mapping):
            raise DataError(f"{items}, element {number}: a product must be a JSON object, got {type(record).__name__}.")
        asin = record.get("asin")
        if not isinstance(asin, str) or not isinstance(record.get("name"), str):
            raise DataError(f"{items}, element {number}: a product needs a text 'asin' and a text 'name', got {sorted(record)[:12]}.")
        if asin == "nan" or len(asin) > 10 or asin in seen:
            continue
        seen.add(asin)
        note = notes.get(asin, {})
        yield _product(record, note if isinstance(note, Mapping) else {}, f"{items}, product {asin}")


def _product(record: Mapping[str, JSON], note: Mapping[str, JSON], place: str) -> Product:
    prices, tag = _prices(_text(record, "pricing"), place)
    bullets = record.get("small_description")
    product_category = _text(record, "product_category")
    return Product(
        asin=_text(record, "asin"),
        title=_text(record, "name"),
        category=_text(record, "category"),
        query=_text(record, "query").lower().strip(),
        product_category=product_category,
        path=frozenset(level.strip() for level in product_category.split("›")),
        description=_text(record, "full_description"),
        bullets=(bullets,) if isinstance(bullets, str) else _texts(bullets),
        prices=prices,
        price_tag=tag,
        options=_options(record.get("customization_options"), place),
        attributes=_texts(note.get("attributes")),
        instruction=_text(note, "instruction"),
        wanted=_texts(note.get("instruction_attributes")),
    )


def _text(record: Mapping[str, JSON], key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""


def _texts(value: JSON) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _prices(pricing: str, place: str) -> tuple[tuple[float, ...], str]:
    """The numbers after dollar signs (at most two), and the tag that shows them; without any, 100 dollars."""
    try:
        prices = tuple(float(_NOT_A_NUMBER.sub("", part)) for part in pricing.split("$")[1:]) or _NO_PRICE
    except ValueError:
        raise DataError(f"{place}: the pricing is {pricing!r}; a number must follow each dollar sign.") from None
    return prices[:2], f"${prices[0]}" if len(prices) == 1 else f"${prices[0]} to ${prices[1]}"


def _options(raw: JSON, place: str) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(raw, Mapping):
        return {}
    options: dict[str, tuple[str, ...]] = {}
    for name, choices in raw.items():
        if choices is None:
            continue
        if not isinstance(choices, list):
            raise DataError(f"{place}: option {name!r} is {choices!r}; it must be a list of choices or null.")
        values = [choice.get("value") if isinstance(choice, Mapping) else None for choice in choices]
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) < len(values):
            raise DataError(f"{place}: option {name!r} has a choice without a text 'value'.")
        options[name.lower()] = tuple(text.strip().replace("/", " | ").lower() for text in texts)
    return options
