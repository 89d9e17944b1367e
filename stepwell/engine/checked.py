"""A base of this machine as a server, so that an engine here is asked the same questions as one there."""

from __future__ import annotations

import copy

from transformers import PreTrainedModel

from stepwell.engine.local import LocalEngine, Text
from stepwell.engine.served import ServedService
from stepwell.protocols import Model, ModelSpec

__all__ = ["served_base"]


def served_base(module: PreTrainedModel, text: Text, spec: ModelSpec) -> ServedService:
    """Each model that is asked for learns on a copy of the base, which goes when it is done with.

    Args:
        module: A causal LM, unchanged by this.
        text: How to decode.
        spec: Full weights, or an adapter.
    """

    def make(wanted: ModelSpec) -> Model:
        return LocalEngine(copy.deepcopy(module), text).model("checked", wanted)

    return ServedService(make, text, spec=spec, base=type(module).__name__)
