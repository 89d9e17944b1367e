"""The processes of a data-parallel run, as `torchrun` starts them: rank 0 leads, the others follow.

Orders and answers go through `torch.distributed`'s object collectives, which pickle them; they pass between the processes of one run on one
machine and come from nowhere else.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from stepwell.engine.optimizer import Optimizer

__all__ = ["Ranks", "num_ranks", "rank"]


def rank() -> int:
    """Of this process; 0 where it was not started by `torchrun`."""
    return int(os.environ.get("RANK", "0")) if num_ranks() > 1 else 0


def num_ranks() -> int:
    """Processes of this run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


_PATIENCE = timedelta(days=7)
"""The lead may be busy by itself for hours (a judge's warm start, an evaluation); a process that has died is noticed at once, by its
connection."""


class Ranks:
    """This process among the others.

    Attributes:
        number: 0 leads.
        size: How many there are.
        busy: Whether an order has been given and not all answers are there.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size
        self.busy = False

    @classmethod
    def join(cls) -> Ranks:
        """Meets the others: gloo on CPUs, NCCL for gradients on GPUs, one for each process."""
        with_gpus = torch.cuda.is_available()
        if with_gpus:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if with_gpus else "gloo", timeout=_PATIENCE)
        return cls(dist.get_rank(), dist.get_world_size())

    def tell(self, order: tuple[Any, ...]) -> None:
        """The lead gives an order to all others."""
        self.busy = True
        dist.broadcast_object_list([order], src=0)

    def hear(self) -> tuple[Any, ...]:
        """The next order."""
        box: list[Any] = [None]
        dist.broadcast_object_list(box, src=0)
        order: tuple[Any, ...] = box[0]
        return order

    def answer(self, piece: Any) -> list[Any]:
        """Everybody's answer to the last order: at the lead all of them, by rank."""
        pieces: list[Any] | None = [None] * self.size if self.number == 0 else None
        dist.gather_object(piece, pieces, dst=0)
        self.busy = False
        return pieces or []

    def dismiss(self) -> None:
        """The lead is done, and so are all others. Not while an answer is missing: then the launcher ends them."""
        if self.number == 0 and not self.busy:
            self.tell(("leave",))
            self.answer(None)
        if not self.busy and dist.is_initialized():
            dist.destroy_process_group()

    def add_gradients(self, optimizer: Optimizer) -> None:
        """Everybody gets the sum of all gradients; a weight that has none anywhere keeps none."""
        masters = list(optimizer.masters.values())
        if not masters:
            return
        has = torch.tensor([float(weight.grad is not None) for weight in masters], device=masters[0].device)
        dist.all_reduce(has)
        touched = [weight for weight, there in zip(masters, has.tolist(), strict=True) if there]
        if not touched:
            return
        flat = torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).reshape(-1) for w in touched])
        dist.all_reduce(flat)
        for weight, piece in zip(touched, torch.split(flat, [w.numel() for w in touched]), strict=True):
            weight.grad = piece.view_as(weight).clone()
