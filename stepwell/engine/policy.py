"""Weights of a local model, frozen at a version: what samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from stepwell.engine.sampler import Sampler, Work
from stepwell.errors import CapabilityError, ConfigError, RunError, StaleWeightsError
from stepwell.types import Completion, Floats, Ids, Row, Sampling

if TYPE_CHECKING:
    from stepwell.engine.local import LocalModel

__all__ = ["LocalPolicy", "check_temperature"]


class LocalPolicy:
    """Weights frozen at a version: `protocols.Policy`, and where they are kept `protocols.KeptPolicy`.

    Args:
        model: Whose weights.
        kept: A copy of them, or None for the present ones: the policy is then of no use once the model has moved on.
    """

    def __init__(self, model: LocalModel, kept: dict[str, Tensor] | None) -> None:
        self._model = model
        self._kept = kept
        self._stamp = model.stamp
        self.version = model.version
        text = model.engine.text
        self._sampler = Sampler(model.trunk, text.decode, text.eos_ids)

    @property
    def work(self) -> Work:
        """Positions computed by sampling so far."""
        return self._sampler.work

    @property
    def max_length(self) -> int:
        return self._model.trunk.max_length

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in."""
        return self._model.trunk.dtype

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        """See `protocols.Policy.sample`.

        Raises:
            ConfigError: The temperature is not the one that the model's log-probs are of, and this is no evaluation.
            StaleWeightsError: The model has moved on.
        """
        self._check_present()
        check_temperature(self._model.spec.temperature, sampling)
        self._model.last_said.forget()  # About other episodes than those that come now.
        self._model.whole.forget()
        if self._kept is None and self._model.is_read:
            self._model.recent = self._sampler
        with self._model.using(self._kept):
            return self._sampler.sample(contexts, sampling, seeds)

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        """See `protocols.Policy.logprobs`."""
        self._check_present()
        with self._model.using(self._kept):
            return [made["logprobs"] for made in self._model.say(rows)]

    def forget(self) -> None:
        """Drops cached keys and values, so that the next call feeds whole histories."""
        self._sampler.forget()

    def save(self, path: Path) -> None:
        """Writes the kept weights."""
        if self._kept is None:
            raise CapabilityError("Only a policy that keeps its weights can be saved; call model.keep().")
        path.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.cpu().contiguous().clone() for name, tensor in self._kept.items()}, path / "kept.safetensors")

    def load(self, path: Path) -> None:
        """Takes kept weights from what `save` wrote."""
        if self._kept is None:
            raise CapabilityError("Only a policy that keeps its weights can be loaded; call model.keep().")
        found = load_file(path / "kept.safetensors")
        if {name: tensor.shape for name, tensor in found.items()} != {name: tensor.shape for name, tensor in self._kept.items()}:
            raise RunError(f"{path} holds the kept weights of another model; resume with the config that it was made with.")
        self._kept = {name: found[name].to(tensor) for name, tensor in self._kept.items()}
        self.forget()

    @property
    def is_present(self) -> bool:
        """Whether its weights are still there."""
        return self._kept is not None or self._stamp is self._model.stamp

    def _check_present(self) -> None:
        if not self.is_present:
            raise StaleWeightsError(
                f"This policy is version {self.version}, and its model has moved on to version {self._model.version}; "
                "take a new snapshot, or keep() for a reference."
            )


def check_temperature(own: float, sampling: Sequence[Sampling]) -> None:
    """What is to be trained on is sampled at the temperature of the model's log-probs, `own`, or greedily.

    Raises:
        ConfigError: another temperature.
    """
    for s in sampling:
        if s.purpose == "training" and s.temperature not in (0.0, own):
            raise ConfigError(
                f"The sampling temperature is {s.temperature}, but the model's log-probs are those at {own} (ModelSpec.temperature); "
                "what is to be trained on needs one temperature for both. For evaluation say Player.at(temperature)."
            )
