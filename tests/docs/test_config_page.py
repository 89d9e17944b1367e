"""docs/config.md names every setting, with its default and what it means."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from stepwell import config
from stepwell.configure import dump, load
from stepwell.presets import PRESETS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def config_page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("config_page", DOCS / "config_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["config_page"] = module
    spec.loader.exec_module(module)
    return module


def test_page_is_up_to_date(config_page: ModuleType) -> None:
    written = (DOCS / "config.md").read_text(encoding="utf-8")
    assert config_page.render() == written, "docs/config.md is stale: run python docs/config_page.py"


def keys_of(tree: object, prefix: str = "") -> set[str]:
    if not isinstance(tree, dict) or not tree:
        return {prefix}
    return {key for name, value in tree.items() for key in keys_of(value, f"{prefix}.{name}" if prefix else name)}


def test_every_setting_of_every_preset_is_on_it() -> None:
    named = set(re.findall(r"^\| `([\w.]+)` \|", (DOCS / "config.md").read_text(encoding="utf-8"), re.MULTILINE))
    for preset in PRESETS:
        told = PRESETS[preset].__doc__ or ""
        overrides = ["data=somewhere"] if "data=DIR" in told else ["reward.data=somewhere"] if "reward.data=FILE" in told else []
        keys = keys_of(dump(load(preset, overrides)))
        sections = {f"{section}.kind" for section in ("domain", "engine", "reward", "credit", "curriculum")}
        missing = {key for key in keys - sections - named if key.rpartition(".")[0] not in named}  # A mapping is named, its keys are not.
        assert not missing, f"{preset}: {sorted(missing)} not in docs/config.md"


def test_every_field_of_every_settings_class_is_on_it() -> None:
    named = re.findall(r"^\| `([\w.]+)` \|", (DOCS / "config.md").read_text(encoding="utf-8"), re.MULTILINE)
    last = {part for name in named for part in name.split(".")}  # A section within a section is named by what is in it.
    models = [model for model in vars(config).values() if isinstance(model, type) and issubclass(model, BaseModel)]
    sections = {name for name in config.Config.model_fields if name not in ("name", "seed", "steps")}
    assert len(models) > 20
    for model in models:
        if model is not config.CustomConfig:
            missing = set(model.model_fields) - last - sections - {"kind", "optimizer"}
            assert not missing, f"{model.__name__}: {missing}"


def test_every_setting_is_explained() -> None:
    rows = re.findall(r"^\| `[\w.]+` \|.*", (DOCS / "config.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 100
    assert [row for row in rows if not row.endswith(" |")] == [], "a row is a line"
    empty = [row for row in rows if re.search(r"\|\s*\|$", row)]
    assert not empty, f"no meaning: {empty}"
