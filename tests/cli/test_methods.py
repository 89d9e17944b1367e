"""The table of methods is complete, and every setting in it works."""

from __future__ import annotations

from typing import Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from stepwell.cli.methods import METHODS
from stepwell.config import (
    CounterfactualCredit,
    EnvironmentRewardConfig,
    GAECredit,
    GiGPOCredit,
    GroupCredit,
    ImplicitConfig,
    InverseConfig,
    IStarCredit,
    LossConfig,
    MinFormCredit,
    MixtureConfig,
    OutcomeRewardConfig,
    PrimeCredit,
    ProcessSupervisionCredit,
    ProcessToGoCredit,
    ReinforcePPBaselineCredit,
    ReinforcePPCredit,
    RePIRLCredit,
    SuffixCredit,
    TrainedConfig,
)
from stepwell.configure import dump, load

CHOICES: tuple[tuple[str, type[BaseModel], str], ...] = (
    ("reward.kind", OutcomeRewardConfig, "kind"),
    ("reward.kind", EnvironmentRewardConfig, "kind"),
    ("reward.kind", ImplicitConfig, "kind"),
    ("reward.kind", InverseConfig, "kind"),
    ("reward.kind", MixtureConfig, "kind"),
    ("reward.kind", TrainedConfig, "kind"),
    ("credit.kind", GroupCredit, "kind"),
    ("credit.kind", IStarCredit, "kind"),
    ("credit.kind", ProcessToGoCredit, "kind"),
    ("credit.kind", CounterfactualCredit, "kind"),
    ("credit.kind", GiGPOCredit, "kind"),
    ("credit.kind", MinFormCredit, "kind"),
    ("credit.kind", PrimeCredit, "kind"),
    ("credit.kind", ProcessSupervisionCredit, "kind"),
    ("credit.kind", RePIRLCredit, "kind"),
    ("credit.kind", ReinforcePPBaselineCredit, "kind"),
    ("credit.kind", ReinforcePPCredit, "kind"),
    ("credit.kind", SuffixCredit, "kind"),
    ("credit.kind", GAECredit, "kind"),
    ("loss.ratio", LossConfig, "ratio"),
    ("loss.kl", LossConfig, "kl"),
    ("loss.averaging", LossConfig, "averaging"),
)


@pytest.mark.parametrize(("key", "model", "field"), CHOICES)
def test_every_choice_is_listed(key: str, model: type[BaseModel], field: str) -> None:
    annotation = model.model_fields[field].annotation
    assert get_origin(annotation) is Literal
    listed = {one.setting.split()[0] for one in METHODS}
    assert {f"{key}={choice}" for choice in get_args(annotation) if choice != "none"} <= listed


@pytest.mark.parametrize("setting", [one.setting for one in METHODS])
def test_every_setting_works_and_changes_what_it_says(setting: str) -> None:
    config = dump(load("smoke", setting.split()))
    for part in setting.split():
        key, value = part.split("=")
        found: object = config
        for name in key.split("."):
            assert isinstance(found, dict)
            found = found[name]
        assert str(found).removesuffix(".0") == value
