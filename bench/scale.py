"""What the client of a remote engine costs as batches grow: `python bench/scale.py --episodes 64,512,4096`.

Episodes of 8,192 tokens in 8 turns, 2,048 of them sampled, in groups of 8. For each number of episodes: credit (iStar), collating rows,
the loss and its gradient by log-probs, and the calls of one step through the SDK to a server in a process of its own that computes
nothing and answers after given latencies. Wall seconds, megabytes on the wire, and the client's largest memory. Sampling is measured on
`--sampled` episodes, a turn at a time, all requests of a turn in flight together, twice: members of a group share the request of their
first turn, and every row is a request of its own. Beside it the first turn of one group, which is all that questions of one turn are.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import time
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

import numpy as np

from stepwell.credit import IStar, by_turn
from stepwell.engine.batch import policy_rows
from stepwell.engine.carrier import Carrier
from stepwell.engine.patience import Patience
from stepwell.engine.remote_requests import shared
from stepwell.engine.servers import server_kind
from stepwell.engine.service import Asked
from stepwell.engine.tinker_api import TinkerService, TinkerTrainee
from stepwell.engine.web import Web
from stepwell.losses import Clip, PolicyLoss, token_weights
from stepwell.protocols import OptimizerSpec
from stepwell.testing.wire import Wire
from stepwell.types import Action, Ending, EndingKind, Episode, Group, Observation, Reply, Scored, Stop, Task, Turn, Verdict

TURNS, CONTEXT, SAMPLED, MEMBERS = 8, 768, 256, 8


def serve(pipe: Connection, latency_s: dict[str, float]) -> None:
    """The server's process: says its port, and at the end what it saw."""
    with Wire(latency_s=latency_s) as wire:
        pipe.send(wire.url)
        while pipe.recv() != "end":
            pipe.send((wire.bytes_in, wire.bytes_out))


def episode(number: int, group: int, draw: np.random.Generator) -> Episode:
    """8 turns that extend each other."""
    ids = draw.integers(5, 30000, TURNS * (CONTEXT + SAMPLED))
    turns, at = [], 0
    for _ in range(TURNS):
        start, end = at + CONTEXT, at + CONTEXT + SAMPLED
        said = ids[start:end]
        reply = Reply(Observation("seen"))
        turns.append(Turn(ids[:start], said, np.full(SAMPLED, -1.0), "look", Action("look"), reply, Stop.EOS, 0))
        at = end
    task = Task(f"task/{group}", "do it", 0.5, "train")
    verdict = Verdict.of(float(number % 3 == 0))
    return Episode(task, number, Observation("start"), tuple(turns), Ending(EndingKind.TERMINATED), verdict)


