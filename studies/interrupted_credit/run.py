"""Which credit around interruptions, where all that can happen can be listed? Exact bias and variance, and how fast each learns.

    python studies/interrupted_credit/run.py            # both, then the table: about three minutes on one core
    python studies/interrupted_credit/run.py --table    # from what is there

Three choices, left or right; after the first, in half of the episodes, something happens, and the agent sees it. Worlds:

- `luck`: the event halves what every treasure is worth. Nothing could be done about it, before or after.
- `recover`: the event empties the best treasure of the side that was chosen; another way is still open there.
- `prepare`: the event empties the best treasures of one side alone: because of it the other side is the better choice.

Exact: for 20 random policies (seeds 0 to 19), groups of two, RLOO, the expected gradient over all pairs of episodes against the gradient of
the expected return **with** events: the share of its length that no multiple of the true gradient explains, and the total variance over
that of `none`. Learning: softmax policy, plain ascent, one group of two episodes a step; the rate is the best of six on seeds 100 to 104,
results are of seeds 0 to 19: updates, and episodes with all continuations counted, until the exact expected return has come 80 % of the way
to the best.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepwell.credit import LeaveOneOut, OutcomeOnly, Undisturbed, WeighedByEvents, Worth, by_turn
from stepwell.evaluation.intervals import bootstrap
from stepwell.files import write_atomic
from stepwell.types import Action, Ending, EndingKind, Episode, Floats, Group, Observation, Reply, Scored, Stop, Task, Turn, Verdict

HERE = Path(__file__).parent
TASK = Task("walk", "go", 0.5, "train")
CHANCE, TURNS, WIDTH = 0.5, 3, 2
SEEDS, TUNING = range(20), range(100, 105)
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
GROUPS, STEPS, GOAL = 1, 1500, 0.8
KINDS = ("none", "decay", "segment", "counterfactual")


class World(NamedTuple):
    """Worth of each of the eight ends (three turns left or right), without and with the event."""

    calm: tuple[float, ...]
    struck: tuple[float, ...]


CALM = (0.2, 0.5, 0.1, 1.0, 0.1, 0.6, 0.3, 0.9)
WORLDS = {
    "luck": World(CALM, tuple(worth / 2 for worth in CALM)),
    "recover": World(CALM, (0.2, 0.5, 0.1, 0.0, 0.1, 0.6, 0.3, 0.0)),
    "prepare": World(CALM, (0.2, 0.0, 0.1, 0.0, 0.1, 0.6, 0.3, 0.9)),
}


@dataclass(frozen=True)
class Path3:
    """One way through: three choices, and whether it was struck."""

    choices: tuple[int, int, int]
    struck: bool

    @property
    def end(self) -> int:
        return 4 * self.choices[0] + 2 * self.choices[1] + self.choices[2]

    def states(self) -> list[int]:
        """Number of the state in which each choice is made: before the event there is no telling."""
        a, b, _ = self.choices
        later = 7 if self.struck else 0
        return [0, 1 + a + later, 3 + 2 * a + b + later]


NUM_STATES = 14
PATHS = [Path3(choices, struck) for struck in (False, True) for choices in product(range(WIDTH), repeat=3)]


def worth(world: World, path: Path3) -> float:
    """What its end pays."""
    return (world.struck if path.struck else world.calm)[path.end]


@cache
def scored(world: World, path: Path3, member: int) -> Scored:
    """The path as a scored episode of the library."""
    one = np.array([0])
    turns = []
    for n, choice in enumerate(path.choices):
        event = "struck" if path.struck and n == 0 else None
        reply = Reply(Observation(""), event=event, done=n == TURNS - 1)
        turns.append(Turn(one, np.array([choice]), np.zeros(1), "", Action("go"), reply, Stop.EOS, 0))
    value = worth(world, path)
    episode = Episode(TASK, member, Observation(""), tuple(turns), Ending(EndingKind.TERMINATED), Verdict(value, value == 1.0, ""))
    return Scored(episode, by_turn(episode), value, {}, np.zeros(TURNS, np.bool_))


class Policy:
    """Softmax logits of every state."""

    def __init__(self, logits: Floats) -> None:
        self.logits = logits
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        self.p = odds / odds.sum(axis=1, keepdims=True)

    def chance(self, path: Path3, given: int = 0) -> float:
        """Of the choices from `given` on."""
        return float(np.prod([self.p[state, choice] for state, choice in list(zip(path.states(), path.choices, strict=True))[given:]]))

    def ascent(self, path: Path3, advantages: Sequence[float]) -> Floats:
        """Sum over steps of advantage x grad log p."""
        made = np.zeros_like(self.logits)
        for state, choice, advantage in zip(path.states(), path.choices, advantages, strict=True):
            made[state] -= advantage * self.p[state]
            made[state, choice] += advantage
        return made

    def value(self, world: World) -> float:
        """Expected return, events included."""
        return sum(odds(path) * self.chance(path) * worth(world, path) for path in PATHS)

    def gradient(self, world: World) -> Floats:
        """Of `value`."""
        return np.asarray(sum(odds(path) * self.chance(path) * self.ascent(path, [worth(world, path)] * TURNS) for path in PATHS))

    def sample(self, rng: np.random.Generator, struck: bool, begun: Sequence[int] = ()) -> Path3:
        """Goes on from the choices that have been made."""
        choices = list(begun)
        while len(choices) < TURNS:
            state = Path3((*choices, *[0] * (TURNS - len(choices))), struck).states()[len(choices)]  # type: ignore[arg-type]
            choices.append(int(rng.random() < self.p[state, 1]))
        return Path3(tuple(choices), struck)  # type: ignore[arg-type]


def odds(path: Path3) -> float:
    """Of being struck, or not."""
    return CHANCE if path.struck else 1.0 - CHANCE


Without = Callable[[Sequence[Episode]], list[Worth]]


def exactly(policy: Policy, world: World) -> Without:
    """The means that continuations estimate."""

    def mean(first: int, struck: bool) -> float:
        ways = [path for path in PATHS if path.struck is struck and path.choices[0] == first]
        return sum(policy.chance(path, given=1) * worth(world, path) for path in ways)

    return lambda episodes: [
        Worth(mean(int(e.turns[0].token_ids[0]), False), mean(int(e.turns[0].token_ids[0]), True), 0) for e in episodes
    ]


def by_playing(policy: Policy, world: World, rng: np.random.Generator, continuations: int = 2) -> Without:
    """Two continuations in each world."""

    def mean(first: int, struck: bool) -> float:
        return float(np.mean([worth(world, policy.sample(rng, struck, [first])) for _ in range(continuations)]))

    def ask(episodes: Sequence[Episode]) -> list[Worth]:
        firsts = [int(e.turns[0].token_ids[0]) for e in episodes]
        return [Worth(mean(first, False), mean(first, True), 2 * continuations) for first in firsts]

    return ask


def advantages(kind: str, world: World, pairs: Sequence[tuple[Path3, Path3]], without: Without) -> tuple[list[list[list[float]]], float]:
    """Of each path of each pair, by the library's rule; and the episodes that it cost."""
    rule = LeaveOneOut()
    credited = OutcomeOnly(rule)([Group(TASK, (scored(world, a, 0), scored(world, b, 1))) for a, b in pairs])
    if kind == "none":
        made, said = credited, {}
    else:
        around = Undisturbed(without, rule) if kind == "counterfactual" else WeighedByEvents("decay" if kind == "decay" else "segment", 0.5)
        made, said = around(credited)
    return [[member.advantages_S.tolist() for member in group.members] for group in made], said.get("credit/event_episodes", 0.0)


