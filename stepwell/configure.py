"""From a preset or a YAML file and `key=value` arguments to a checked `Config`, with errors that name key, value, what is allowed and the
nearest known key."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from stepwell.config import (
    CUSTOM,
    BasketConfig,
    CaveConfig,
    Config,
    DomainConfig,
    MazeConfig,
    QuestionsConfig,
    ReasoningConfig,
    ShopConfig,
    WebShopConfig,
)
from stepwell.errors import ConfigError, nearest
from stepwell.presets import PRESETS, preset
from stepwell.runfolder import read_config

__all__ = ["COMPUTING", "check_overrides", "dump", "load", "load_domain", "parse", "read_run", "setting_of"]

Tree = dict[str, Any]
_COMPUTING = (
    "threads",
    "micro_tokens",
    "micro_rows",
    "device",
    "dtype",
    "url",
    "judge_url",
    "key_name",
    "plain_http",
    "timeout_s",
    "gone_s",
)
COMPUTING = tuple(f"engine.{name}" for name in _COMPUTING)
"""Settings of how fast and where a model computes, which what was trained does not depend on."""


def load(source: str, overrides: Sequence[str] = ()) -> Config:
    """A preset's name or a YAML file, changed by `key=value` arguments.

    Keys are dotted (`reward.beta=0.1`). A key that is no section of the config but a setting of the domain may leave `domain.` out
    (`data=DIR`). A changed `kind` starts its section anew, wherever it stands among the arguments; a section that says no kind is of the
    default one.
    """
    if source in PRESETS:
        tree = preset(source)
    elif source.endswith((".yaml", ".yml")) or os.path.exists(source):  # noqa: PTH110 - Path.exists raises where the name is too long
        tree = _read(Path(source))
    else:
        raise ConfigError(f"There is no preset {source!r} and no file of that name; {nearest(source, PRESETS)}.")
    return parse(tree, overrides)


def load_domain(kind: str, overrides: Sequence[str]) -> DomainConfig:
    """A domain alone, e.g. for `stepwell play`."""
    tree: Tree = {"domain": {"kind": kind}}
    for override in _in_order([one if one.startswith("domain.") else f"domain.{one}" for one in overrides]):
        _apply(tree, override)
    adapter: TypeAdapter[DomainConfig] = TypeAdapter(DomainConfig)
    try:
        return adapter.validate_python(tree["domain"])
    except ValidationError as error:
        raise ConfigError(_sentences(error, ("domain",))) from None


def setting_of(override: str) -> str:
    """The full dotted key of a `key=value` argument.

    >>> setting_of("data=shop/files"), setting_of("rollout.turns=5")
    ('domain.data', 'rollout.turns')
    """
    return ".".join(_split(override)[0])


def parse(tree: Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """A checked config from a tree of settings, changed by `key=value` arguments as in `load`."""
    tree = dict(tree)
    for override in _in_order(overrides):
        _apply(tree, override)
    try:
        return Config.model_validate({name: _with_kind(name, section) for name, section in tree.items()})
    except ValidationError as error:
        raise ConfigError(_sentences(error, ())) from None


def read_run(run: Path) -> Config:
    """The config of the run in the folder.

    Raises:
        RunError: There is none, or it cannot be read.
        ConfigError: It was cut, changed by hand or written by another version; names the file.
    """
    tree = read_config(run)
    try:
        return parse(tree)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{run / 'config.yaml'}: {line}" for line in str(error).splitlines())) from None


def _with_kind(name: str, section: Any) -> Any:
    """The section; with the default's kind where it says none."""
    default = Config.model_fields[name].default if name in Config.model_fields else None
    if not isinstance(section, Mapping) or not isinstance(default, BaseModel) or "kind" not in vars(default):
        return section
    return {"kind": vars(default)["kind"], **section}


def dump(config: Config) -> Tree:
    """The whole tree, every default written out; JSON-able."""
    return config.model_dump(mode="json")


def check_overrides(
    overrides: Sequence[str], allowed: Sequence[str], why: str = "it has no effect on what was trained, or does not fit its weights"
) -> None:
    """What would change nothing here, or would not fit the weights, is refused."""
    for override in overrides:
        key = setting_of(override)
        if not any(key == one or key.startswith(f"{one}.") for one in allowed):
            raise ConfigError(f"{key} cannot be changed here: {why}; {nearest(key, allowed)}.")


class _OnceLoader(yaml.SafeLoader):
    """YAML lets a key stand twice and keeps the last; a setting that is silently dropped is an error here."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"Line {line} has a list or a mapping for a key; the name of a setting is a word.")
            if key.value in seen:
                raise ConfigError(f"Line {line} sets {key.value!r} a second time in the same section; keep one of the two.")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> Tree:
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), _OnceLoader)  # a SafeLoader
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no YAML: {str(error).splitlines()[0]}.") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} holds {tree!r:.40}; a config is a mapping of settings.")
    if "preset" not in tree:
        return tree
    start = tree.pop("preset")
    if start not in tuple(PRESETS):
        raise ConfigError(f"{path} starts from the preset {start!r}; {nearest(str(start), PRESETS)}.")
    return _merged(preset(start), tree)


def _merged(below: Tree, above: Tree) -> Tree:
    """`above` over `below`, section by section; another kind starts a section anew."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        same = isinstance(old, dict) and isinstance(value, dict) and value.get("kind", old.get("kind")) == old.get("kind")
        merged[key] = _merged(old, value) if same and isinstance(old, dict) else value
    return merged


