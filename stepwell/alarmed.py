"""What alarms do to a run: log, stop, roll back to the best checkpoint, or lower the weight of the process part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from stepwell import checkpoint
from stepwell.alarms import DETECTORS, Alarm, Bounds, Watch, probes, signals
from stepwell.config import Config
from stepwell.errors import RunError
from stepwell.trainer import StepResult, Trainer
from stepwell.types import JSON, Group, Metrics, Scored

__all__ = ["Alarmed", "watching"]


def watching(config: Config) -> Watch | None:
    """The watch that the settings name; None where nothing is watched.

    Raises:
        ConfigError: An unknown detector.
    """
    found = config.alarms
    watch = Watch(Bounds(window=found.window, rate=found.rate), found.detectors or tuple(DETECTORS))
    return None if found.action == "none" else watch


class Alarmed:
    """Looks at every step of a run, and does what the settings say where an alarm is raised.

    Attributes:
        stopped: Why the run has ended; empty while it goes on.
        went_back: Whether the last step ended with the weights of another one.
    """

    def __init__(self, config: Config, watch: Watch, trainer: Trainer, checkpoints: Path) -> None:
        self.config, self.watch, self.trainer, self.checkpoints = config, watch, trainer, checkpoints
        self.stopped, self.went_back = "", False

    def look(self, result: StepResult) -> tuple[Metrics, list[str]]:
        """Metrics of the step, and what there is to say."""
        self.went_back = False
        step = self.trainer.done - self.trainer.clone_steps
        groups: list[Group[Scored]] = [Group(g.task, tuple(m.scored for m in g.members)) for g in result.groups]
        measured = signals(groups)
        judge = self.trainer.judge()
        if self.config.alarms.probes and judge is not None:
            measured |= probes(judge, groups, most=self.config.alarms.probes, seed=(self.config.seed, "probe", step))
        alarms = self.watch.observe(step, measured)
        metrics = self.watch.metrics() | {"alarms/fired": float(len(alarms))}
        said = [str(alarm) for alarm in alarms] + (self._act(alarms) if alarms else [])
        return metrics | {"alarms/process_weight": self.trainer.process_weight}, said

    def _act(self, alarms: Sequence[Alarm]) -> list[str]:
        action = self.config.alarms.action
        if action == "stop":
            self.stopped = str(alarms[0])
            return [f"The run was stopped at step {alarms[0].step} by alarm {alarms[0].detector!r} (alarms.action=stop)."]
        if action == "log":
            return []
        said = [self._go_back(alarms[0].step)] if action == "rollback" else []
        self.trainer.process_weight *= self.config.alarms.factor
        return [*said, f"From step {alarms[0].step} on the process part of credit weighs {self.trainer.process_weight:.3g}."]

    def _go_back(self, step: int) -> str:
        best = checkpoint.best(self.checkpoints)
        if best is None:
            return f"At step {step} there was no evaluated checkpoint to go back to."
        trainer = best.state["trainer"]
        assert isinstance(trainer, Mapping)
        at = best.step - self.trainer.clone_steps
        try:
            self.trainer.go_back(trainer, best.restore_models)
        except RunError as error:
            return f"At step {step} the best checkpoint is of step {at} and was not taken back. {error}"
        self.watch.forget()
        self.went_back = True
        return f"At step {step} the weights of step {at} were taken back, the best by evaluation ({best.value})."

    def state(self) -> dict[str, JSON]:
        """For the checkpoint."""
        return {"watch": self.watch.state(), "stopped": self.stopped}

    def restore(self, state: Mapping[str, JSON]) -> None:
        """Goes on from `state`; a run that stopped goes on where the settings do not stop it any more.

        Raises:
            RunError: It was stopped, and would be again.
        """
        watch = state.get("watch")
        if isinstance(watch, Mapping):
            self.watch.restore(watch)
        self.stopped = str(state.get("stopped", ""))
        if self.stopped and self.config.alarms.action == "stop":
            raise RunError(f"The run was stopped by an alarm. {self.stopped} Resume with alarms.action=log to go on all the same.")
        self.stopped = ""
