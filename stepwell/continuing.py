"""A judge that goes on from what another run's judge has learnt: the second of two stages."""

from __future__ import annotations

from pathlib import Path

import yaml

from stepwell.config import Config, InverseConfig, LocalEngineConfig
from stepwell.configure import dump, parse, read_run
from stepwell.engine.export import load_weights
from stepwell.engine.local import LocalModel
from stepwell.errors import ConfigError, RunError
from stepwell.protocols import RewardLearner
from stepwell.runfolder import find_checkpoint

__all__ = ["check_start", "go_on_from"]

_SAME = ("objective", "model", "trunk", "bound", "beta")
"""Settings that decide what a judge's weights say."""


def check_start(config: Config, reward: InverseConfig, run: Path) -> None:
    """Whether the judge of that run can go on here.

    Its weights mean something only to the tokenizer that they were learnt with, and a head on a shared trunk only behind the hidden states
    of that run's policy. So the policy has to begin as that run's, which `stepwell export` writes; a judge with a trunk of its own may also
    stand beside the same model from a folder.

    Raises:
        ConfigError: The run has a judge of another kind or form, or the policy begins as something else.
        RunError: The folder holds no run, or no checkpoint with a judge.
    """
    trained = read_run(run)
    before = trained.reward
    if not isinstance(before, InverseConfig):
        raise ConfigError(
            f"reward.start is {run}, whose judge is of kind {before.kind!r}; only one of kind 'inverse' goes on learning. "
            "A judge of another kind can be used as it is: reward.kind=trained."
        )
    for name in _SAME:
        was, wanted = getattr(before, name), getattr(reward, name)
        if was != wanted:
            raise ConfigError(
                f"reward.{name} is {wanted!r}, and was {was!r} in {run}, whose judge is to go on; set reward.{name}={was}, "
                "or leave reward.start out."
            )
    if "judge" not in find_checkpoint(run, "last").models:
        raise RunError(
            f"{run} has no judge yet: a judge is made when the warm start is over. Go on with its training, or leave reward.start out."
        )
    if not _begins_as(config, reward, trained):
        raise ConfigError(
            f"reward.start is {run}, and the policy does not begin as that run's, so that its judge would read another tokenizer or other "
            f"hidden states. Begin from it: stepwell export {run} DIR, then engine.kind=local engine.model=DIR. To use the judge as it is, "
            "whatever the policy: reward.kind=trained."
        )


def _begins_as(config: Config, reward: InverseConfig, trained: Config) -> bool:
    engine = config.engine
    if not isinstance(engine, LocalEngineConfig):
        return False
    exported = Path(engine.model) / "stepwell.yaml"
    if exported.is_file():
        return dump(parse(yaml.safe_load(exported.read_text(encoding="utf-8")))) == dump(trained)
    stands_alone = reward.model != "head" or reward.trunk == "own"
    return stands_alone and isinstance(trained.engine, LocalEngineConfig) and trained.engine.model == engine.model


def go_on_from(judge: RewardLearner, run: Path) -> None:
    """Gives a fresh judge the weights that the judge of a run has learnt. Its optimiser, its confidence and its demonstrations begin anew,
    as there is another task to be right about.

    Raises:
        RunError: The weights are those of another model.
    """
    found = find_checkpoint(run, "last")
    for name, model in judge.models().items():
        if isinstance(model, LocalModel):
            load_weights(model, found.folder_of(name))
        else:
            found.restore_model(name, model)
