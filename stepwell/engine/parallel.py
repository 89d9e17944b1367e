"""Data parallel on one machine: the local engine over several processes, each with all weights and a share of the rows.

The lead runs the program as if it were alone: environments, credit, files. Its models hand out shares of what they are asked, and all
processes do the same updates on the sum of their gradients, so their weights stay equal. Followers do nothing but what they are told.
A head that reads another model's hidden states stays with the lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stepwell.engine.local import Budget, LocalEngine, LocalModel, LocalPolicy, Text
from stepwell.engine.model import NOTHING, added
from stepwell.engine.policy import check_temperature
from stepwell.engine.ranks import Ranks
from stepwell.engine.shared import distinct
from stepwell.protocols import Loss, ModelSpec, OptimizerSpec
from stepwell.types import Completion, Floats, Ids, Metrics, Row, Sampling, Tallies

__all__ = ["LeadEngine", "LeadModel", "LeadPolicy", "follow"]


def shares_of(rows: Sequence[Row], size: int) -> list[list[int]]:
    """Which rows each of `size` processes computes: by turns, from the longest to the shortest.

    >>> from types import SimpleNamespace
    >>> shares_of([SimpleNamespace(ids=range(n)) for n in (3, 9, 5, 7)], 2)
    [[1, 2], [3, 0]]
    """
    order = sorted(range(len(rows)), key=lambda i: (-len(rows[i].ids), i))
    return [order[number::size] for number in range(size)]


class LeadEngine(LocalEngine):
    """`LocalEngine` for the lead.

    Args:
        ranks: The processes.
    """

    def __init__(self, module: Any, text: Text, budget: Budget | None = None, seed: int = 0, *, ranks: Ranks) -> None:
        super().__init__(module, text, budget, seed)
        self.ranks = ranks
        self.kept = 0

    def model(self, name: str, spec: ModelSpec) -> LocalModel:
        """As in `LocalEngine`, here and at all followers."""
        model = super().model(name, spec)
        assert isinstance(model, LeadModel)
        model.name = name
        if model.shared is None:
            self.ranks.tell(("model", name, spec))
            self.ranks.answer(None)
        return model

    @property
    def model_type(self) -> type[LocalModel]:
        """Models that hand out shares."""
        return LeadModel


class LeadModel(LocalModel):
    """A model that hands out shares.

    Attributes:
        name: What the followers know it by.
        asking: Number of the kept weights in use; 0 is none.
    """

    name = ""
    asking = 0

    @property
    def _ranks(self) -> Ranks:
        assert isinstance(self.engine, LeadEngine)
        return self.engine.ranks

    @torch.no_grad()
    def say(self, rows: Sequence[Row], want: frozenset[str] = NOTHING) -> list[dict[str, Floats]]:
        """See `LocalModel.say`."""
        if self.shared is not None:
            return super().say(rows, want)
        asked, which = distinct(rows)
        shares = shares_of(asked, self._ranks.size)
        self._ranks.tell(("say", self.name, self.asking, [[asked[i] for i in share] for share in shares], want))
        pieces = self._ranks.answer(super().say([asked[i] for i in shares[0]], want))
        made = {i: piece for share, some in zip(shares, pieces, strict=True) for i, piece in zip(share, some, strict=True)}
        return [dict(made[i]) for i in which]

    def takes_two_passes(self, rows: Sequence[Row], loss: Loss, names: frozenset[str]) -> bool:
        """See `LocalModel.takes_two_passes`: no process sees all rows."""
        return super().takes_two_passes(rows, loss, names) or (self.shared is None and loss.spans_rows)

    def backward_one_pass(self, rows: Sequence[Row], loss: Loss) -> Tallies:
        """See `LocalModel.backward_one_pass`."""
        if self.shared is not None:
            return super().backward_one_pass(rows, loss)
        shares = [[rows[i] for i in sorted(share)] for share in shares_of(rows, self._ranks.size)]
        self._ranks.tell(("backward", self.name, shares, loss))
        total: Tallies = {}
        for tallies in self._ranks.answer(super().backward_one_pass(shares[0], loss)):
            total = added(total, tallies)
        return total

    def carry_back(self, rows: Sequence[Row], grads: dict[str, Tensor], want: frozenset[str]) -> None:
        """See `LocalModel.carry_back`."""
        if self.shared is not None:
            super().carry_back(rows, grads, want)
            return
        parts = []
        for share in shares_of(rows, self._ranks.size):
            width = max((len(rows[i].targets) for i in share), default=0)
            parts.append(([rows[i] for i in share], {name: grad[share, :width].cpu() for name, grad in grads.items()}))
        self._ranks.tell(("carry", self.name, parts, want))
        if parts[0][0]:
            super().carry_back(parts[0][0], {name: grad.to(self.trunk.device) for name, grad in parts[0][1].items()}, want)
        self._ranks.answer(None)

    def step(self, lr: float) -> Metrics:
        """See `LocalModel.step`."""
        if self.shared is not None:
            return super().step(lr)
        self._ranks.tell(("step", self.name, lr))
        self._ranks.add_gradients(self.optimizer)
        metrics = super().step(lr)
        self._ranks.answer(None)
        return metrics

    def restart_optimizer(self, spec: OptimizerSpec) -> None:
        """See `LocalModel.restart_optimizer`."""
        super().restart_optimizer(spec)
        self._follow(("restart", self.name, spec))

    def load(self, path: Path) -> None:
        """See `LocalModel.load`."""
        super().load(path)
        self._follow(("load", self.name, str(path.resolve())))

    def snapshot(self) -> LocalPolicy:
        """See `LocalModel.snapshot`."""
        self._check_speaks()
        return LeadPolicy(self, None, 0)

    def keep(self) -> LocalPolicy:
        """See `LocalModel.keep`."""
        self._check_speaks()
        assert isinstance(self.engine, LeadEngine)
        number = self.engine.kept = self.engine.kept + 1
        self._follow(("keep", self.name, number))
        return LeadPolicy(self, {name: parameter.detach().clone() for name, parameter in self.params.items()}, number)

    def _follow(self, order: tuple[Any, ...]) -> None:
        if self.shared is None:
            self._ranks.tell(order)
            self._ranks.answer(None)


class LeadPolicy(LocalPolicy):
    """A policy that hands out contexts. An episode stays with the process that has its keys and values."""

    def __init__(self, model: LeadModel, kept: dict[str, Tensor] | None, number: int) -> None:
        super().__init__(model, kept)
        self._lead, self._number = model, number
        self._seats: list[tuple[Ids, int]] = []

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        """See `LocalPolicy.sample`."""
        self._check_present()
        check_temperature(self._lead.spec.temperature, sampling)
        self._lead.last_said.forget()
        ranks, where = self._lead._ranks, self._assigned(contexts)
        shares = [[i for i, owner in enumerate(where) if owner == number] for number in range(ranks.size)]
        parts = [([contexts[i] for i in s], [sampling[i] for i in s], [seeds[i] for i in s]) for s in shares]
        ranks.tell(("sample", self._lead.name, self._number, parts))
        pieces = ranks.answer(super().sample(*parts[0]) if parts[0][0] else [])
        made = {i: piece for share, some in zip(shares, pieces, strict=True) for i, piece in zip(share, some, strict=True)}
        return [made[i] for i in range(len(contexts))]

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        """See `LocalPolicy.logprobs`."""
        self._lead.asking = self._number
        try:
            return super().logprobs(rows)
        finally:
            self._lead.asking = 0

    def load(self, path: Path) -> None:
        """See `LocalPolicy.load`."""
        super().load(path)
        self._lead._follow(("load kept", self._number, str(path.resolve())))

    def _assigned(self, contexts: Sequence[Ids]) -> list[int]:
        """Who samples each context: whoever sampled the context that it goes on from, in the order of the last call; new ones in blocks."""
        size, left = self._lead._ranks.size, iter(self._seats)
        where: list[int] = []
        for context in contexts:
            owner = next((o for seen, o in left if len(seen) <= len(context) and np.array_equal(seen, context[: len(seen)])), None)
            if owner is None:
                break
            where.append(owner)
        if len(where) < len(contexts):
            where = [i * size // len(contexts) for i in range(len(contexts))]
        self._seats = list(zip(contexts, where, strict=True))
        return where


# -- followers ----------------------------------------------------------------------------------------------------------------


def follow(engine: LocalEngine, ranks: Ranks) -> None:
    """Does what the lead says until it leaves."""
    follower = _Follower(engine, ranks)
    while True:
        order, *told = ranks.hear()
        if order == "leave":
            ranks.answer(None)
            ranks.dismiss()
            return
        ranks.answer(getattr(follower, order.replace(" ", "_"))(*told))


class _Follower:
    """The orders, by name."""

    def __init__(self, engine: LocalEngine, ranks: Ranks) -> None:
        self._engine, self._ranks = engine, ranks
        self._models: dict[str, LocalModel] = {}
        self._kept: dict[int, LocalPolicy] = {}
        self._present: dict[str, LocalPolicy] = {}

    def model(self, name: str, spec: ModelSpec) -> None:
        self._models[name] = self._engine.model(name, spec)

    def say(self, name: str, kept: int, shares: list[list[Row]], want: frozenset[str]) -> list[dict[str, Floats]]:
        model = self._models[name]
        if kept:
            return [{"logprobs": found} for found in self._kept[kept].logprobs(shares[self._ranks.number])]
        with model.using(None):
            return model.say(shares[self._ranks.number], want)

    def backward(self, name: str, shares: list[list[Row]], loss: Loss) -> Tallies:
        with self._models[name].using(None):
            return self._models[name].backward_one_pass(shares[self._ranks.number], loss)

    def carry(self, name: str, parts: list[tuple[list[Row], dict[str, Tensor]]], want: frozenset[str]) -> None:
        model, (rows, grads) = self._models[name], parts[self._ranks.number]
        if rows:
            with model.using(None):
                model.carry_back(rows, {key: grad.to(model.trunk.device) for key, grad in grads.items()}, want)

    def step(self, name: str, lr: float) -> None:
        self._ranks.add_gradients(self._models[name].optimizer)
        self._models[name].step(lr)

    def restart(self, name: str, spec: OptimizerSpec) -> None:
        self._models[name].restart_optimizer(spec)

    def load(self, name: str, path: str) -> None:
        self._models[name].load(Path(path))

    def keep(self, name: str, number: int) -> None:
        self._kept[number] = self._models[name].keep()

    def load_kept(self, number: int, path: str) -> None:
        self._kept[number].load(Path(path))

    def sample(self, name: str, kept: int, parts: list[tuple[list[Ids], list[Sampling], list[int]]]) -> list[Completion]:
        contexts, sampling, seeds = parts[self._ranks.number]
        if not contexts:
            return []
        return self._policy(name, kept).sample(contexts, sampling, seeds)

    def _policy(self, name: str, kept: int) -> LocalPolicy:
        if kept:
            return self._kept[kept]
        model = self._models[name]
        policy = self._present.get(name)
        if policy is None or not policy.is_present:
            policy = self._present[name] = model.snapshot()
        return policy
