"""Averaging rules as weights: the loss is a plain sum of weight x token loss.

Weights are computed once per optimiser step, over all its episodes, on the host. Micro-batches, data parallelism and remote engines then
change nothing. Legend: E episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from stepwell.errors import ConfigError, nearest
from stepwell.types import Floats

__all__ = ["Averaging", "token_weights"]

Averaging = Literal["token", "episode", "constant"]
_KINDS: tuple[Averaging, ...] = ("token", "episode", "constant")


def token_weights(num_tokens_E: Sequence[int], kind: Averaging, *, constant: float | None = None) -> Floats:
    """The weight of every token of each episode. [E]

    With L the number of trained tokens of an episode, and E the number of episodes with L > 0 (others count nowhere):

    - `token`: 1 / sum(L). Every token counts alike, long episodes more (DAPO, arXiv 2503.14476, section 3.3).
    - `episode`: 1 / (E L). Every episode counts alike, its tokens the less the more they are (GRPO, arXiv 2402.03300, equation 3).
    - `constant`: 1 / (E constant). The sum of an episode's tokens, in a fixed unit (Dr.GRPO, arXiv 2503.20783: the token limit).

    An episode in several rows has the number of tokens of all its rows.

    Args:
        num_tokens_E: Trained tokens of each episode; 0 for a failed one. [E]
        kind: The rule.
        constant: The divisor in tokens, for `constant` alone.

    Raises:
        ConfigError: unknown kind, or a constant that is missing, not positive, or given to another kind.

    >>> token_weights([1, 3], "episode")
    array([0.5       , 0.16666667])
    """
    if kind not in _KINDS:
        raise ConfigError(f"Unknown averaging {kind!r}; {nearest(kind, _KINDS)}")
    if (kind == "constant") != (constant is not None):
        raise ConfigError(f"Averaging {kind!r} got constant={constant}; 'constant' needs a number of tokens, the other kinds take none.")
    if constant is not None and not (np.isfinite(constant) and constant > 0):
        raise ConfigError(f"The averaging constant is {constant}; it needs to be a positive number of tokens.")
    lengths_E = np.asarray(num_tokens_E, np.float64)
    counts_E = lengths_E > 0
    total = lengths_E.sum() if kind == "token" else float(counts_E.sum())
    per_token_E = lengths_E if kind == "episode" else np.full(len(lengths_E), 1.0 if constant is None else constant)
    return np.where(counts_E, 1.0 / (max(total, 1.0) * np.where(counts_E, per_token_E, 1.0)), 0.0)
