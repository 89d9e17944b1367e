"""The pages of the original shop as text, in its modes `text` and `text_rich`.

A page is a sequence of nodes, each a visible piece of text of some kind. `text` joins the stripped nodes; `text_rich` gives each a line
and marks what can be clicked and what has been.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from stepwell.envs.shop.webshop.catalogue import Product
from stepwell.errors import ConfigError, nearest

__all__ = ["Mode", "Node", "done_page", "index_page", "item_page", "render", "results_page", "sub_page"]

Mode = Literal["text", "text_rich"]
Kind = Literal["plain", "button", "link", "option"]
PER_PAGE = 10
"""Products on one page of results."""


class Node(NamedTuple):
    """A visible piece of text; `clicked` marks a product that was opened, or an option that was chosen."""

    text: str
    kind: Kind = "plain"
    clicked: bool = False


Page = Iterator[Node]


def index_page(instruction: str) -> Page:
    """Where a search begins."""
    yield Node("WebShop")
    yield Node("Instruction: ")
    yield Node(instruction)
    yield Node("Search", "button")


def results_page(instruction: str, products: Sequence[Product], page: int, visited: frozenset[str]) -> Page:
    """Page number `page` (from 1) of the products found."""
    yield from _head(instruction)
    yield Node(f"Page {page} (Total results: {len(products)})")
    if page > 1:
        yield Node("< Prev", "button")
    yield Node("Next >", "button")
    for product in shown(products, page):
        yield Node(product.asin, "link", product.asin in visited)
        yield Node(product.title)
        yield Node(product.price_tag)


def shown(products: Sequence[Product], page: int) -> Sequence[Product]:
    """The products on one page of results."""
    return products[(page - 1) * PER_PAGE : page * PER_PAGE] if page > 0 else ()


def item_page(instruction: str, product: Product, is_clicked: Callable[[str], bool], sub_pages: Sequence[str]) -> Page:
    """A product with its options."""
    yield from _head(instruction)
    yield Node("< Prev", "button")
    for name, values in product.options.items():
        yield Node(name)
        for value in values:
            yield Node(value, "option", is_clicked(value))
    yield Node(product.title)
    yield Node(f"Price: {product.price_tag}")
    yield Node("Rating: N.A.")
    for name in (*sub_pages, "Buy Now"):
        yield Node(name, "button")


def sub_page(instruction: str, product: Product, name: str) -> Page:
    """One of a product's sub pages: description, features, reviews (always empty), attributes."""
    yield from _head(instruction)
    yield Node("< Prev", "button")
    if name == "description" and product.description:
        yield Node(product.description)
    elif name == "features":
        yield from (Node(f" {bullet}") for bullet in product.bullets)
    elif name == "attributes":
        yield from (Node(f" {attribute}") for attribute in product.attributes)
        yield from (Node(text) for text in (product.category, product.query, product.product_category))


def done_page(asin: str, options: Mapping[str, str], reward: float) -> Page:
    """The receipt."""
    bought = json.dumps(dict(options), sort_keys=True)
    for character in "&<>'":
        bought = bought.replace(character, f"\\u{ord(character):04x}")
    yield from map(Node, ("Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)", "Purchased"))
    yield from map(
        Node, ("asin", asin, "options", bought, "attrs", "None", "category", "None", "query", "None", "product category", "None")
    )
    yield from map(Node, ("Target", "asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query"))
    yield from map(Node, ("Goal ", "None", "Reward", "Your score (min 0.0, max 1.0)", str(reward), "Reward Details ", "None"))


def render(mode: Mode) -> Callable[[Page], str]:
    """The function that turns a page into the text of an observation."""
    renderers: dict[str, Callable[[Page], str]] = {"text": _text, "text_rich": _rich}
    if mode not in renderers:
        raise ConfigError(f"mode is {mode!r}; {nearest(mode, renderers)}.")
    return renderers[mode]


def _head(instruction: str) -> Page:
    yield Node("Instruction:")
    yield Node(instruction)
    yield Node("Back to Search", "button")


def _text(page: Page) -> str:
    return " [SEP] ".join([node.text.strip() for node in page])


def _rich(page: Page) -> str:
    lines: list[str] = []
    clicked: list[str] = []
    for text, kind, is_clicked in page:
        if kind == "plain":
            lines.append(f"{text}\n")
            continue
        button = "clicked button" if is_clicked else "button"
        before = {"button": "", "link": "\n", "option": "  "}[kind]
        lines.append(f"{before}[{button}] {text} [{button}_]\n")
        if kind == "option" and is_clicked:
            clicked.insert(0, f"You have clicked {text}.\n")
    return "".join(clicked + lines)
