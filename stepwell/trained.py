"""What was trained: opened to play, or written out for other programs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from stepwell.checkpoint import Checkpoint
from stepwell.config import Config, ImplicitConfig, InverseConfig, LocalEngineConfig
from stepwell.configure import COMPUTING, check_overrides, dump, parse, read_run
from stepwell.domains import build_domain
from stepwell.engine.export import load_weights, write_pretrained
from stepwell.engine.local import LocalEngine, Text
from stepwell.engine.template import PLAIN
from stepwell.errors import RunError
from stepwell.files import disk_errors, sync_path, sync_tree, write_atomic
from stepwell.judging import judge_spec
from stepwell.protocols import Domain, ModelSpec, Policy
from stepwell.rollout import Player
from stepwell.runfolder import Which, find_checkpoint
from stepwell.speaking import build_speaker, load_base, make_chat, policy_spec
from stepwell.step_judges import speaking_spec

__all__ = ["Trained", "export", "open_model", "open_run"]

_SPEAKING = ("domain", "chat", *(f"rollout.{name}" for name in ("turns", "max_tokens", "context", "stop", "rows", "wall_s")))


class Trained(NamedTuple):
    """A policy with everything it needs to play.

    Attributes:
        config: Of the run, with what was changed; of a model that no run made, the defaults.
        origin: In words, such as `runs/quick-0, step 580`.
        step: Updates that the weights have seen; None for a model that no run made.
        checkpoint: The last or the best one; None for a model that no run made.
        tokenizer: Of the policy: what a judge with another one is told the text by.
    """

    config: Config
    domain: Domain
    player: Player
    policy: Policy
    origin: str
    step: int | None
    checkpoint: Which | None
    tokenizer: Any


def open_run(run: Path | str, overrides: Sequence[str] = (), *, checkpoint: Which = "last") -> Trained:
    """The policy of a run, in the run's domain or in another.

    Args:
        run: The run's folder; a run that is going on can be opened too.
        overrides: `key=value` arguments for `domain`, `chat` and the limits of `rollout`; the weights stay those of the run.
        checkpoint: The last one, or the one with the best evaluation during training.

    Raises:
        RunError: The folder holds no run, or no such checkpoint.
        ConfigError: A setting that cannot be changed here, or does not fit the domain.
    """
    run = Path(run)
    trained = read_run(run)
    found = find_checkpoint(run, checkpoint)
    check_overrides(overrides, (*_SPEAKING, *COMPUTING))
    config = parse(dump(trained) | {"interrupted_credit": {}}, overrides)  # no credit is given, and interruptions may be taken away
    domain = build_domain(config.domain)
    speaker = build_speaker(config, domain, trained)
    model = speaker.engine.model("policy", policy_spec(config))
    load_weights(model, _weights(run, found, "policy"))
    return Trained(config, domain, speaker.player, model.snapshot(), f"{run}, step {found.step}", found.step, checkpoint, speaker.tokenizer)


def open_model(name: str, domain: str, overrides: Sequence[str] = ()) -> Trained:
    """A model as it is.

    Args:
        name: A folder that `save_pretrained` (or `export`) wrote, a hub id, a .gguf file, or `smollm2-135m-instruct`.
        domain: Kind of domain.
        overrides: `key=value` arguments for `domain`, `chat`, `engine` and the limits of `rollout`.
    """
    check_overrides(overrides, (*_SPEAKING, "engine"))
    config = parse({"domain": {"kind": domain}, "engine": {"kind": "local", "model": name}}, overrides)
    world = build_domain(config.domain)
    speaker = build_speaker(config, world)
    return Trained(config, world, speaker.player, speaker.engine.as_it_is(), name, None, None, speaker.tokenizer)


def export(run: Path | str, target: Path | str, *, model: Literal["policy", "judge"] = "policy", checkpoint: Which = "last") -> Path:
    """Writes a folder that `AutoModelForCausalLM.from_pretrained` and `AutoTokenizer.from_pretrained` load; returns it.

    Weights are float32: the masters that were trained, adapters merged into their base. The run's config lies beside them.

    Args:
        run: The run's folder.
        target: New, or empty. It is there in full or not at all.
        model: The judge must be a language model like the policy: one of a kind that has one, see the error that says otherwise.
        checkpoint: As in `open_run`.

    Raises:
        RunError: No such run, checkpoint or model; the target is not empty; the disk refuses.
    """
    run, target = Path(run), Path(target)
    config = trained = read_run(run)
    _check_target(target)
    found = find_checkpoint(run, checkpoint)
    weights = _weights(run, found, model)
    spec = policy_spec(config) if model == "policy" else _speaking_judge(config, run)
    if isinstance(config.engine, LocalEngineConfig):
        config = parse(dump(config), ["engine.device=cpu", "engine.dtype=float32"])
    module, tokenizer = load_base(config)
    chat = make_chat(tokenizer, config.chat)
    engine = LocalEngine(module, Text(tokenizer.decode, chat.eos_ids))
    made = engine.model(model, replace(spec, of=None))
    load_weights(made, weights)
    writing = target.with_name(f".{target.name}.writing")
    template = PLAIN if config.chat.template == "plain" else None
    with disk_errors(f"The model could not be written to {target}"):
        try:
            shutil.rmtree(writing, ignore_errors=True)
            writing.mkdir(parents=True)
            write_pretrained(made, tokenizer, writing, eos_ids=chat.eos_ids, template=template)
            write_atomic(writing / "stepwell.yaml", yaml.safe_dump(dump(trained), sort_keys=False, allow_unicode=True))
            sync_tree(writing)
            writing.rename(target)
            sync_path(target.parent)
        finally:
            shutil.rmtree(writing, ignore_errors=True)
    return target


def _weights(run: Path, found: Checkpoint, model: str) -> Path:
    if model == "policy" and model not in found.models:
        raise RunError(
            f"{run} has no policy: it is a judge that was taught by a file alone. It judges (stepwell score, eval-judge, search --judge) "
            "and does not play."
        )
    return found.folder_of(model)


def _speaking_judge(config: Config, run: Path) -> ModelSpec:
    reward = config.reward
    if isinstance(reward, ImplicitConfig | InverseConfig) and reward.model != "head":
        return judge_spec(config, reward)
    spec = speaking_spec(config)
    if spec is not None:
        return spec
    model = " with a head" if isinstance(reward, InverseConfig) else ""
    raise RunError(
        f"{run} has a judge of kind {reward.kind!r}{model}, which is not written out as a language model; those of kinds 'implicit' and "
        "'soft_q' are, of kind 'inverse' with reward.model=full or lora, and of kinds 'montecarlo' and 'labelled' with reward.judge=label."
    )


def _check_target(target: Path) -> None:
    if target.is_dir() and any(target.iterdir()):
        raise RunError(f"{target} is not empty; give a new or an empty folder to export to.")
    if target.exists() and not target.is_dir():
        raise RunError(f"{target} is a file; give a new or an empty folder to export to.")
