"""The runs of `real.py`, as configs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["BASE", "LEARNING", "SHORT", "Plan"]

MOVES = 3
BASE = [
    *("train", "reasoning", "domain.axes={modulus: 97, factors: 4}", "difficulty=[0.1,1.0]", "expert_slips=0.2", "test_tasks=50"),
    *("engine.threads=1", "cloning.steps=1200", "steps=0", "reward.kind=outcome", "credit.kind=rloo", "rollout.turns=15", "seed=90"),
    *("evaluation.every=0", "evaluation.episodes=1", "engine.corpus_tasks=60"),
]
"""How the base is made: it knows every product, and has the habit of its expert, who gets one line in five wrong. From so many tasks its
vocabulary is of 218 words: tensor parallelism wants to halve it."""
RUN = """
name: real
seed: {seed}
steps: {steps}
domain: {{kind: reasoning, task: recurrence, axes: {{moves: {moves}, modulus: 97, factors: 4}}, expert_slips: 0.2, test_tasks: 60}}
engine: {{kind: remote, url: "{url}", model: {base}, server: skyrl-jax, rank: 8, threads: 1, gone_s: 8.0, timeout_s: 900.0}}
chat: {{tools: false}}
cloning: {{steps: {warm}, batch: 8, optimizer: {{kind: adamw, lr: 1e-3, warmup: 0, max_grad_norm: 1e6}}}}
rollout: {{groups: {groups}, group_size: 8, turns: 4, max_tokens: 12}}
reward: {reward}
credit: {credit}
optimizer: {{lr: 3e-3, warmup: 3, betas: [0.9, 0.95], max_grad_norm: 1e6}}
evaluation: {{every: 0, episodes: {episodes}}}
checkpoint: {{every: 1}}
"""
JUDGE = ("{kind: implicit, model: lora, lr: 1e-3, max_grad_norm: 1e6}", "{kind: istar, baseline: rloo, alpha: 0.1}")
OUTCOME = ("{kind: outcome}", "{kind: rloo}")


@dataclass(frozen=True)
class Plan:
    """A run.

    Attributes:
        reward, credit: As YAML.
        steps, warm: Of learning from rewards, and of cloning before.
        groups: Tasks of a step, eight episodes each.
        episodes: Held-out tasks, before and after.
        seed: Of the run.
    """

    name: str
    reward: str
    credit: str
    steps: int
    warm: int
    groups: int
    episodes: int
    seed: int = 0

    def write(self, url: str, base: Path, folder: Path) -> Path:
        """Its config, for the server at this address."""
        facts = {name: getattr(self, name) for name in ("steps", "warm", "groups", "reward", "credit", "episodes", "seed")}
        file = folder / f"{self.name}.yaml"
        file.write_text(RUN.format(url=url, base=base, moves=MOVES, **facts), encoding="utf-8")
        return file


LEARNING = {
    "outcome": Plan("outcome", *OUTCOME, steps=30, warm=0, groups=8, episodes=60),
    "judge": Plan("judge", *JUDGE, steps=30, warm=0, groups=8, episodes=60),
}
"""Does success rise? Without a judge, and with one. With the local engine and the same adapter it does (docs/lab.md)."""
SHORT = Plan("short", *JUDGE, steps=2, warm=4, groups=2, episodes=4)
"""What is killed, and what four devices repeat."""