# -- exact --------------------------------------------------------------------------------------------------------------------


def exact(kind: str, world: World, seed: int) -> dict[str, float]:
    """Bias and variance of one estimate from one pair."""
    policy = Policy(np.random.default_rng(seed).normal(size=(NUM_STATES, WIDTH)))
    pairs = list(product(PATHS, repeat=2))
    told, _ = advantages(kind, world, pairs, exactly(policy, world))
    mean, square = np.zeros_like(policy.logits), 0.0
    for (a, b), (for_a, for_b) in zip(pairs, told, strict=True):
        chance = odds(a) * odds(b) * policy.chance(a) * policy.chance(b)
        estimate = (policy.ascent(a, for_a) + policy.ascent(b, for_b)) / 2
        mean += chance * estimate
        square += chance * float((estimate**2).sum())
    true = policy.gradient(world)
    factor = float((mean * true).sum() / (true**2).sum())
    return {
        "unexplained": float(np.linalg.norm(mean - factor * true) / np.linalg.norm(mean)),
        "variance": square - float((mean**2).sum()),
    }


# -- learning -----------------------------------------------------------------------------------------------------------------


def learn(kind: str, world: World, rate: float, seed: int) -> tuple[float, float]:
    """Episodes and updates until the goal; infinite where it is not reached in 1,500 updates."""
    rng = np.random.default_rng([seed, 1])
    policy = Policy(0.1 * np.random.default_rng([seed, 0]).normal(size=(NUM_STATES, WIDTH)))
    best = best_value(world)
    goal = policy.value(world) + GOAL * (best - policy.value(world))
    played = 0.0
    for update in range(STEPS):
        if policy.value(world) >= goal:
            return played, float(update)
        pairs = [tuple(policy.sample(rng, bool(rng.random() < CHANCE)) for _ in range(2)) for _ in range(GROUPS)]
        told, cost = advantages(kind, world, pairs, by_playing(policy, world, rng))  # type: ignore[arg-type]
        played += 2 * GROUPS + cost
        steps = [policy.ascent(path, adv) for pair, both in zip(pairs, told, strict=True) for path, adv in zip(pair, both, strict=True)]
        policy = Policy(policy.logits + rate * np.mean(steps, axis=0))
    return float("inf"), float("inf")


