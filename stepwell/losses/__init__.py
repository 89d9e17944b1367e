"""Pure torch: a model's outputs -> a scalar. Losses see outputs, never models."""

from stepwell.losses.divergence import KlKind, check_kl_loss, kl
from stepwell.losses.judge import PreferenceLoss
from stepwell.losses.mismatch import Watched
from stepwell.losses.policy import CloningLoss, PolicyLoss
from stepwell.losses.reduce import Averaging, token_weights

__all__ = ["Averaging", "CloningLoss", "KlKind", "PolicyLoss", "PreferenceLoss", "Watched", "check_kl_loss", "kl", "token_weights"]
