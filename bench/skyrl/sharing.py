"""Members of a group in one request and in requests of their own, on a server: the same tokens, and how long each takes."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepwell.connect import checked_service
from stepwell.engine.local import Text
from stepwell.engine.remote import RemoteEngine
from stepwell.protocols import ModelSpec, OptimizerSpec
from stepwell.seeding import among
from stepwell.types import Sampling

GROUPS, MEMBERS, TOKENS, TIMES = 8, 8, 12, 7


def share(url: str, base: Path) -> tuple[str, bool]:
    """A sentence with numbers, and whether both ways gave the same."""
    service = checked_service(url, "auto", str(base), "TINKER_API_KEY", "refused")
    model = RemoteEngine(service, Text(str, frozenset()), 256).model(
        "policy", ModelSpec(kind="lora", rank=4, alpha=32.0, optimizer=OptimizerSpec(max_grad_norm=1e9))
    )
    draw = np.random.default_rng(3)
    contexts = [prompt for prompt in draw.integers(5, 100, (GROUPS, 24)) for _ in range(MEMBERS)]
    samplings = [Sampling(max_tokens=TOKENS)] * len(contexts)
    kinds = {"shared": service.kind, "apart": replace(service.kind, most_samples=1)}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    equal, distinct = True, 0
    for number in range(TIMES):
        seeds = [among((number, slot, member), 0) for slot in range(GROUPS) for member in range(MEMBERS)]
        said = {}
        for name in sorted(kinds, reverse=bool(number % 2)):
            service.kind = kinds[name]
            start = time.monotonic()
            said[name] = [made.token_ids.tolist() for made in model.snapshot().sample(contexts, samplings, seeds)]
            seconds[name].append(time.monotonic() - start)
        equal = equal and said["shared"] == said["apart"]
        distinct = len({tuple(tokens) for tokens in said["shared"]})
    model.close()
    service.close()
    shared, apart = (statistics.median(seconds[name][1:]) for name in ("shared", "apart"))
    words = f"{GROUPS} groups of {MEMBERS} in {GROUPS} requests and in {GROUPS * MEMBERS}: {'the same' if equal else 'other'} tokens "
    words += f"in {TIMES} calls, {distinct} different of {GROUPS * MEMBERS} in the last; "
    words += f"{shared:.2f} s and {apart:.2f} s (medians of {TIMES - 1})"
    return words, equal and distinct > MEMBERS