def best_value(world: World) -> float:
    """Of the best policy, which sees the event after its first choice."""
    by_first = [
        sum(
            chance * max(worth(world, path) for path in PATHS if path.struck is struck and path.choices[0] == first)
            for struck, chance in ((False, 1 - CHANCE), (True, CHANCE))
        )
        for first in range(WIDTH)
    ]
    return max(by_first)


def study() -> dict[str, Any]:
    """All numbers."""
    found: dict[str, Any] = {"exact": {}, "learning": {}}
    for name, world in WORLDS.items():
        found["exact"][name] = {kind: [exact(kind, world, seed) for seed in SEEDS] for kind in KINDS}
        found["learning"][name] = {}
        for kind in KINDS:
            tuned = {
                rate: float(np.mean([min(learn(kind, world, rate, seed)[0], 2 * GROUPS * STEPS) for seed in TUNING])) for rate in RATES
            }
            rate = min(tuned, key=lambda one: tuned[one])
            taken = [learn(kind, world, rate, seed) for seed in SEEDS]
            columns = [[None if np.isinf(one) else one for one in column] for column in zip(*taken, strict=True)]
            found["learning"][name][kind] = {"rate": rate, "episodes": columns[0], "updates": columns[1]}
            print(name, kind, tuned, flush=True)
    return found


def table(found: dict[str, Any]) -> str:
    """Means with 95 % bootstrap intervals over seeds; all but the first are paired ratios to `none`, over the runs that both finished."""
    lines = [
        "| world | credit | not explained by the true gradient | variance, times `none` | updates to the goal | episodes to the goal |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for name in WORLDS:
        plain = found["exact"][name]["none"]
        base = found["learning"][name]["none"]
        for kind in KINDS:
            some = found["exact"][name][kind]
            bias = bootstrap([one["unexplained"] for one in some])
            spread = bootstrap([one["variance"] / other["variance"] for one, other in zip(some, plain, strict=True)])
            mine, speeds = found["learning"][name][kind], []
            for unit in ("updates", "episodes"):
                both = [(a, b) for a, b in zip(mine[unit], base[unit], strict=True) if a is not None and b is not None]
                speeds.append(bootstrap([a / b for a, b in both]))
            lost = sum(one is None for one in mine["episodes"])
            said = f"; never in {lost} of {len(mine['episodes'])} runs" if lost else ""
            cells = [f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in (bias, spread, *speeds)]
            lines.append(f"| {name} | `{kind}` | {' | '.join(cells)}{said} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    results = HERE / "results.json"
    if not args.table and not results.exists():
        write_atomic(results, json.dumps(study(), indent=1) + "\n")
    made = table(json.loads(results.read_text()))
    write_atomic(HERE / "table.md", made)
    print(made)


if __name__ == "__main__":
    main()