def scored_groups(episodes: int) -> list[Group[Scored]]:
    draw = np.random.default_rng(0)
    groups = []
    for g in range(episodes // MEMBERS):
        members = []
        for m in range(MEMBERS):
            made = episode(m, g, draw)
            steps = by_turn(made)
            reward = draw.normal(size=len(steps))
            scored = np.ones(len(steps), np.bool_)
            members.append(Scored(made, steps, made.verdict.score, {"judge": reward}, scored))
        groups.append(Group(members[0].episode.task, tuple(members)))
    return groups


def timed(found: dict[str, float], name: str, start: float) -> float:
    now = time.perf_counter()
    found[name] = now - start
    return now


def measure(episodes: int, trainee: TinkerTrainee, pipe: Connection) -> dict[str, float]:
    """One step on this many episodes."""
    groups = scored_groups(episodes)
    found: dict[str, float] = {"episodes": episodes, "tokens": episodes * TURNS * (CONTEXT + SAMPLED)}
    now = time.perf_counter()
    credited = IStar()(groups)
    now = timed(found, "credit_s", now)
    rows = policy_rows(credited, lambda n: token_weights(n, "token"), lambda scored: scored.episode.logprobs_T)
    timed(found, "collate_s", now)
    loss = PolicyLoss(Clip(0.2, 0.28), old="given", level="step", pooling="mean")
    before = seen(pipe)
    carrier = Carrier(trainee, server_kind("skyrl-jax").dialect, OptimizerSpec())
    real = trainee.forward
    spent = 0.0

    def forward(data: list) -> list:  # type: ignore[type-arg]
        nonlocal spent
        start = time.perf_counter()
        made = real(data)
        spent = time.perf_counter() - start
        return made

    trainee.forward = forward  # type: ignore[method-assign, assignment]
    now = time.perf_counter()
    carrier.backward([replace(row, old_logprobs=np.full(len(row.targets), -1.0)) for row in rows], loss)
    found["forward_s"] = spent
    found["gradient_s"] = time.perf_counter() - now - spent
    trainee.forward = real  # type: ignore[method-assign]
    now = time.perf_counter()
    carrier.step(1e-5)
    timed(found, "forward_backward_and_step_s", now)
    after = seen(pipe)
    found["sent_MB"], found["received_MB"] = ((b - a) / 1e6 for a, b in zip(before, after, strict=True))
    found["peak_memory_GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return found


def sampling(episodes: int, trainee: TinkerTrainee, pipe: Connection, most: int | None) -> dict[str, float]:
    """The turns of these episodes, each turn's requests together: members of a group see the same in their first turn."""
    draw = np.random.default_rng(1)
    speaker = trainee.speaker()
    before, start, sent = seen(pipe), time.perf_counter(), 0
    for turn in range(TURNS):
        length = CONTEXT + turn * (CONTEXT + SAMPLED)
        contexts = [draw.integers(5, 30000, length) for _ in range(episodes // MEMBERS if turn == 0 else episodes)]
        asked = [Asked(contexts[i // MEMBERS if turn == 0 else i], SAMPLED, 1.0, (2,), 1000 * turn + i) for i in range(episodes)]
        requests = shared(asked, most)
        sent += len(requests)
        speaker.sample([one.asked for one in requests])
    after = seen(pipe)
    found = {"episodes": episodes, "shared": float(most is None), "requests": sent, "sampling_s": time.perf_counter() - start}
    return found | {name: (b - a) / 1e6 for name, a, b in zip(("sent_MB", "received_MB"), before, after, strict=True)}


def first_turn(trainee: TinkerTrainee, pipe: Connection, most: int | None) -> dict[str, float]:
    """Kilobytes sent for the first turn of one group."""
    context = np.random.default_rng(2).integers(5, 30000, CONTEXT)
    requests = shared([Asked(context, SAMPLED, 1.0, (2,), member) for member in range(MEMBERS)], most)
    speaker = trainee.speaker()
    speaker.sample([requests[0].asked._replace(samples=1)])  # opens what is opened once
    before = seen(pipe)[0]
    speaker.sample([one.asked for one in requests])
    return {"members": MEMBERS, "shared": float(most is None), "requests": len(requests), "sent_kB": (seen(pipe)[0] - before) / 1e3}


def seen(pipe: Connection) -> tuple[int, int]:
    pipe.send("seen")
    got: tuple[int, int] = pipe.recv()
    return got


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", default="64,512,4096")
    parser.add_argument("--sampled", type=int, default=64)
    parser.add_argument("--latency", default="{}", help='seconds of each call, such as {"forward_backward": 0.5}')
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.pop("TINKER_API_KEY", None)
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=serve, args=(other, json.loads(arguments.latency)), daemon=True)
    process.start()
    url = pipe.recv()
    service = TinkerService(Web(url, "TINKER_API_KEY", "refused"), server_kind("skyrl-jax"), "base", Patience())
    trainee = service.create(8, 0)
    asks = (partial(first_turn, trainee, pipe), partial(sampling, arguments.sampled, trainee, pipe))
    results = [ask(most) for most in (None, 1) for ask in asks]
    results += [measure(int(n), trainee, pipe) for n in arguments.episodes.split(",")]
    pipe.send("end")
    if arguments.json:
        print(json.dumps(results, indent=1))
        return
    for found in results:
        print("  ".join(f"{name} {value:,.2f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
