"""The seams: what a part must offer to be used by the others.

No inheritance: any class with these methods fits. `stepwell.testing` has a contract check for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from stepwell.types import (
    JSON,
    Action,
    Batch,
    Completion,
    Credited,
    Episode,
    Floats,
    Group,
    Ids,
    Invalid,
    Metrics,
    Observation,
    Outputs,
    Reply,
    Row,
    Sampling,
    Scored,
    Tallies,
    Task,
    Tool,
    Verdict,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Assign",
    "Capabilities",
    "Curriculum",
    "Domain",
    "Engine",
    "Environment",
    "KeptPolicy",
    "Loss",
    "Model",
    "ModelSpec",
    "OptimizerSpec",
    "Policy",
    "ProcessReward",
    "RewardLearner",
    "Saveable",
    "Stateful",
]


class Stateful(Protocol):
    """A part whose state belongs in a checkpoint: JSON-able, exact."""

    def state(self) -> dict[str, JSON]: ...
    def restore(self, state: dict[str, JSON]) -> None: ...


class Saveable(Protocol):
    """A part with weights: what it writes into a folder it reads back exactly."""

    def save(self, path: Path) -> None: ...
    def load(self, path: Path) -> None: ...


class Environment(Protocol):
    """One episode's world. Single use; deterministic given (task, member): any state is reached again by replaying the actions."""

    @property
    def tools(self) -> Sequence[Tool]: ...
    def start(self) -> Observation: ...
    def step(self, action: Action | Invalid) -> Reply: ...


class Domain(Protocol):
    """Tasks, worlds, verdicts and experts belong together."""

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """A task of about this difficulty; the same arguments give the same task."""
        ...

    def tasks(self, split: str) -> Sequence[Task]:
        """The finite, ordered tasks of a split (empty where tasks are only generated)."""
        ...

    def environment(self, task: Task, member: int) -> Environment: ...
    def grade(self, episode: Episode) -> Verdict: ...
    def expert(self, task: Task) -> Sequence[Action] | None:
        """Actions that solve the task, or None where no expert is known."""
        ...


class Policy(Protocol):
    """Weights frozen at `version`. Used after the model moved on it raises `StaleWeightsError`, unless it was kept."""

    @property
    def version(self) -> int: ...
    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        """One completion for each context. Full contexts go in; a cached prefix is found by the engine itself.

        Args:
            contexts: Token ids that the model sees, each [L].
            sampling: One for each context (token limits may differ; temperature and stop strings must agree).
            seeds: One for each context; a row's tokens depend on its own seed, not on its neighbours (but see
                `ServerKind.samples_follow` for servers of which that is not known).
        """
        ...

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        """Log-probs of each row's targets, by the trainer's forward path, each [N]."""
        ...


class KeptPolicy(Policy, Saveable, Protocol):
    """A copy of weights, such as a reference."""


@runtime_checkable
class SamplesAhead(Protocol):
    """A model whose weights can go on sampling while it learns: where they are copied to a sampler."""

    def ahead(self) -> Policy:
        """The present weights for sampling alone, until the model is asked for weights to sample with again."""
        ...


@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """`adamw`; `muon`: Muon on hidden matrices and AdamW on all else at `rest_scale` x its learning rate; `sgd`: plain gradient descent."""

    kind: Literal["adamw", "muon", "sgd"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    rest_scale: float = 0.6


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What one model on a shared base is.

    Attributes:
        kind: `full` weights, `lora` adapter over the frozen base, or `head`: a scalar on the hidden states of `of`.
        of: For `head`: the model whose hidden states are read. For `full`/`lora`: the model whose present weights are copied at the
            start, or None for the base.
        trunk: For `head`: `shared` reads the hidden states of `of` and sends no gradient into them; `own` reads a copy of `of` (full
            weights or adapter, as `of` is) that learns with it.
        rank, alpha: Of the adapter.
        temperature: Log-probs are those at this sampling temperature.
    """

    kind: Literal["full", "lora", "head"] = "full"
    of: str | None = None
    rank: int = 16
    alpha: float = 32.0
    temperature: float = 1.0
    optimizer: OptimizerSpec = OptimizerSpec()
    trunk: Literal["shared", "own"] = "shared"


class Loss(Protocol):
    """A differentiable function of a model's outputs. It sees outputs, never models.

    `spans_rows` is False where the loss is a plain sum over tokens (or over quantities that lie inside one row), so that micro-batches
    may be run one after the other. Where True, `Model.backward` runs `forward` on all rows first, differentiates with respect to
    the outputs, and sends the result as weights: exact for any micro-batch size.
    """

    @property
    def spans_rows(self) -> bool: ...
    @property
    def wants(self) -> frozenset[str]:
        """Of {"entropy", "values", "certainty"}: the outputs that it reads beside log-probs."""
        ...

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]: ...


class Model(Saveable, Protocol):
    """One trainable model."""

    @property
    def version(self) -> int: ...
    def forward(self, rows: Sequence[Row], want: frozenset[str] = frozenset()) -> list[dict[str, Floats]]:
        """Without gradient: for each row `{"logprobs": [N], ...wanted}` as float64."""
        ...

    def backward(self, rows: Sequence[Row], loss: Loss) -> Metrics:
        """Adds the gradient of the loss (a plain weighted sum over all rows) to what is there."""
        ...

    def step(self, lr: float) -> Metrics:
        """Clips, applies and clears the gradient; `version` grows by one."""
        ...

    def snapshot(self) -> Policy:
        """The present weights as a policy; stale once the model has moved on."""
        ...

    def keep(self) -> KeptPolicy:
        """A copy of the present weights: a reference."""
        ...

    def restart_optimizer(self, spec: OptimizerSpec) -> None:
        """Fresh optimiser state, e.g. between warm start and RL."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can carry."""

    kinds: frozenset[str]
    entropy: bool
    values: bool
    certainty: bool = False


class Engine(Protocol):
    """One base, several models on it."""

    @property
    def capabilities(self) -> Capabilities: ...
    def model(self, name: str, spec: ModelSpec) -> Model: ...


class ProcessReward(Protocol):
    """Judges every step; knows episodes, not trainers. All groups of a step come in one call."""

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]: ...


@runtime_checkable
class RewardLearner(ProcessReward, Stateful, Protocol):
    """A judge that learns, or the critic."""

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics: ...
    def models(self) -> dict[str, Saveable]:
        """All its weights by name, for the checkpoint."""
        ...


class Curriculum(Stateful, Protocol):
    """What to ask next, and which groups may train."""

    def draw(self, n: int, step: int) -> list[Task]: ...
    def admit(self, group: Group[Episode]) -> bool: ...
    def observe(self, groups: Sequence[Group[Episode]]) -> Metrics: ...


Assign = Callable[[Sequence[Group[Scored]]], list[Group[Credited]]]
