"""What sampling ahead saves against a server of given latencies.

    python bench/ahead.py [--steps 8] [--latency '{"asample": 0.3, "forward_backward": 0.6}']

The loop of training through the SDK to a server in a process of its own that computes nothing and takes its time: three turns of sampling,
the trainer's log-probs, and an update for each step. The same with and without `rollout.ahead`, by turns. Prints one JSON object: median
seconds of a step, and their ratio. What can be hidden is the shorter of sampling and learning.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import numpy as np

from stepwell.credit import LeaveOneOut, OutcomeOnly, by_turn
from stepwell.curriculum import Uniform
from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET
from stepwell.engine.local import Text
from stepwell.engine.patience import Patience
from stepwell.engine.remote import RemoteEngine
from stepwell.engine.servers import server_kind
from stepwell.engine.spoken import SpokenTokenizer
from stepwell.engine.tinker_api import TinkerService
from stepwell.engine.web import Web
from stepwell.envs.cave import CaveDomain
from stepwell.losses import PolicyLoss, Truncated
from stepwell.protocols import ModelSpec, OptimizerSpec
from stepwell.rollout import Limits, Player
from stepwell.testing.wire import Wire
from stepwell.trainer import Learning, Parts, Schedule, StepResult, Trainer
from stepwell.types import Episode, Group, Sampling, Scored

LATENCY = {"asample": 0.3, "forward": 0.3, "forward_backward": 0.6, "optim_step": 0.1}
OPTIMIZER = OptimizerSpec(max_grad_norm=1e6)


class FirstToken:
    """An outcome that any words have: whether the first token is even."""

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """See `protocols.ProcessReward`."""

        def paid(episode: Episode) -> Scored:
            steps = by_turn(episode)
            return Scored(episode, steps, float(episode.turns[0].token_ids[0] % 2 == 0), {}, np.zeros(len(steps), np.bool_))

        return [Group(group.task, tuple(map(paid, group.members))) for group in groups]


def serve(pipe: Connection, latency_s: dict[str, float]) -> None:
    """The server's process."""
    with Wire(latency_s=latency_s) as wire:
        pipe.send((wire.url, wire.base))
        pipe.recv()


def loop(url: str, base: str, ahead: bool) -> Iterator[StepResult]:
    """Steps of learning on the server."""
    tokenizer = SpokenTokenizer(("left[]", "right[]", "stop[]"))
    chat, domain = Chat.of(tokenizer), CaveDomain(num_test_tasks=4)
    text = Text(tokenizer.decode, chat.eos_ids)
    service = TinkerService(Web(url, "TINKER_API_KEY", "refused"), server_kind("skyrl-megatron"), base, Patience())
    parts = Parts(
        domain=domain,
        policy=RemoteEngine(service, text, 100_000).model("policy", ModelSpec(kind="lora", optimizer=OPTIMIZER)),
        player=Player(chat, BRACKET, Sampling(max_tokens=2), Limits(turns=3, context=100_000)),
        judge=FirstToken,
        assign=OutcomeOnly(LeaveOneOut()),
        curriculum=Uniform(domain, (0.0, 0.2), 3),
    )
    learning = Learning(
        steps=10_000,
        groups=2,
        group_size=4,
        loss=PolicyLoss(old="given", correction=Truncated(2.0)),
        schedule=Schedule(1e-4),
        optimizer=OPTIMIZER,
        old_logprobs="trainer",
        ahead=lambda step: ahead,
    )
    return Trainer(parts, seed=0, cloning=None, learning=learning).run()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--latency", type=json.loads, default=LATENCY, help="seconds of each call")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=serve, args=(other, args.latency), daemon=True)
    process.start()
    url, base = pipe.recv()
    arms = {ahead: loop(url, base, ahead) for ahead in (False, True)}
    seconds: dict[bool, list[float]] = {ahead: [] for ahead in arms}
    for number in range(args.steps + 1):
        for ahead, steps in arms.items():
            taken = next(steps).metrics["time/step_s"]
            if number:  # The first batch is sampled in place.
                seconds[ahead].append(taken)
    pipe.send("end")
    medians = {ahead: statistics.median(values) for ahead, values in seconds.items()}
    print(
        json.dumps(
            {"in place_s": round(medians[False], 3), "ahead_s": round(medians[True], 3), "ratio": round(medians[False] / medians[True], 2)}
        )
    )


if __name__ == "__main__":
    main()
