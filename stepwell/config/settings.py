"""What all settings share: frozen, strict, with kinds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = [
    "CUSTOM",
    "Count",
    "CustomConfig",
    "Decay",
    "Difficulties",
    "NotNegative",
    "Positive",
    "Settings",
    "Share",
    "Unread",
    "check_read",
    "folder_name",
    "kind_of",
]


CUSTOM = "package.module:Name"
"""Stands for a class of the user's among the kinds of a choice."""


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = bounds
    if low > high:
        raise ValueError(f"the range [{low}, {high}] is empty; give [low, high] with low <= high")
    return bounds


def folder_name(name: str) -> str:
    """The name, if it can be a folder's."""
    if not name.strip() or name.startswith(".") or any(mark in name for mark in "/\\\0"):
        raise ValueError(f"{name!r} cannot name a run folder; give a word without slashes that does not begin with a dot")
    return name


Share = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Difficulties = Annotated[tuple[Share, Share], AfterValidator(_ordered)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """Frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())


Unread = tuple[str, str, tuple[str, ...]]
"""A setting, the other one that decides whether it is read, and with which values of that."""


def check_read(settings: Settings, section: str, rules: Iterable[Unread]) -> None:
    """Whether what was changed from its default is read at all.

    Raises:
        ValueError: Nothing reads it.
    """
    for name, by, readers in rules:
        value, default, chosen = getattr(settings, name), type(settings).model_fields[name].default, getattr(settings, by)
        if value != default and chosen not in readers:
            raise ValueError(
                f"{section}.{name} is {value}, and nothing reads it while {section}.{by} is {chosen!r}; leave it at {default}, or set "
                f"{section}.{by} ({', '.join(readers)})"
            )


class CustomConfig(Settings):
    """A class of your own: `kind: package.module:Name`, called with `options` as keyword arguments."""

    kind: Annotated[str, Field(pattern=r"^\w+(\.\w+)*:\w+$")]
    options: dict[str, Any] = {}


def kind_of(value: Any) -> str | None:
    """Tag of a union: the kind itself, or `CUSTOM` for a class of the user's. What is no section has none."""
    kind = (value if isinstance(value, dict) else vars(value) if isinstance(value, Settings) else {}).get("kind")
    return CUSTOM if isinstance(kind, str) and ":" in kind else kind
