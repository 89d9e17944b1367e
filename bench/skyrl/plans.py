"""The runs of `real.py`, as configs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["LEARNING", "SHORT", "Plan"]

RUN = """
name: real
steps: {steps}
domain: {{kind: maze, view: place, difficulty: [0, 0], test_tasks: 100, seed: 1}}
engine: {{kind: remote, url: "{url}", model: {base}, server: skyrl-jax, rank: 8, threads: 1, gone_s: 8.0, timeout_s: 900.0}}
chat: {{tools: false, context: observation}}
cloning: {{steps: {warm}, batch: 8, optimizer: {{kind: adamw, lr: 1e-3, warmup: 0, max_grad_norm: 1e6}}}}
rollout: {{groups: {groups}, group_size: 8, turns: {turns}, max_tokens: 6}}
reward: {reward}
credit: {credit}
curriculum: {{kind: uniform, difficulty: [0, 0]}}
optimizer: {{lr: 2e-3, betas: [0.9, 0.95], max_grad_norm: 1e6}}
evaluation: {{every: 0, episodes: {episodes}}}
checkpoint: {{every: 1}}
"""
JUDGE = ("{kind: implicit, model: lora, lr: 1e-3, max_grad_norm: 1e6}", "{kind: istar, alpha: 0.1}")
OUTCOME = ("{kind: outcome}", "{kind: grpo}")


@dataclass(frozen=True)
class Plan:
    """A run.

    Attributes:
        reward, credit: As YAML.
        steps, warm: Of learning from rewards, and of cloning before.
        groups: Tasks of a step, eight episodes each.
        episodes: Held-out tasks, before and after.
    """

    name: str
    reward: str
    credit: str
    steps: int
    warm: int
    groups: int
    episodes: int
    turns: int = 8

    def write(self, url: str, base: Path, folder: Path) -> Path:
        """Its config, for the server at this address."""
        facts = {name: getattr(self, name) for name in ("steps", "warm", "groups", "reward", "credit", "episodes", "turns")}
        file = folder / f"{self.name}.yaml"
        file.write_text(RUN.format(url=url, base=base, **facts), encoding="utf-8")
        return file


LEARNING = {
    "outcome": Plan("outcome", *OUTCOME, steps=12, warm=0, groups=8, episodes=100),
    "judge": Plan("judge", *JUDGE, steps=12, warm=0, groups=8, episodes=100),
}
"""Does success rise? Without a judge, and with one. What comes out is said, and fails nothing: no setting is known that learns in so few
steps."""
SHORT = Plan("short", *JUDGE, steps=2, warm=4, groups=2, episodes=4, turns=4)
"""What is killed, and what four devices repeat."""
