"""What an ablation runs, and the folder that it runs in.

```
ablations/shop/
    ablation.json      the config and its variants; another config is refused here
    runs/full-0/       one run folder for each variant and seed
    results/full-0.json    what is kept of it; there once the run is through
    logs/full-0.log
    report.md  report.json  plots/
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepwell.ablation.variants import Variant, variants_of
from stepwell.config import Config
from stepwell.configure import dump, parse
from stepwell.errors import ConfigError, RunError
from stepwell.files import disk_errors, read_json, to_json, write_atomic
from stepwell.runfolder import differing_keys
from stepwell.types import JSON

__all__ = ["Job", "Plan", "changes_of", "make_plan", "read_variant", "seeds_of"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a variant."""

    out: Path
    variant: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.seed}"

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.out / "runs" / self.name

    @property
    def teaching(self) -> Path:
        """The folder of the run that teaches a static judge."""
        return self.out / "runs" / f"{self.name}-judge"

    @property
    def result(self) -> Path:
        return self.out / "results" / f"{self.name}.json"

    @property
    def log(self) -> Path:
        return self.out / "logs" / f"{self.name}.log"


@dataclass(frozen=True, slots=True)
class Plan:
    """An ablation: variants and seeds of one config, in a folder."""

    base: Config
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    out: Path

    @property
    def jobs(self) -> list[Job]:
        """Seed by seed, so that what is there at any time can be compared."""
        return [Job(self.out, variant.name, seed) for seed in self.seeds for variant in self.variants]

    def enter(self) -> None:
        """Writes ablation.json, or checks it; variants that the folder did not know are added.

        Raises:
            RunError: The folder is a run's, or of another config, or knows a variant of this name that is another.
        """
        path = self.out / "ablation.json"
        if not path.exists() and (self.out / "config.yaml").exists():
            raise RunError(f"{self.out} holds a run, and an ablation has a folder of its own; choose another.")
        known = read_json(path) if path.exists() else {"base": dump(self.base), "variants": {}}
        _check_same(self.out, "", known["base"], dump(self.base))
        variants = known["variants"]
        assert isinstance(variants, dict)
        for variant in self.variants:
            here: dict[str, JSON] = {"config": dump(variant.config), "judge": dump(variant.judge) if variant.judge else None}
            if variant.name in variants:
                there = variants[variant.name]
                assert isinstance(there, dict)
                _check_same(self.out, f" in the variant {variant.name!r}", there, here)
            variants[variant.name] = here
        with disk_errors(f"The ablation could not be written to {self.out}"):
            for name in ("runs", "results", "logs"):
                (self.out / name).mkdir(parents=True, exist_ok=True)
            write_atomic(path, to_json({"base": known["base"], "variants": variants}, "ablation") + "\n")


def make_plan(
    base: Config,
    seeds: Sequence[int],
    out: Path,
    *,
    named: Mapping[str, Sequence[str]],
    only: Sequence[str],
    judge_steps: int | None = None,
) -> Plan:
    """The plan, with every config checked.

    Raises:
        ConfigError: No seed, a repeated one, an unknown variant, or a change that cannot be.
    """
    if not seeds:
        raise ConfigError("There is no seed to run; give at least one, and five for intervals that mean something.")
    again = sorted({seed for seed in seeds if list(seeds).count(seed) > 1})
    if again:
        raise ConfigError(f"The seed {again[0]} is given twice; the same run twice says nothing new. Give different seeds.")
    return Plan(base, tuple(variants_of(base, named, only, judge_steps)), tuple(seeds), out)


def read_variant(out: Path, name: str) -> Variant:
    """A variant as the folder's ablation.json has it."""
    variants = read_json(out / "ablation.json")["variants"]
    assert isinstance(variants, dict)
    found = variants[name]
    assert isinstance(found, dict)
    config, judge = found["config"], found["judge"]
    assert isinstance(config, dict)
    return Variant(name, parse(config), parse(judge) if isinstance(judge, dict) else None)


def seeds_of(text: str, first: int) -> list[int]:
    """`5` is five seeds from the config's on; `20,21,22` are these (and `7,` is 7 alone).

    >>> seeds_of("3", 10), seeds_of("20,21", 0), seeds_of("7,", 0)
    ([10, 11, 12], [20, 21], [7])
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(re.fullmatch(r"-?\d+", part) for part in parts):
        raise ConfigError(f"--seeds is {text!r}; give how many (5), or which (20,21,22).")
    numbers = [int(part) for part in parts]
    if "," in text:
        return numbers
    if numbers[0] < 1:
        raise ConfigError(f"--seeds is {text}; give 1 or more, and five for intervals that mean something.")
    return list(range(first, first + numbers[0]))


def changes_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """From `NAME=key=value,key=value` to the changes by name; commas within brackets belong to a value.

    >>> changes_of(["short=rollout.turns=5,interruptions.kinds=[stock_out,tool_error]"])
    {'short': ['rollout.turns=5', 'interruptions.kinds=[stock_out,tool_error]']}
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        name, _, changes = text.partition("=")
        parts = re.split(r",(?![^\[{]*[\]}])", changes)
        if not _NAME.fullmatch(name) or not all("=" in part for part in parts):
            raise ConfigError(f"--variants is {text!r}; write NAME=key=value,key=value, such as short=rollout.turns=5,chat.tools=false.")
        if name in found:
            raise ConfigError(f"The variant {name!r} is defined twice; give each a name of its own.")
        found[name] = parts
    return found


def _check_same(out: Path, where: str, there: JSON, here: Mapping[str, JSON]) -> None:
    assert isinstance(there, dict)
    different = list(differing_keys(there, here).values())
    if different:
        more = f"; and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        raise RunError(
            f"{out} holds an ablation of another config{where}: {'; '.join(different[:_SHOWN])}{more}. "
            "Go on with the same config, or choose another folder (--out)."
        )
