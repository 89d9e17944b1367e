"""What curriculum, interruptions, shaping and alarms cost, as shares of a training step.

    python bench/extras.py [--steps 8] [key=value ...]

A run of `quick` with all four on, one thread. Each part's functions are timed where they are called, in seconds of the processor; what a
part calls of the domain, and would have been called without it, is not counted as its own. Prints one JSON object: the share of each part
in the steps' time, their sum, and the limit (0.03).
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepwell import trainer as loop
from stepwell.alarmed import Alarmed, watching
from stepwell.build import build
from stepwell.configure import load
from stepwell.envs import interrupt
from stepwell.envs.shop.events import ShopWorld

LIMIT = 0.03
SETTINGS = [
    *("engine.threads=1", "cloning.steps=200", "curriculum.kind=entropy", "alarms.action=log", "credit.kind=process_to_go"),
    *("shaping.normalise=running", "shaping.clip=3", "shaping.horizon=mean"),
    *("domain.interruptions.kinds=[price_rise,stock_out,option_revised,tool_error]", "domain.interruptions.share=0.5"),
]


class Meter:
    """Seconds of the processor by label; a wrapped function inside another is not counted in the outer one."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._open: list[str] = ["the rest"]
        self._since = time.process_time()

    def switch(self) -> None:
        """Books what has passed on what is open."""
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def wrap(self, owner: Any, name: str, label: str) -> None:
        """Times `owner.name` from now on."""
        inside: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(inside)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.switch()
            self._open.append(label)
            try:
                return inside(*args, **kwargs)
            finally:
                self.switch()
                self._open.pop()

        setattr(owner, name, timed)


def measure(steps: int, settings: list[str]) -> dict[str, Any]:
    """Shares of the steps' time."""
    config = load("quick", [*SETTINGS, *settings])
    trainer, meter = build(config).trainer, Meter()
    watch, domain = watching(config), trainer.parts.domain
    assert isinstance(domain, interrupt.Interrupted) and watch is not None and trainer.parts.shaping is not None
    with tempfile.TemporaryDirectory() as folder:
        alarmed = Alarmed(config, watch, trainer, Path(folder))
        run = trainer.run()
        for _ in range(config.cloning.steps + 1):  # The first step of learning makes the judge.
            next(run)
        for name in ("draw", "admit", "observe"):
            meter.wrap(trainer.parts.curriculum, name, "curriculum")
        meter.wrap(type(trainer.parts.shaping), "__call__", "shaping")
        for name in ("with_raw", "shaped_metrics"):
            meter.wrap(loop, name, "shaping")
        meter.wrap(alarmed, "look", "alarms")
        for name in ("environment", "grade"):
            meter.wrap(interrupt.Interrupted, name, "interruptions")
        for name in ("start", "step"):
            meter.wrap(interrupt.InterruptedEnvironment, name, "interruptions")
            meter.wrap(ShopWorld, name, "the domain")
        meter.wrap(domain.inner, "environment", "the domain")
        meter.wrap(domain.inner, "grade", "the domain")
        meter.switch()
        meter.seconds.clear()
        for _ in range(steps):
            alarmed.look(next(run))
        meter.switch()
    whole = sum(meter.seconds.values())
    shares = {name: meter.seconds[name] / whole for name in ("curriculum", "interruptions", "shaping", "alarms")}
    return {
        "step_s": round(whole / steps, 3),
        "shares": {name: round(share, 4) for name, share in shares.items()},
        "together": round(sum(shares.values()), 4),
        "limit": LIMIT,
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("settings", nargs="*", metavar="key=value")
    args = parser.parse_args()
    print(json.dumps(measure(args.steps, args.settings), indent=1))


if __name__ == "__main__":
    main()
