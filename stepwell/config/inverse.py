"""Judges that learn from experts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stepwell.config.settings import Count, Decay, Positive, Settings, Share

__all__ = ["InverseConfig"]

_ONLY_OF = {
    "irl": ("bound", "weights", "temper", "total"),
    "discriminator": ("smoothing", "logit", "clip", "spoilt"),
    "iq": ("discount",),
}


class InverseConfig(Settings):
    """What would have to be rewarded for experts to do what they do (rePIRL; ReGAIL; InversePRM)."""

    kind: Literal["inverse"] = "inverse"
    pay: Literal["success", "score"] = "success"
    objective: Literal["irl", "discriminator", "iq"] = "irl"
    """`irl`: maximum likelihood of the experts (rePIRL). `discriminator`: which steps are an expert's (ReGAIL). `iq`: the same with rewards
    implied by action values (InversePRM)."""
    demonstrations: str = "expert"
    """`expert`: the domain's own; `none`; or a file, as for `cloning.demonstrations`."""
    batch: Count = 8
    """Demonstrations shown with each batch of episodes, new ones each time."""
    correct: Literal["positive", "policy"] = "positive"
    """`positive`: the policy's episodes that succeed count as experts' (pseudo-experts). `policy`: no verdict is read."""
    model: Literal["head", "full", "lora"] = "head"
    """A scalar at the end of each step; or the log-ratio of a second language model, or of an adapter over the same base."""
    trunk: Literal["own", "shared"] = "shared"
    """Of a head: the policy's hidden states, without gradient into them; or a second model (an adapter where the policy is one)."""
    bound: Literal["tanh", "none"] = "tanh"
    """Of a head with `irl`: rewards lie in (-1, 1)."""
    weights: Literal["raw", "tempered", "length", "uniform"] = "length"
    """Of `irl`: importance weights of the policy's episodes. Raw ones soon single out the longest: read `judge/ess`."""
    temper: Share = 0.1
    """Of `weights: tempered`: the exponent; 0 is uniform, 1 is raw."""
    total: Literal["average", "cumulative"] = "average"
    """Of `irl`: what is compared, the mean or the sum of an episode's rewards."""
    smoothing: Decay = 0.1
    """Of `discriminator`: of labels."""
    logit: Literal["f", "airl"] = "f"
    """Of `discriminator`: the reward itself, or the reward less the policy's log-prob (AIRL)."""
    clip: Positive | None = None
    """Of `discriminator`: rewards are cut to [-clip, clip]."""
    spoilt: Annotated[int, Field(ge=0)] = 0
    """Of `discriminator`: copies of each demonstration with a mistake, which count as the policy's."""
    discount: Share = 0.95
    """Of `iq`, per step."""
    beta: Positive = 0.05
    """Of a log-ratio: its scale."""
    reference: Literal["frozen", "moving"] = "frozen"
    """Of a log-ratio: the judge's own weights at the start, or the policy that sampled."""
    start: Annotated[str, Field(min_length=1)] | None = None
    """The folder of a run whose judge this one goes on from, such as that of an earlier stage; None is a judge that says 0. The policy
    begins as that run's, exported: `engine.kind=local engine.model=DIR`."""
    lr: Positive = 1e-5
    updates: Annotated[int, Field(ge=0)] = 1
    """Gradient steps of the judge on each batch; 0 is a static judge."""
    learn: Literal["before", "after"] = "before"
    """Whether the judge learns before or after it scores a batch."""
    max_grad_norm: Positive = 1.0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """A setting that would change nothing is refused; so are choices that exclude each other."""
        for objective, names in _ONLY_OF.items():
            for name in names if objective != self.objective else ():
                self._check_unused(name, f"it belongs to objective {objective!r}, and objective is {self.objective!r}")
        if self.weights != "tempered":
            self._check_unused("temper", f"it belongs to weights 'tempered', and weights is {self.weights!r}")
        for name in ("beta", "reference") if self.model == "head" else ("trunk", "bound"):
            self._check_unused(name, f"it does not belong to model {self.model!r}")
        if self.demonstrations == "none":
            self._check_unused("batch", "it belongs to demonstrations, and demonstrations is 'none'")
            self._check_unused("spoilt", "it belongs to demonstrations, and demonstrations is 'none'")
        if self.objective == "iq" and self.model != "head":
            raise ValueError(f"reward.objective is 'iq' with model {self.model!r}; action values are a head's: set reward.model to 'head'")
        if self.demonstrations == "none" and self.correct == "policy":
            raise ValueError(
                "reward.demonstrations is 'none' and reward.correct 'policy': there are no experts; "
                "set demonstrations to 'expert' or a file, or correct to 'positive'"
            )
        return self

    def _check_unused(self, name: str, reason: str) -> None:
        value, default = self.__dict__[name], type(self).model_fields[name].default
        if value != default:
            raise ValueError(f"reward.{name} is {value!r}, and would change nothing: {reason}; leave it out")
