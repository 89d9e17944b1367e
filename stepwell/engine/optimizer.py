"""AdamW, Muon and plain gradient descent over float32 master weights (float64 ones stay), with an exact state on disk."""

from __future__ import annotations

import json
import math

import torch
from torch import Tensor, nn

from stepwell.errors import RunError
from stepwell.protocols import OptimizerSpec
from stepwell.types import Metrics

__all__ = ["Optimizer"]


class Optimizer:
    """Clips, steps, and keeps bfloat16 weights in line with their float32 masters.

    With `muon`, hidden matrices take Muon (Jordan et al. 2024, `torch.optim.Muon` with match_rms_adamw) and all else AdamW at
    `rest_scale` x the learning rate. Plain gradient descent (`sgd`) has no state.

    Args:
        params: The weights that are computed with, by name.
        spec: Kind and settings.
        matrices: Names of the weights that map hidden states to hidden states (no embedding, no vocabulary projection, no head).
        masters: Weights of the same names, float32 or more; None makes them from `params` (they are the same where those are precise).
    """

    def __init__(
        self,
        params: dict[str, nn.Parameter],
        spec: OptimizerSpec,
        *,
        matrices: frozenset[str] = frozenset(),
        masters: dict[str, nn.Parameter] | None = None,
    ) -> None:
        self.params, self.spec, self.matrices = params, spec, matrices
        precise = (torch.float32, torch.float64)
        self.masters = masters or {n: p if p.dtype in precise else nn.Parameter(p.detach().float()) for n, p in params.items()}
        hidden = [n for n in params if n in matrices] if spec.kind == "muon" else []
        rest = [n for n in params if n not in set(hidden)]
        self._parts: list[tuple[torch.optim.Optimizer, float, list[str]]] = []
        if hidden:
            muon = torch.optim.Muon(
                [self.masters[n] for n in hidden], lr=0.0, weight_decay=spec.weight_decay, adjust_lr_fn="match_rms_adamw"
            )
            self._parts.append((muon, 1.0, hidden))
        if rest and spec.kind == "sgd":
            sgd = torch.optim.SGD([self.masters[n] for n in rest], lr=0.0, weight_decay=spec.weight_decay)
            self._parts.append((sgd, 1.0, rest))
        elif rest:
            adamw = torch.optim.AdamW(
                [self.masters[n] for n in rest], lr=0.0, betas=spec.betas, eps=spec.eps, weight_decay=spec.weight_decay
            )
            self._parts.append((adamw, spec.rest_scale if hidden else 1.0, rest))

    def restarted(self, spec: OptimizerSpec) -> Optimizer:
        """The same weights under fresh optimiser state, with no gradient."""
        self.drop_gradient()
        return Optimizer(self.params, spec, matrices=self.matrices, masters=self.masters)

    def gather(self) -> None:
        """Adds gradients of low-precision weights to their masters' and clears them (float32 accumulation over micro-batches)."""
        for name, parameter in self.params.items():
            master = self.masters[name]
            if master is not parameter and parameter.grad is not None:
                grad = parameter.grad.float()
                master.grad = grad if master.grad is None else master.grad.add_(grad)
                parameter.grad = None

    def drop_gradient(self) -> None:
        """Forgets what was gathered since the last update."""
        for weight in (*self.masters.values(), *self.params.values()):
            weight.grad = None

    def step(self, lr: float) -> Metrics:
        """One update. A gradient that is not finite is not applied, and counted; one that is exactly 0 moves nothing, momentum included."""
        grads = [m.grad for m in self.masters.values() if m.grad is not None]
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))) if grads else 0.0
        if math.isfinite(norm) and norm > 0:
            if norm > self.spec.max_grad_norm:
                torch._foreach_mul_(grads, self.spec.max_grad_norm / norm)
            for part, scale, _ in self._parts:
                for group in part.param_groups:
                    group["lr"] = lr * scale
                part.step()
            self.publish()
        self.drop_gradient()
        return {"grad_norm": norm, "skipped_updates": float(not math.isfinite(norm))}

    @torch.no_grad()
    def publish(self) -> None:
        """Rounds masters to the weights that are computed with."""
        for name, parameter in self.params.items():
            if self.masters[name] is not parameter:
                parameter.copy_(self.masters[name])

    @torch.no_grad()
    def take(self, other: Optimizer) -> None:
        """The weights of another optimiser, in its order, at full precision; moments stay as they are."""
        for mine, theirs in zip(self.masters.values(), other.masters.values(), strict=True):
            mine.copy_(theirs)
        self.publish()

    # -- on disk --------------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], str]:
        """Tensors (weights and moments) and JSON facts."""
        tensors: dict[str, Tensor] = {f"weight/{n}": m.data for n, m in self.masters.items()}
        for part, _, names in self._parts:
            for name in names:
                for key, value in part.state[self.masters[name]].items():
                    tensors[f"moment/{key}/{name}"] = torch.as_tensor(value)
        return tensors, json.dumps({"kind": self.spec.kind})

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], facts: str) -> None:
        """Puts back what `state` gave; a gradient gathered meanwhile is dropped.

        Raises:
            RunError: The tensors are of another model or optimiser. Nothing is changed then.
        """
        kind = json.loads(facts)["kind"]
        weights = {n.removeprefix("weight/"): t for n, t in tensors.items() if n.startswith("weight/")}
        self._check(kind, weights)
        moments: dict[str, dict[str, Tensor]] = {}
        for full, tensor in tensors.items():
            if full.startswith("moment/"):
                _, key, name = full.split("/", 2)
                moments.setdefault(name, {})[key] = tensor
        for name, master in self.masters.items():
            master.copy_(weights[name])
        for part, _, names in self._parts:
            part.state.clear()
            for name in names:
                if name in moments:
                    device = self.masters[name].device
                    # AdamW keeps its count of steps on the host.
                    part.state[self.masters[name]] = {
                        key: value.clone() if key == "step" else value.clone().to(device) for key, value in moments[name].items()
                    }
        self.drop_gradient()
        self.publish()

    def _check(self, kind: str, weights: dict[str, Tensor]) -> None:
        advice = "Resume with the config that the checkpoint was made with."
        if kind != self.spec.kind or set(weights) != set(self.masters):
            raise RunError(
                f"The checkpoint holds {len(weights)} weights under optimiser {kind!r}; "
                f"this model has {len(self.masters)} under {self.spec.kind!r}. {advice}"
            )
        for name, master in self.masters.items():
            if weights[name].shape != master.shape:
                raise RunError(
                    f"The checkpoint's weight {name} has shape {tuple(weights[name].shape)}; "
                    f"this model's has {tuple(master.shape)}. {advice}"
                )