def _split(override: str) -> tuple[list[str], str]:
    """Parts of the key, and the value's text."""
    key, equals, text = override.partition("=")
    if not equals or not all(part.strip() for part in key.split(".")):
        raise ConfigError(f"{override!r} is no setting; write key=value, such as rollout.groups=8.")
    parts = key.split(".")
    domains = (ShopConfig, BasketConfig, WebShopConfig, MazeConfig, CaveConfig, QuestionsConfig, ReasoningConfig)
    if parts[0] not in Config.model_fields and any(parts[0] in one.model_fields for one in domains):
        parts = ["domain", *parts]
    return parts, text


def _in_order(overrides: Sequence[str]) -> list[str]:
    """Kinds before all else, since each starts its section anew, outer ones first; the others as given.

    >>> _in_order(["reward.lr=0.1", "reward.judges.a.kind=entropy", "reward.kind=mixture"])
    ['reward.kind=mixture', 'reward.judges.a.kind=entropy', 'reward.lr=0.1']
    """

    def rank(override: str) -> tuple[bool, int]:
        parts, _ = _split(override)
        return parts[-1] != "kind", len(parts) if parts[-1] == "kind" else 0

    return sorted(overrides, key=rank)


def _apply(tree: Tree, override: str) -> None:
    parts, text = _split(override)
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    section = tree
    for part in parts[:-1]:
        inner = section.get(part)
        section[part] = dict(inner) if isinstance(inner, dict) else {}
        section = section[part]
    if parts[-1] == "kind" and section.get("kind") != value:
        section.clear()
    section[parts[-1]] = value


# -- errors -------------------------------------------------------------------------------------------------------------------


def _sentences(error: ValidationError, prefix: tuple[str, ...]) -> str:
    return "\n".join(dict.fromkeys(_sentence(details, prefix) for details in error.errors()))


def _sentence(details: ErrorDetails, prefix: tuple[str, ...]) -> str:
    path, model = _walk((*prefix, *(str(part) for part in details["loc"])))
    key = ".".join(path)
    kind, got, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "extra_forbidden":
        known = model.model_fields if model is not None else Config.model_fields
        return f"{key} is not a setting; {nearest(path[-1], known)}."
    if kind == "union_tag_invalid":
        tags = [tag.strip(" '") for tag in str(context.get("expected_tags", "")).split(",")]
        tag = str(context.get("tag"))
        own = f", or a class of your own as {CUSTOM}" if CUSTOM in tags else ""
        return f"{key}.kind is {tag!r}; {nearest(tag, [one for one in tags if one != CUSTOM])}{own}."
    if kind == "union_tag_not_found":
        return f"{key} is {got!r}; it should be a section with a kind, such as {key}.kind=..."
    if kind == "missing":
        hint = f"; give it as {path[-1]}=VALUE" if path[0] == "domain" and not path[-1].isdigit() else ""
        return f"{key} is missing{hint}."
    if kind == "value_error":
        said = f"{context.get('error', details['msg'])!s}."
        return f"{key}: {said}" if key and not said.startswith(key) else said
    if kind == "literal_error":
        allowed = [choice.strip(" '") for choice in str(context.get("expected", "")).replace(" or ", ",").split(",")]
        return f"{key} is {got!r}; {nearest(str(got), allowed)}."
    if kind == "tuple_type":
        return f"{key} is {got!r}; it should be a list in square brackets, its parts separated by commas."
    if kind == "dict_type":
        return f"{key} is {got!r}; it should say what for, such as {key}.NAME={got}."
    if kind == "string_pattern_mismatch" and path[-1] == "[key]":
        section = ".".join(path[:-2])
        return f"{section} names {got!r}; a name is small letters and underlines, such as {section}.mine."
    if kind == "string_pattern_mismatch" and path[-1] == "kind":
        return f"{key} is {got!r}; a class of your own is named as {CUSTOM}."
    message = details["msg"][0].lower() + details["msg"][1:]
    return f"{key} is {got!r}; {message.replace('input should', 'it should')}."


def _walk(loc: Sequence[str]) -> tuple[list[str], type[BaseModel] | None]:
    """The path of a setting without pydantic's union tags, and the settings class that holds its last part."""
    path: list[str] = []
    model: type[BaseModel] | None = Config
    holder: type[BaseModel] | None = Config
    tagged: dict[str, type[BaseModel]] = {}
    keyed: Any = None
    for part in loc:
        if part in tagged:
            model, tagged = tagged[part], {}
            holder = model
            continue
        path.append(part)
        holder = model
        field = model.model_fields.get(part) if model is not None else None
        annotation = keyed if keyed is not None else field.annotation if field is not None else None
        keyed = get_args(annotation)[1] if keyed is None and get_origin(annotation) is dict else None
        inner = _models(annotation) if annotation is not None and keyed is None else []
        model = inner[0] if len(inner) == 1 else None
        tagged = {tag: one for one in inner for tag in _tags(one)} if len(inner) > 1 else {}
    return path, holder


def _models(annotation: Any) -> list[type[BaseModel]]:
    if get_origin(annotation) is Annotated:
        return _models(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [model for part in get_args(annotation) for model in _models(part)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def _tags(model: type[BaseModel]) -> tuple[str, ...]:
    annotation = model.model_fields["kind"].annotation
    return tuple(map(str, get_args(annotation))) if get_origin(annotation) is Literal else (CUSTOM,)
