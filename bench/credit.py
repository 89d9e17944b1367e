"""How long credit takes: `python bench/credit.py`, a few seconds on one core.

Every credit rule on 10,000 episodes of 10 steps (1,250 groups of 8), and the rows of 512 episodes of 2,000 tokens. Seconds are of CPU,
the least of `--repeats`. Prints a table, or one JSON object with `--json`; a replay of the counterfactual rule costs nothing here, and
values of the critic are given.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from stepwell.credit import (
    GAE,
    Adaptive,
    Centred,
    Counterfactual,
    GiGPO,
    IStar,
    LeaveOneOut,
    MinForm,
    OutcomeOnly,
    Prime,
    ProcessSupervision,
    ProcessToGo,
    ReinforcePlusPlus,
    RePIRL,
    SuffixLogRatio,
    Whitened,
    by_turn,
    credit_metrics,
)
from stepwell.engine.batch import policy_rows
from stepwell.losses import token_weights
from stepwell.protocols import Assign
from stepwell.types import Action, Ending, EndingKind, Episode, Group, Observation, Reply, Scored, Stop, Task, Turn, Verdict

RULES: dict[str, Assign] = {
    "grpo": OutcomeOnly(),
    "drgrpo": OutcomeOnly(Centred()),
    "drgrpo, scale of the batch": OutcomeOnly(Centred(), "batch"),
    "rloo": OutcomeOnly(LeaveOneOut()),
    "reinforce_pp": ReinforcePlusPlus(),
    "reinforce_pp_baseline": Whitened(OutcomeOnly(Centred())),
    "istar": IStar(),
    "istar, adaptive": Adaptive(IStar()),
    "process_to_go": ProcessToGo(),
    "process_to_go, discounted": ProcessToGo(discount=0.95),
    "process_supervision": ProcessSupervision(),
    "prime": Whitened(Prime()),
    "prime, released": Whitened(Prime(form="released", unit="largest_return")),
    "repirl": Whitened(RePIRL()),
    "gigpo": GiGPO(),
    "min_form": MinForm(),
    "min_form, hard": MinForm(temperature=0.0),
    "suffix": SuffixLogRatio(),
    "counterfactual": Counterfactual(lambda episode, turn: 0.0),
    "gae": Whitened(GAE(lam=0.95)),
}
LIMIT_S, ROWS_LIMIT_S = 0.5, 1.0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--episodes", type=int, default=10_000)
    arguments.add_argument("--rows", type=int, default=512, help="episodes of 2,000 tokens that become rows")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--json", action="store_true")
    asked = arguments.parse_args()
    groups = batch(asked.episodes, turns=10, tokens=5)
    found = {name: least(partial(rule, groups), asked.repeats) for name, rule in RULES.items()}
    credited = RULES["grpo"](groups)
    found["credit_metrics"] = least(lambda: credit_metrics(credited), asked.repeats)
    long = OutcomeOnly()(batch(asked.rows, turns=10, tokens=200))
    rows = least(lambda: policy_rows(long, lambda n: token_weights(n, "token"), lambda scored: scored.episode.logprobs_T), asked.repeats)
    if asked.json:
        print(json.dumps({"credit_s": found, "rows_s": rows}))
        return
    for name, seconds in found.items():
        print(f"{name:28} {seconds:6.3f} s of {LIMIT_S} {'' if seconds < LIMIT_S else ' TOO SLOW'}")
    print(f"{f'rows of {asked.rows} x 2,000 tokens':28} {rows:6.3f} s of {ROWS_LIMIT_S} {'' if rows < ROWS_LIMIT_S else ' TOO SLOW'}")


def least(work: Callable[[], object], repeats: int) -> float:
    """Seconds of CPU of one run, the least of several. The collector of garbage is not what is measured."""
    seconds = []
    gc.collect()
    gc.disable()
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    gc.enable()
    return min(seconds)


def batch(episodes: int, *, turns: int, tokens: int, size: int = 8) -> list[Group[Scored]]:
    """Random episodes with everything that a rule may need."""
    random = np.random.default_rng(0)
    made = []
    for g in range(0, episodes, size):
        task = Task(f"bench/{g}", "work", 0.5, "train")
        made.append(Group(task, tuple(_scored(task, n, random, turns, tokens) for n in range(min(size, episodes - g)))))
    return made


def _scored(task: Task, member: int, random: np.random.Generator, turns: int, tokens: int) -> Scored:
    score = float(random.random() < 0.5)
    states = random.integers(0, 6, turns + 1)
    context = np.arange(20)
    steps = []
    for t in range(turns):
        ids = random.integers(0, 100, tokens)
        reply = Reply(Observation("seen", f"state {states[t + 1]}"), done=t == turns - 1)
        steps.append(Turn(context, ids, np.full(tokens, -1.0), "go[]", Action("go"), reply, Stop.EOS, 0))
        context = np.concatenate([context, ids, np.arange(5)])
    episode = Episode(
        task, member, Observation("start", f"state {states[0]}"), tuple(steps), Ending(EndingKind.TERMINATED), Verdict.of(score)
    )
    total = turns * tokens
    return Scored(
        episode,
        by_turn(episode),
        score,
        {"judge": random.normal(size=turns)},
        np.ones(turns, np.bool_),
        values_S=random.random(turns),
        ref_logprobs_T=np.full(total, -1.1),
        old_logprobs_T=np.full(total, -1.0),
        confidence=0.8,
    )


if __name__ == "__main__":
    main()
