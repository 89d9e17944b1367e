"""Speed and memory of the generated shop: `python bench/shop_generated.py [--large]`.

Steps a second on one core with 1,000 products, expert episodes of about five turns (a search in about 1 of 5 steps): `cold` in a shop
that was just opened, so that pages are rendered and searches run for the first time, and `warm` when the same tasks come again, as the
members of a group do. `--large` builds a shop of a million products
instead: seconds and memory of catalogue and index, and the time of a search. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time

from stepwell.envs.shop import ShopDomain
from stepwell.envs.shop.catalogue import Catalogue
from stepwell.envs.shop.shop import Shop
from stepwell.envs.shop.store import NO_FILTERS, Filters, Store
from stepwell.envs.shop.tasks import Maker
from stepwell.seeding import generator


def small(products: int, episodes: int, rounds: int) -> dict[str, float]:
    domain = ShopDomain(products=products)
    tasks = [domain.draw(seed) for seed in range(episodes)]
    plans = [domain.expert(task) for task in tasks]
    steps = sum(map(len, plans))
    rates: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(rounds):
        store = Store(domain.store.catalogue)
        for times in rates.values():
            start = time.perf_counter()
            for task, plan in zip(tasks, plans, strict=True):
                shop = Shop(task, store)
                shop.start()
                for action in plan:
                    shop.step(action)
            times.append(steps / (time.perf_counter() - start))
    return {
        "products": products,
        **{f"steps_per_s_{name}": round(statistics.median(times)) for name, times in rates.items()},
        "share_of_searches": round(sum(action.name == "search" for plan in plans for action in plan) / steps, 3),
        "steps_per_episode": round(steps / episodes, 2),
    }


def large(products: int, searches: int) -> dict[str, float]:
    start = time.perf_counter()
    catalogue = Catalogue.generate(products, 0)
    generated = time.perf_counter()
    store = Store(catalogue)
    indexed = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rng = generator("bench")
    times: dict[str, list[float]] = {"brand": [], "no_brand": [], "filtered": []}
    for index in rng.integers(products, size=searches).tolist():
        product = store.product(index)
        queries = {
            "brand": (*product.shown[:3], product.type),
            "no_brand": (*product.shown[1:3], product.type),
            "filtered": (*product.shown, product.type),
        }
        for name, query in queries.items():
            begin = time.perf_counter()
            store.search(query, Filters(under=50) if name == "filtered" else NO_FILTERS)
            times[name].append(1e3 * (time.perf_counter() - begin))
    maker, begin = Maker(store), time.perf_counter()
    for seed in range(100):
        maker.task(seed / 100, seed, "train")
    return {
        "products": products,
        "generate_s": round(generated - start, 2),
        "index_s": round(indexed - generated, 2),
        "peak_memory_gib": round(peak, 2),
        **{f"search_ms_{name}_median": round(statistics.median(ms), 2) for name, ms in times.items()},
        "task_ms_mean": round(10 * (time.perf_counter() - begin), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="a million products")
    arguments = parser.parse_args()
    print(json.dumps(large(1_000_000, 200) if arguments.large else small(1_000, 1_000, 7), indent=2))


if __name__ == "__main__":
    main()
