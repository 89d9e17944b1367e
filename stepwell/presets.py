"""Ready configurations: functions that return one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["PRESETS", "preset"]

Tree = dict[str, Any]


def quick() -> Tree:
    """A tiny agent with a learned process reward in a generated shop: about three minutes on two cores."""
    careful, careless = ("color", "scent", "flavor"), ("size", "pack", "power")
    haste = dict.fromkeys(careful, 0.35) | dict.fromkeys(careless, 0.8)
    return {
        "name": "quick",
        "steps": 60,
        "domain": {"kind": "shop", "products": 1000, "difficulty": (0.0, 0.25), "test_tasks": 200, "expert_haste": haste},
        "engine": {"kind": "tiny", "heads": 2, "max_length": 512, "threads": 2},
        "chat": {"tools": False},
        "cloning": {"steps": 600, "optimizer": {"rest_scale": 0.4}},
        "rollout": {"groups": 16, "group_size": 8, "turns": 10, "max_tokens": 16},
        "reward": {"kind": "implicit", "pay": "score", "lr": 1e-3, "judged": "mixed"},
        "credit": {"kind": "istar", "alpha": 0.1},
        "optimizer": {"lr": 5e-4, "betas": (0.9, 0.95)},
        "evaluation": {"every": 25, "episodes": 200, "during": 100},
    }


def smoke() -> Tree:
    """Everything once, in seconds."""
    tree = quick()
    tree |= {
        "name": "smoke",
        "steps": 2,
        "domain": {"kind": "shop", "products": 200, "difficulty": (0.0, 0.3), "test_tasks": 20},
        "engine": {"kind": "tiny", "width": 32, "feedforward": 64, "heads": 2, "max_length": 512, "corpus_tasks": 100},
        "cloning": {"steps": 10},
        "rollout": {"groups": 2, "group_size": 4, "turns": 6, "max_tokens": 12},
        "evaluation": {"every": 1, "episodes": 16, "during": 8},
        "checkpoint": {"every": 1},
    }
    return tree


def shop() -> Tree:
    """The agent system that `stepwell ablate shop` takes apart: judge, curriculum, alarms in a generated shop. A minute on one core."""
    tree = quick()
    tree |= {
        "name": "shop",
        "steps": 10,
        "domain": {**tree["domain"], "test_tasks": 100},
        "engine": {**tree["engine"], "threads": 1},
        "cloning": {**tree["cloning"], "steps": 400},
        "rollout": {**tree["rollout"], "groups": 8, "turns": 8, "max_tokens": 12},
        "reward": {**tree["reward"], "pay": "success"},
        "optimizer": {**tree["optimizer"], "lr": 3e-4},
        "curriculum": {"kind": "entropy", "bins": 5, "visits": 2},
        "alarms": {"action": "log", "window": 3},
        "evaluation": {"every": 2, "episodes": 100, "during": 32, "how": "sampled"},
    }
    return tree


def shop_large() -> Tree:
    """The generated shop with harder tasks and a larger model: many hours on two cores. Its settings have not been tuned."""
    tree = quick()
    tree |= {
        "name": "shop-large",
        "steps": 1000,
        "domain": {"kind": "shop", "products": 5000, "difficulty": (0.0, 1.0), "test_tasks": 500},
        "engine": {"kind": "tiny", "width": 192, "feedforward": 512, "max_length": 1024},
        "cloning": {"steps": 1500},
        "rollout": {"groups": 16, "group_size": 8, "turns": 12, "max_tokens": 24},
        "evaluation": {"every": 50, "episodes": 500, "during": 200},
    }
    return tree


def webshop() -> Tree:
    """The real WebShop products with a tiny model (say where they are: data=DIR)."""
    return {
        "name": "webshop",
        "steps": 40,
        "domain": {"kind": "webshop", "variant": "clean"},
        "engine": {"kind": "tiny", "heads": 2, "vocabulary": 8192, "max_length": 2048, "corpus_tasks": 800},
        "chat": {"tools": False},
        "cloning": {"steps": 2000, "optimizer": {"rest_scale": 0.4}},
        "rollout": {"groups": 8, "group_size": 8, "turns": 10, "max_tokens": 64},
        "reward": {"kind": "implicit", "pay": "score", "lr": 1e-4, "judged": "mixed"},
        "credit": {"kind": "istar", "alpha": 0.1},
        "optimizer": {"lr": 3e-4, "betas": (0.9, 0.95)},
        "evaluation": {"every": 20, "episodes": 200, "during": 90},
        "checkpoint": {"every": 20},
    }


def webshop_smollm() -> Tree:
    """The real WebShop products with SmolLM2-135M-Instruct (say where they are: data=DIR)."""
    return {
        "name": "webshop-smollm",
        "steps": 100,
        "domain": {"kind": "webshop", "variant": "clean"},
        "engine": {"kind": "local", "model": "smollm2-135m-instruct", "micro_tokens": 8192},
        "cloning": {"steps": 100, "optimizer": {"kind": "adamw", "lr": 2e-4, "warmup": 10, "decay": "linear"}},
        "rollout": {"groups": 4, "group_size": 8, "turns": 10, "max_tokens": 48, "context": 3072},
        "reward": {"kind": "implicit", "lr": 1e-5},
        "credit": {"kind": "istar", "baseline": "rloo", "alpha": 0.1, "noise_floor": 0.02},
        "optimizer": {"lr": 2e-5},
        "evaluation": {"every": 25, "episodes": 50, "during": 25},
        "checkpoint": {"every": 5},
    }


def default() -> Tree:
    """Qwen2.5-3B-Instruct on a GPU, in WebShop with iStar's published settings (say where the products are: data=DIR)."""
    return {
        "name": "default",
        "steps": 200,
        "domain": {"kind": "webshop", "variant": "clean"},
        "engine": {"kind": "local", "model": "Qwen/Qwen2.5-3B-Instruct", "policy": "lora", "micro_tokens": 16384},
        "chat": {"codec": "tool_call"},
        "rollout": {"groups": 16, "group_size": 8, "turns": 10, "max_tokens": 512, "context": 8192, "rows": 64},
        "reward": {"kind": "implicit", "beta": 0.05, "lr": 1e-5, "model": "lora"},
        "credit": {"kind": "istar", "baseline": "rloo", "alpha": 1.0, "noise_floor": 0.02},
        "optimizer": {"lr": 1e-5},
        "loss": {"ratio": "step", "pooling": "sum"},
        "evaluation": {"every": 20, "episodes": 200, "during": 128},
        "checkpoint": {"every": 10},
    }


