"""What `test_parallel` runs in each of two processes: the contract of engines, at the lead; the follower does what it is told."""

from __future__ import annotations

import sys

from speakers import SMALL, loud

from stepwell.engine.local import Budget, LocalEngine, Text
from stepwell.engine.parallel import LeadEngine, follow
from stepwell.engine.ranks import Ranks
from stepwell.engine.tiny import tiny_model
from stepwell.testing import Probe, check_engine

BUDGET = Budget(tokens=24, rows=3)
TEXT = Text(lambda tokens: " ".join(map(str, tokens)), frozenset({0}))


def main() -> None:
    """Follows, or checks both kinds of models."""
    ranks = Ranks.join()
    module = loud(tiny_model(300, SMALL, seed=1))
    if ranks.number:
        follow(LocalEngine(module, TEXT, BUDGET), ranks)
        return
    probe = Probe(kind="lora", lr=0.1) if sys.argv[1] == "lora" else Probe()
    check_engine(LeadEngine(module, TEXT, BUDGET, ranks=ranks), probe)
    print("all that the contract demands holds")
    ranks.dismiss()


if __name__ == "__main__":
    main()
