"""Every loss of the library, each in the settings that make it another function. A new loss is tested by being listed."""

from __future__ import annotations

import math

from stepwell.losses import (
    Cispo,
    Clip,
    CloningLoss,
    DiscriminatorLoss,
    FitLoss,
    InverseLoss,
    InverseQLoss,
    LogRatio,
    Masked,
    OutcomeLoss,
    PolicyLoss,
    PreferenceLoss,
    PromiseLoss,
    Reinforce,
    Scalar,
    SoftQLoss,
    Truncated,
)
from stepwell.losses.value import ValueLoss
from stepwell.protocols import Loss

LOSSES: dict[str, Loss] = {
    "detached": PolicyLoss(kl_coef=0.2),
    "with entropy": PolicyLoss(kl_coef=0.2, entropy_coef=0.1),
    "plain": PolicyLoss(),
    "given": PolicyLoss(Clip(dual=3.0), old="given", kl_coef=0.2, kl_kind="k3"),
    "clip": PolicyLoss(old="given"),
    "step": PolicyLoss(old="given", level="step", pooling="sum"),
    "episode": PolicyLoss(old="given", level="episode"),
    "episode sum": PolicyLoss(old="given", level="episode", pooling="sum"),
    "reinforce": PolicyLoss(Reinforce()),
    "reinforce with KL": PolicyLoss(Reinforce(), kl_coef=0.1, kl_kind="k1+"),
    "importance sampling": PolicyLoss(Clip(1.0, math.inf), old="given"),
    "clip higher": PolicyLoss(Clip(0.2, 0.28), old="given", kl_coef=0.1, kl_kind="k3+"),
    "cispo": PolicyLoss(Cispo(1.0, 0.5), old="given"),
    "cispo with KL": PolicyLoss(Cispo(1.0, 0.5), old="given", kl_coef=0.1, kl_kind="k3x"),
    "cispo of steps": PolicyLoss(Cispo(0.3, 0.5), old="given", level="step", pooling="sum"),
    "truncated": PolicyLoss(old="given", correction=Truncated(1.5), kl_coef=0.1, kl_kind="k1x"),
    "truncated detached": PolicyLoss(correction=Truncated(1.5)),
    "masked": PolicyLoss(old="given", correction=Masked(0.5, 1.5)),
    "cloning": CloningLoss(),
    "preference": PreferenceLoss(beta=0.5),
    "outcome": OutcomeLoss(beta=0.5),
    "inverse": InverseLoss(LogRatio(0.5), "raw", total="cumulative"),
    "inverse scalar": InverseLoss(Scalar(), "length"),
    "inverse uniform": InverseLoss(Scalar(), "uniform"),
    "discriminator": DiscriminatorLoss(LogRatio(0.5)),
    "airl": DiscriminatorLoss(Scalar("none"), logit="airl"),
    "inverse q": InverseQLoss(0.9),
    "fitted": FitLoss("square"),
    "promise": PromiseLoss(0.5),
    "soft q": SoftQLoss(0.5),
    "value": ValueLoss(),
    "value without clip": ValueLoss(clip=None),
}
SMOOTH = (
    *("fitted", "promise", "soft q"),
    *("given", "clip", "importance sampling", "truncated", "masked", "cloning", "value", "value without clip"),
    *("preference", "outcome", "inverse uniform", "discriminator", "airl", "inverse q"),
)
"""Those without parts that are constant on purpose: pooled and detached ratios, CISPO's weight, straight-through KL, importance weights."""
NATIVE = {
    "plain": "cross_entropy",
    "reinforce": "cross_entropy",
    "cloning": "cross_entropy",
    "clip": "ppo",
    "importance sampling": "importance_sampling",
    "cispo": "cispo",
}
"""Those that a server of the Tinker API computes itself."""
