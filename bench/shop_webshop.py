"""Speed and memory of the real WebShop: `python bench/shop_webshop.py --data DIR [--original FILE] [--index]`.

Environment steps a second on one core in `variant=compat`, mode `text`, with the episode of the recorded measurement of the original:
search the whole instruction, open the first hit, features, back, buy (5 steps, one of them a search; other goals in every repeat, so
nothing is warm but the shop itself). The process is a fresh one, and its memory is that of everything it did. `--original` names the
recording of the original's speed (`golden/webshop/speed.json`); the ratio is printed beside it. `--index` measures the search index alone,
over a million generated documents instead. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stepwell.envs.shop.index import Index
from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings
from stepwell.seeding import generator

EPISODES, REPEATS, WARM_UP = 1000, 5, 40
DOCUMENTS, DOCUMENT_TOKENS, WORDS, SEARCHES = 1_000_000, 14, 20_000, 300


def resident_mb() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def episode(domain: WebShopDomain, goal: int) -> int:
    """Plays the recorded measurement's episode; returns its number of steps."""
    shop = domain.replayed(goal, domain.compat_settings)
    shop.start()
    shop.act(f"search[{domain.store.goals[goal].instruction}]")
    shop.act(f"click[{shop.clickables[2]}]")
    shop.act("click[features]")
    shop.act("click[< prev]")
    assert shop.act("click[buy now]").done
    return 5


def webshop(data: Path, original: Path | None) -> dict[str, object]:
    begin = time.perf_counter()
    domain = WebShopDomain(WebShopSettings(data))
    loaded = time.perf_counter() - begin
    goals = generator("bench", "webshop").permutation(len(domain.store.goals)).tolist()
    for goal in goals[:WARM_UP]:
        episode(domain, goal)
    rates = []
    for repeat in range(REPEATS):
        chosen = [goals[(WARM_UP + repeat * EPISODES + i) % len(goals)] for i in range(EPISODES)]
        begin = time.perf_counter()
        steps = sum(episode(domain, goal) for goal in chosen)
        rates.append(steps / (time.perf_counter() - begin))
    searches = []
    for goal in goals[:SEARCHES]:
        begin = time.perf_counter()
        domain.store.search(domain.store.goals[goal].instruction)
        searches.append(1e3 * (time.perf_counter() - begin))
    answer: dict[str, object] = {
        "steps_per_s": round(statistics.median(rates)),
        "steps_per_s_min_max": [round(min(rates)), round(max(rates))],
        "search_ms_median": round(statistics.median(searches), 3),
        "load_s": round(loaded, 2),
        "resident_mb": round(resident_mb(), 1),
    }
    if original is not None:
        recorded = json.loads(original.read_text(encoding="utf-8"))
        answer["original_steps_per_s"] = recorded["env_steps_per_second"]["mean"]
        answer["times_the_original"] = round(statistics.median(rates) / recorded["env_steps_per_second"]["mean"])
        answer["original_resident_mb"] = recorded["rss_mb"]["end"]["mean"]
    return answer


def documents(words: list[str], chances: np.ndarray) -> Iterator[list[str]]:
    """Generated documents of words with Zipf-like frequencies."""
    rng = generator("bench", "documents")
    for _ in range(DOCUMENTS // 10_000):
        for row in rng.choice(len(words), (10_000, DOCUMENT_TOKENS), p=chances).tolist():
            yield [words[i] for i in row]


def index() -> dict[str, object]:
    words = [f"w{i}" for i in range(WORDS)]
    chances = 1 / np.arange(1, WORDS + 1) ** 0.9
    chances /= chances.sum()
    begin = time.perf_counter()
    built = Index(documents(words, chances))
    seconds = time.perf_counter() - begin
    rng, times = generator("bench", "queries"), []
    for _ in range(SEARCHES):
        query = [words[i] for i in rng.choice(WORDS, rng.integers(2, 12), p=chances)]
        begin = time.perf_counter()
        built.search(query, k=50)
        times.append(1e3 * (time.perf_counter() - begin))
    return {
        "documents": len(built),
        "tokens": built.num_tokens,
        "build_s_with_generation": round(seconds, 1),
        "index_mb": round(built.num_bytes / 1e6, 1),
        "peak_resident_mb": round(resident_mb()),
        "search_ms_median": round(statistics.median(times), 2),
        "search_ms_p90": round(float(np.percentile(times, 90)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with WebShop's products")
    parser.add_argument("--original", type=Path, help="recorded speed of the original program")
    parser.add_argument("--index", action="store_true", help="a million generated documents instead")
    arguments = parser.parse_args()
    if not arguments.index and arguments.data is None:
        parser.error("give --data DIR, or --index")
    print(json.dumps(index() if arguments.index else webshop(arguments.data, arguments.original), indent=2))


if __name__ == "__main__":
    main()
