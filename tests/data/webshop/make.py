"""Makes the small WebShop catalogue beside this file: invented products in WebShop's raw layout, odd ones among them.

`python tests/data/webshop/make.py` writes the four data files; with `--record` it also plays some goals and writes what happened to
`episodes.jsonl`, so that a change of behaviour shows. The files are the same on every machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
COLOURS = ("black", "blue", "brown", "green", "grey", "red", "white", "yellow")
KINDS = {
    "kettles": ("Home & Kitchen › Kitchen › Kettles", "garden", ("Kettle", "Pot"), ("size", ("1 l", "1.5 l", "2 l"))),
    "desk lamps": ("Home & Kitchen › Lighting › Lamps", "garden", ("Lamp", "Light"), ("style", ("clamp", "base"))),
    "rain jackets": ("Clothing › Women › Jackets", "fashion", ("Jacket", "Coat"), ("size", ("small", "medium", "large", "x-large"))),
    "running shoes": ("Clothing › Men › Shoes", "fashion", ("Shoes", "Trainers"), ("size", ("8", "8.5", "9", "9/10"))),
    "green teas": ("Grocery › Beverages › Tea", "grocery", ("Tea", "Infusion"), ("flavor name", ("mint", "lemon", "plain"))),
    "face creams": ("Beauty › Skin Care › Face", "beauty", ("Cream", "Balm"), ("scent", ("rose", "none"))),
}
ATTRIBUTES = ("easy clean", "long lasting", "light weight", "water resistant", "non slip", "fair trade", "hand made", "fragrance free")
MAKERS = ("Ardel", "Bruno", "Cassia", "Dorn", "Elvi", "Fenwick")


def product(number: int, random: Random) -> tuple[dict[str, object], dict[str, object], list[str]]:
    """Raw record, attributes and instruction, nouns of the title."""
    query = list(KINDS)[number % len(KINDS)]
    path, category, nouns, (option, values) = KINDS[query]
    attributes = random.sample(ATTRIBUTES, random.randint(2, 5))
    maker, noun = random.choice(MAKERS), random.choice(nouns)
    title = f"{maker} {noun} No. {number}, {attributes[0]} {noun.lower()} for {random.choice(('home', 'travel', 'work'))} & more"
    low = random.randint(5, 120) + random.choice((0.0, 0.49, 0.99))
    colours = random.sample(COLOURS, random.randint(2, 5))
    record: dict[str, object] = {
        "asin": f"X{number:09d}",
        "name": title,
        "category": category,
        "query": f" {query.title()}",
        "product_category": path,
        "full_description": ""
        if number % 7 == 0
        else f"A {noun.lower()} by {maker}: {', '.join(attributes[1:])}. Don't miss it ★ 100% <new>!",
        "small_description": [f"{a.capitalize()} by design. " for a in attributes] if number % 5 else f"Only {attributes[0]}",
        "pricing": (f"${low}", f"${low} - ${low + 10}", "", f"${low:,.2f}")[number % 4],
        "customization_options": {
            "Color": [{"value": f" {colour} ", "price": None} for colour in colours],
            option.title(): [{"value": value, "price": 1.5} for value in random.sample(values, random.randint(2, len(values)))],
        },
        "images": ["https://example.invalid/1.jpg"],
    }
    wanted = random.sample(attributes, min(2, len(attributes)))
    note: dict[str, object] = {"attributes": attributes}
    if number % 6 != 5 or number % 4 == 1:
        note |= {"instruction": f"Find me {wanted[0]} {query} with {wanted[1]}", "instruction_attributes": wanted}
    return record, note, [maker.lower(), noun.lower(), noun.lower(), "no."]


def odd(records: list[dict[str, object]]) -> None:
    """Makes some products awkward, and adds records that must be dropped."""
    records[1]["customization_options"] = ""
    records[2]["customization_options"] = {"Size": None, "Color": [{"value": 'A4 "red" café'}, {"value": "blue_1/2"}]}
    records[3]["customization_options"] = {
        "Top": [{"value": "small"}, {"value": "large"}],
        "Bottom": [{"value": "small"}, {"value": "description"}],
    }
    records[4]["small_description"] = ["", "second bullet"]
    records[9]["customization_options"] = {"Color": [{"value": value} for value in ("red", "blue", "red")]}  # its goals occur twice
    records[8]["pricing"] = "$1,299.00 - $1,399.50 - $9"
    records.append(dict(records[0], name="a repeat, to be dropped"))
    records.append(dict(records[0], asin="nan"))
    records.append(dict(records[0], asin="X00000000000"))


def write(name: str, content: object) -> None:
    (HERE / name).write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def make(num_products: int) -> None:
    random = Random(7)
    made = [product(number, random) for number in range(num_products)]
    records = [record for record, _, _ in made]
    odd(records)
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    (HERE / "items_shuffle_1000.json").write_text(f"[{lines}]\n", encoding="utf-8")
    write("items_ins_v2_1000.json", {record["asin"]: note for record, note, _ in made})
    write("title_nouns.json", {"en_core_web_sm-3.6.0": {record["asin"]: nouns for record, _, nouns in made}})
    write("color_words.json", COLOURS)
    human = [{"instruction": "i want a blue lamp.", "instruction_attributes": ["easy clean"], "instruction_options": ["blue"]}]
    skipped = [{"instruction": "no attributes", "instruction_attributes": [], "instruction_options": []}]
    write("items_human_ins_1000.json", {"X000000001": human + skipped, "X000000007": human})


def scripts(instruction: str, asin: str, values: Sequence[str]) -> list[list[str]]:
    """Some ways to walk through the shop."""
    clicks = [f"click[{value}]" for value in values]
    search, item, back = f"search[{instruction}]", f"click[{asin}]", "click[< prev]"
    return [
        [search, item, *clicks, "click[buy now]"],
        [search, "click[next >]", back, item, "click[features]", back, *clicks, back, item, "click[buy now]"],
        ["click[search]", "buy", "search[]", "search[ ]", "click[next >]", "click[back to search]", search, item.upper(), "click[nothing]"],
        ["search[search_results Cassia Infusion No. 4]", "click[x000000004]", "click[description]", back, "click[next >]"],
    ]


def record() -> None:
    from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings, replay

    domain = WebShopDomain(WebShopSettings(HERE))
    lines = []
    for goal in range(0, len(domain.store.goals), 160):
        wanted = domain.store.goals[goal]
        for number, actions in enumerate(scripts(wanted.instruction, wanted.asin.lower(), [value for _, value in wanted.options])):
            mode = ("text", "text_rich")[(goal + number) % 2]
            history = {"num_prev_obs": 1, "num_prev_actions": 2} if number == 2 else {}
            lines.append(json.dumps({"goal": goal, "mode": mode, "actions": actions, "show_attrs": number == 1, **history}))
    answers = replay(domain, lines)
    with (HERE / "episodes.jsonl").open("w", encoding="utf-8") as file:
        for line, answer in zip(lines, answers, strict=True):
            file.write(json.dumps({"request": json.loads(line), "answer": answer}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    make(84)
    if parser.parse_args().record:
        record()
