"""Rollouts with keys and values kept across turns, against feeding the whole history at every turn: `python bench/rollout.py`.

By default a tiny model in the generated shop; `--model smollm2-135m-instruct --data DIR` is a pretrained model on WebShop's long pages
(DIR holds its products). The policy says what it says (a few tokens a turn) and the shop does what the expert would have done, so that
episodes have the lengths of a trained policy's without training one. Both ways play the same episodes with the same seeds, by turns;
seconds are of CPU (all threads), the least of `--repeats`. Prints one JSON object: `ratio` is seconds without over seconds with the cache,
`same_tokens` whether both sampled the same, `padding` the share of padding among all positions computed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET
from stepwell.engine.load import compute_dtype, load_pretrained
from stepwell.engine.local import LocalEngine, LocalPolicy, Text
from stepwell.engine.tiny import TinySpec, tiny_model, word_tokenizer
from stepwell.envs.shop import ShopDomain
from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings
from stepwell.protocols import Domain, Environment
from stepwell.rollout import Limits, Player, rollout
from stepwell.types import Action, Completion, Episode, Ids, Invalid, Observation, Reply, Sampling, Task, Tool, Verdict

CPU = torch.device("cpu")


@dataclass
class Guided:
    """An environment in which the expert acts, whatever the policy says."""

    world: Environment
    plan: Sequence[Action]
    taken: int = 0

    @property
    def tools(self) -> Sequence[Tool]:
        return self.world.tools

    def start(self) -> Observation:
        return self.world.start()

    def step(self, action: Action | Invalid) -> Reply:
        reply = self.world.step(self.plan[self.taken])
        self.taken += 1
        return replace(reply, done=self.taken == len(self.plan))


@dataclass
class GuidedDomain:
    """A domain whose episodes are all guided."""

    domain: Domain
    plans: dict[str, Sequence[Action]] = field(default_factory=dict)

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        return self.domain.task(difficulty, seed, split)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks that the expert can solve."""
        found = []
        for task in self.domain.tasks(split):
            plan = self.domain.expert(task)
            if plan:
                self.plans[task.key] = plan
                found.append(task)
        return found

    def environment(self, task: Task, member: int) -> Guided:
        return Guided(self.domain.environment(task, member), self.plans[task.key])

    def grade(self, episode: Episode) -> Verdict:
        return Verdict.of(0.0)

    def expert(self, task: Task) -> Sequence[Action]:
        return self.plans[task.key]


@dataclass
class Forgetful:
    """A policy that feeds the whole history at every turn."""

    policy: LocalPolicy

    @property
    def version(self) -> int:
        return self.policy.version

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        self.policy.forget()
        return self.policy.sample(contexts, sampling, seeds)

    def logprobs(self, rows: Sequence[object]) -> list[object]:
        raise NotImplementedError


def tiny() -> tuple[GuidedDomain, LocalEngine, Player]:
    domain = ShopDomain()
    texts = [*domain.vocabulary, "search[] click[] filter[] buy[]"]
    tokenizer = word_tokenizer(texts, 4096)
    chat = Chat.of(tokenizer)
    engine = LocalEngine(tiny_model(len(tokenizer), TinySpec(), seed=0), Text(tokenizer.decode, chat.eos_ids))
    return GuidedDomain(domain), engine, Player(chat, BRACKET, Sampling(max_tokens=6), Limits(turns=8, context=engine.max_length))


def pretrained(name: str, data: Path, dtype: torch.dtype) -> tuple[GuidedDomain, LocalEngine, Player]:
    domain = WebShopDomain(WebShopSettings(data))
    module, tokenizer = load_pretrained(name, dtype, CPU)
    task = domain.tasks("test")[0]
    chat = Chat.of(tokenizer, system=BRACKET.describe(domain.environment(task, 0).tools))
    engine = LocalEngine(module, Text(tokenizer.decode, chat.eos_ids))
    return GuidedDomain(domain), engine, Player(chat, BRACKET, Sampling(max_tokens=12), Limits(turns=8, context=engine.max_length))


def play(
    domain: GuidedDomain, tasks: Sequence[Task], policy: LocalPolicy | Forgetful, player: Player, size: int
) -> tuple[list[Episode], float]:
    begin = time.process_time()
    groups = rollout(domain, tasks, policy, player, group_size=size, seed=(0, "bench"))
    return [episode for group in groups for episode in group.members], time.process_time() - begin


def tokens(episodes: Sequence[Episode]) -> list[list[int]]:
    return [turn.token_ids.tolist() for episode in episodes for turn in episode.turns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="tiny, or a model that engine.model names")
    parser.add_argument("--data", type=Path, help="folder of WebShop's products, for a pretrained model")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="float32")
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.model != "tiny" and options.data is None:
        parser.error("a pretrained model plays in WebShop: give --data DIR")
    made = tiny() if options.model == "tiny" else pretrained(options.model, options.data, compute_dtype(options.dtype, CPU))
    domain, engine, player = made
    tasks = domain.tasks("test")[: options.tasks]
    seconds: dict[str, list[float]] = {"kept": [], "forgotten": []}
    episodes: dict[str, list[Episode]] = {}
    work = {}
    for _ in range(options.repeats):
        for name, taken in seconds.items():
            policy = engine.as_it_is()
            used = policy if name == "kept" else Forgetful(policy)
            episodes[name], cpu_s = play(domain, tasks, used, player, options.group_size)
            taken.append(cpu_s)
            work[name] = policy.work
    kept, forgotten = min(seconds["kept"]), min(seconds["forgotten"])
    played = episodes["kept"]
    texts = [len(e.turns[-1].context_ids) + len(e.turns[-1].token_ids) for e in played]
    result = {
        "model": options.model,
        "dtype": str(engine.as_it_is().dtype).removeprefix("torch."),
        "episodes": len(played),
        "turns_per_episode": round(sum(len(e.turns) for e in played) / len(played), 2),
        "tokens_per_episode": round(sum(texts) / len(played), 1),
        "sampled_per_episode": round(sum(e.num_tokens for e in played) / len(played), 1),
        "ratio": round(forgotten / kept, 2),
        "same_tokens": tokens(played) == tokens(episodes["forgotten"]),
        "kept": _figures(kept, played, work["kept"].positions, work["kept"].padding_share),
        "forgotten": _figures(forgotten, played, work["forgotten"].positions, work["forgotten"].padding_share),
    }
    print(json.dumps(result, indent=2))


def _figures(cpu_s: float, episodes: Sequence[Episode], positions: int, padding: float) -> dict[str, float]:
    return {
        "cpu_s": round(cpu_s, 3),
        "episodes_per_s": round(len(episodes) / cpu_s, 1),
        "sampled_tokens_per_s": round(sum(e.num_tokens for e in episodes) / cpu_s, 1),
        "positions": positions,
        "padding": round(padding, 3),
    }


if __name__ == "__main__":
    main()
