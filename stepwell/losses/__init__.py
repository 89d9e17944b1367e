"""Pure torch: a model's outputs -> a scalar. Losses see outputs, never models."""

from stepwell.losses.divergence import KlKind, check_kl_loss, kl
from stepwell.losses.fitted import FitLoss, LabelLoss, PromiseLoss
from stepwell.losses.forms import Form, LogRatio, Scalar
from stepwell.losses.importance import Correction, Masked, Truncated
from stepwell.losses.inverse import DiscriminatorLoss, InverseLoss, InverseQLoss
from stepwell.losses.judge import OutcomeLoss, PreferenceLoss
from stepwell.losses.mismatch import Watched
from stepwell.losses.policy import CloningLoss, PolicyLoss
from stepwell.losses.reduce import Averaging, token_weights
from stepwell.losses.soft_q import SoftQLoss
from stepwell.losses.surrogate import Cispo, Clip, Reinforce, Surrogate
from stepwell.losses.value import ValueLoss

__all__ = [
    "Averaging",
    "Cispo",
    "Clip",
    "CloningLoss",
    "Correction",
    "DiscriminatorLoss",
    "FitLoss",
    "Form",
    "InverseLoss",
    "InverseQLoss",
    "KlKind",
    "LabelLoss",
    "LogRatio",
    "Masked",
    "OutcomeLoss",
    "PolicyLoss",
    "PreferenceLoss",
    "PromiseLoss",
    "Reinforce",
    "Scalar",
    "SoftQLoss",
    "Surrogate",
    "Truncated",
    "ValueLoss",
    "Watched",
    "check_kl_loss",
    "kl",
    "token_weights",
]
