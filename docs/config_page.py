"""Writes docs/config.md from the settings' own classes: `python docs/config_page.py`. A test says when the page is stale."""

from __future__ import annotations

import json
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from stepwell.config import Config, CustomConfig

PAGE = Path(__file__).parent / "config.md"

HEAD = """# Settings

All settings of a run, with their defaults. `stepwell config PRESET` prints a preset's; presets differ from these defaults. The page is
made by `python docs/config_page.py`.

Three ways to set one, each over the one before:

- a preset, by its name: `stepwell train quick`;
- a YAML file, which may begin with `preset: quick` and then names only what differs: `stepwell train mine.yaml`;
- arguments: `stepwell train quick rollout.groups=8 optimizer.lr=1e-4`. Keys are dotted. Settings of the domain may leave out `domain.`
  (`data=DIR`). Changing a `kind` starts its section anew; a section that says no `kind` is of the default one.

A class of your own may be domain, reward, credit or curriculum: `reward.kind=package.module:Name`, called with `reward.options` as keyword
arguments. An unknown key, a value out of range or settings that exclude each other are errors before anything is sampled, with the
nearest known name.
"""

MEANINGS = {
    "name": "Of the run; its folder is `runs/NAME-SEED` by default.",
    "seed": "Decides every random draw of the run.",
    "loss.clip_low": "The ratio is clipped to at least 1 - this.",
    "loss.clip_high": "The ratio is clipped to at most 1 + this.",
    "loss.kl_coef": "Weight of the KL term.",
    "loss.overlong_penalty": "In units of the outcome.",
    "loss.entropy_coef": "Weight of the entropy bonus; entropy is logged whatever it is.",
    "loss.averaging": "What counts alike; see [weights](concepts/weights.md).",
    "loss.epochs": "Passes over a batch.",
    "loss.minibatches": "Parts that a batch is cut into, between groups.",
    "rollout.temperature": "Of sampling; log-probabilities everywhere are those at this temperature.",
    "chat.window": "Exchanges that `context: window` shows.",
    "credit.alpha": "Weight of the process part.",
    "credit.discount": "Of rewards to come, per step.",
    "credit.baseline": "What outcomes are compared with; `raw` is nothing.",
    "credit.mix": "`adaptive`: the process part is weighed by how far the judge has proved right.",
    "credit.level": "What a step is, to the reward; a reward of your own cuts its steps itself.",
    "credit.max_grad_norm": "Larger gradients of the critic are scaled down to this norm.",
    "reward.pay": "What the end is worth: 1 or 0 for success, or the score in [0, 1].",
    "reward.beta": "Reward per nat of log-ratio.",
    "reward.lr": "Learning rate of the judge.",
    "reward.reference": "`moving`: the policy that sampled; `frozen`: the judge's own weights at the start.",
    "reward.max_grad_norm": "Larger gradients of the judge are scaled down to this norm.",
    "reward.invalid_penalty": "Charged for a turn without a valid action.",
    "checkpoint.keep": "How many of the last checkpoints stay; the best one stays besides.",
    "tracking.tensorboard": "Metrics also go to `tensorboard/` in the run's folder.",
    "optimizer.kind": "`muon`: Muon on hidden matrices, AdamW at `rest_scale` x lr on all else.",
    "optimizer.lr": "Learning rate at its highest.",
    "optimizer.decay": "Of the learning rate over the steps.",
    "optimizer.betas": "Of AdamW.",
    "optimizer.eps": "Of AdamW.",
    "optimizer.weight_decay": "Decoupled.",
    "optimizer.max_grad_norm": "Larger gradients are scaled down to this norm.",
    "optimizer.rest_scale": "See `kind`.",
    "cloning.optimizer.warmup": "Steps of linear warm-up.",
    "engine.layers": "Of the model.",
    "engine.width": "Of the hidden states; a multiple of 2 x `heads`.",
    "engine.feedforward": "Width between the two matrices of a layer's feed-forward part.",
    "engine.heads": "Of attention.",
}
"""For settings whose class says nothing more than their name."""


def main() -> None:
    """Writes the page."""
    PAGE.write_text(render(), encoding="utf-8")


def render() -> str:
    """The page."""
    parts = [HEAD, "## Run\n", _table(Config, "", skip=frozenset(_sections()))]
    for name, field in _sections().items():
        parts.append(f"## `{name}`\n")
        models = _models(field.annotation)
        is_choice = len(models) > 1
        for model in models:
            if model is CustomConfig:
                continue
            if is_choice:
                kinds = " | ".join(f"`{kind}`" for kind in get_args(model.model_fields["kind"].annotation))
                parts.append(f"### `{name}.kind`: {kinds}{' (default)' if isinstance(field.default, model) else ''}\n")
            parts.append(f"{_first(model.__doc__)}\n")
            parts.append(_table(model, f"{name}.", skip=frozenset({"kind"} if is_choice else ())))
    return "\n".join(parts)


def _sections() -> dict[str, FieldInfo]:
    return {name: field for name, field in Config.model_fields.items() if _models(field.annotation)}


def _table(model: type[BaseModel], prefix: str, *, skip: frozenset[str]) -> str:
    lines = ["| setting | allowed | default | meaning |", "|---|---|---|---|"]
    for key, name, field in _walk(model, prefix):
        if name not in skip:
            lines.append(f"| `{key}` | {_allowed(field)} | {_default(field)} | {_meaning(key, field)} |")
    return "\n".join([*lines, ""]) if len(lines) > 2 else "No settings.\n"


def _walk(model: type[BaseModel], prefix: str) -> list[tuple[str, str, FieldInfo]]:
    """(dotted key, name, field) of the settings of a class and of the plain classes in it."""
    found = []
    for name, field in model.model_fields.items():
        inner = _models(field.annotation)
        if prefix and len(inner) == 1:
            found += _walk(inner[0], f"{prefix}{name}.")
        elif not inner:
            found.append((f"{prefix}{name}", name, field))
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    if get_origin(annotation) is Annotated:
        return _models(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return list(dict.fromkeys(model for part in get_args(annotation) for model in _models(part)))
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def _allowed(field: FieldInfo) -> str:
    annotation: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return _said(TypeAdapter(annotation).json_schema())


def _said(schema: dict[str, Any]) -> str:
    """A JSON schema in words."""
    if "anyOf" in schema:
        return " or ".join(_said(part) for part in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        parts = [_said(part) for part in schema.get("prefixItems", ())]
        return f"pair: {parts[0]}" if len(parts) == 2 else f"list of {_said(schema.get('items', {}))}s"
    names = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true`, `false`", "null": "`null`"}
    name = names.get(str(schema.get("type")), "mapping")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{name} in [{low:,}, {high:,}]"
    if low is not None and "exclusiveMaximum" in schema:
        return f"{name} in [{low:,}, {schema['exclusiveMaximum']:,})"
    if "exclusiveMinimum" in schema:
        return f"{name} > {schema['exclusiveMinimum']:g}"
    return f"{name} ≥ {low:g}" if low is not None else name


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, str) and value.isprintable():
        return f"`{value}`" if value else "empty"
    return f"`{json.dumps(value)}`"


def _meaning(key: str, field: FieldInfo) -> str:
    own = (field.description or "").replace("\n", " ").replace("|", "\\|")
    return own or MEANINGS.get(key) or MEANINGS.get(key.replace("cloning.optimizer.", "optimizer."), "")


def _first(doc: str | None) -> str:
    return (doc or "").strip().split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    main()
