"""AdamW and Muon over float32 master weights, with an exact state on disk."""

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
    `rest_scale` x the learning rate.
    """

    def __init__(self, params: dict[str, nn.Parameter], spec: OptimizerSpec, masters: dict[str, nn.Parameter] | None = None) -> None:
        self.params, self.spec = params, spec
        self.masters = masters or {n: p if p.dtype == torch.float32 else nn.Parameter(p.detach().float()) for n, p in params.items()}
        hidden = [n for n, p in params.items() if spec.kind == "muon" and p.ndim == 2 and "embed" not in n and "lm_head" not in n]
        rest = [n for n in params if n not in set(hidden)]
        self._parts: list[tuple[torch.optim.Optimizer, float]] = []
        if hidden:
            muon = torch.optim.Muon(
                [self.masters[n] for n in hidden], lr=0.0, weight_decay=spec.weight_decay, adjust_lr_fn="match_rms_adamw"
            )
            self._parts.append((muon, 1.0))
        if rest:
            adamw = torch.optim.AdamW(
                [self.masters[n] for n in rest], lr=0.0, betas=spec.betas, eps=spec.eps, weight_decay=spec.weight_decay
            )
            self._parts.append((adamw, spec.rest_scale if hidden else 1.0))

    def gather(self) -> None:
        """Adds gradients of low-precision weights to their masters' and clears them (float32 accumulation over micro-batches)."""
        for name, parameter in self.params.items():
            master = self.masters[name]
            if master is not parameter and parameter.grad is not None:
                grad = parameter.grad.float()
                master.grad = grad if master.grad is None else master.grad.add_(grad)
                parameter.grad = None

    def step(self, lr: float) -> Metrics:
        """One update. A gradient that is not finite is not applied, and counted."""
        grads = [m.grad for m in self.masters.values() if m.grad is not None]
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))) if grads else 0.0
        applied = bool(grads) and math.isfinite(norm)
        if applied:
            if norm > self.spec.max_grad_norm:
                torch._foreach_mul_(grads, self.spec.max_grad_norm / norm)
            for part, scale in self._parts:
                for group in part.param_groups:
                    group["lr"] = lr * scale
                part.step()
            self._publish()
        for master in self.masters.values():
            master.grad = None
        return {"grad_norm": norm, "skipped_updates": float(not applied)}

    @torch.no_grad()
    def _publish(self) -> None:
        for name, parameter in self.params.items():
            if self.masters[name] is not parameter:
                parameter.copy_(self.masters[name])

    def state(self) -> tuple[dict[str, Tensor], str]:
        """Tensors (weights and moments) and JSON facts."""
        names = {id(m): n for n, m in self.masters.items()}
        tensors: dict[str, Tensor] = {f"weight/{n}": m.data for n, m in self.masters.items()}
        for part, _ in self._parts:
            for master, moments in part.state.items():
                for key, value in moments.items():
                    tensors[f"moment/{names[id(master)]}/{key}"] = torch.as_tensor(value)
        return tensors, json.dumps({"kind": self.spec.kind})

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], facts: str) -> None:
        """Puts back what `state` gave.

        Raises:
            RunError: The tensors are of another model or optimiser.
        """
        kind = json.loads(facts)["kind"]
        weights = {n.removeprefix("weight/"): t for n, t in tensors.items() if n.startswith("weight/")}
        if kind != self.spec.kind or set(weights) != set(self.masters):
            raise RunError(
                f"The checkpoint holds {len(weights)} weights under optimiser {kind!r}; this model has {len(self.masters)} under {self.spec.kind!r}. "
                "Resume with the config that the checkpoint was made with."
            )
        for name, master in self.masters.items():
            master.copy_(weights[name])
        for part, _ in self._parts:
            part.state.clear()
            for group in part.param_groups:
                for master in group["params"]:
                    name = next(n for n, m in self.masters.items() if m is master)
                    prefix = f"moment/{name}/"
                    moments = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
                    if moments:
                        part.state[master] = {k: t.clone() if k == "step" else t.clone().to(master.device) for k, t in moments.items()}
        self._publish()