def qwen3_4b() -> Tree:
    """Qwen3-4B-Base on a GPU, a base model with the plain template (say where the products are: data=DIR)."""
    tree = default()
    tree |= {
        "name": "qwen3-4b",
        "engine": {**tree["engine"], "model": "Qwen/Qwen3-4B-Base"},
        "chat": {"codec": "bracket", "template": "plain"},
        "rollout": {**tree["rollout"], "max_tokens": 256},
    }
    return tree


def judge() -> Tree:
    """A judge on SmolLM2-135M-Instruct by labelled steps, for `stepwell train-judge` (say where they are: reward.data=FILE)."""
    return {
        "name": "judge",
        "engine": {"kind": "local", "model": "smollm2-135m-instruct", "policy": "lora", "micro_tokens": 8192},
        "chat": {"tools": False},
        "reward": {"kind": "labelled", "separator": "\n\n", "lr": 3e-4, "warm": 500, "limit": 10_000, "held_out": 0.02, "max_length": 512},
        "credit": {"kind": "min_form"},
        "checkpoint": {"every": 100},
    }


def reasoning() -> Tree:
    """Products modulo a number, line by line, with a tiny model and rePIRL: a judge learnt from an expert. Minutes on one core."""
    return {
        "name": "reasoning",
        "steps": 25,
        "domain": {
            "kind": "reasoning",
            "task": "recurrence",
            "axes": {"modulus": 97, "factors": 4},
            "difficulty": (0.3, 0.5),
            "test_tasks": 80,
            "expert_slips": 0.2,
        },
        "engine": {"kind": "tiny", "width": 64, "feedforward": 128, "heads": 2, "max_length": 512, "threads": 1},
        "chat": {"tools": False},
        "cloning": {"steps": 1000, "optimizer": {"kind": "adamw", "lr": 4e-3}},
        "rollout": {"groups": 8, "group_size": 8, "turns": 8, "max_tokens": 12},
        "reward": {"kind": "inverse", "model": "full", "batch": 16, "lr": 1e-4},
        "credit": {"kind": "repirl", "alpha": 0.3, "unit": "largest_return"},
        "loss": {"entropy_coef": 0.001},
        "optimizer": {"lr": 1e-3, "warmup": 5, "betas": (0.9, 0.95)},
        "curriculum": {"admit": "accuracy", "accuracy": (0.1, 0.9), "flat": "take"},
        "evaluation": {"every": 25, "episodes": 80, "during": 40},
    }


def code() -> Tree:
    """Programs for MBPP, run in the sandbox, with SmolLM2-135M-Instruct (say where its file is: data=FILE train_data=FILE)."""
    return {
        "name": "code",
        "steps": 200,
        "domain": {"kind": "questions", "problems": "mbpp", "train": "mbpp-train"},
        "engine": {"kind": "local", "model": "smollm2-135m-instruct", "micro_tokens": 4096},
        "chat": {"codec": "text", "tools": False},
        "rollout": {"groups": 4, "group_size": 4, "turns": 1, "max_tokens": 192, "context": 1024},
        "reward": {"kind": "inverse", "batch": 4, "lr": 1e-3},
        "credit": {"kind": "repirl", "alpha": 0.1, "level": "token"},
        "loss": {"entropy_coef": 0.001},
        "optimizer": {"lr": 1e-5},
        "curriculum": {"admit": "accuracy", "accuracy": (0.1, 0.9), "flat": "take"},
        "evaluation": {"every": 0, "episodes": 50},
        "checkpoint": {"every": 5},
    }


PRESETS: Mapping[str, Callable[[], Tree]] = {
    "smoke": smoke,
    "quick": quick,
    "default": default,
    "qwen3-4b": qwen3_4b,
    "shop": shop,
    "shop-large": shop_large,
    "webshop": webshop,
    "webshop-smollm": webshop_smollm,
    "judge": judge,
    "reasoning": reasoning,
    "code": code,
}


def preset(name: str) -> Tree:
    """The settings of a preset as a tree; `configure.load` makes a checked `Config` of it."""
    return PRESETS[name]()
