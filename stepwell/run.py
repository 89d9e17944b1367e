"""A whole run: folder, logs, checkpoints, evaluations and report around the trainer's loop."""

from __future__ import annotations

import importlib.util
import math
import resource
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stepwell import checkpoint
from stepwell.alarmed import Alarmed, watching
from stepwell.build import Built, build, build_domain, first_tasks
from stepwell.config import Config
from stepwell.configure import dump
from stepwell.curriculum import Tells
from stepwell.engine.parallel import follow
from stepwell.engine.ranks import Ranks, num_ranks
from stepwell.errors import ConfigError, MissingExtraError, RunError
from stepwell.evaluation.evaluate import Evaluation, evaluate
from stepwell.evaluation.intervals import Interval
from stepwell.files import disk_errors
from stepwell.report import Change, Facts, write_report
from stepwell.runfolder import RunFolder, find_checkpoint
from stepwell.show import neutral
from stepwell.speaking import build_follower
from stepwell.tracking import Tracker, copy_metrics, episode_metrics, last_step, progress, reward_metrics
from stepwell.tracking.progress import Progress
from stepwell.tracking.sinks import Sink, tensorboard, wandb
from stepwell.trainer import StepResult
from stepwell.types import JSON, Group, Metrics, Scored

__all__ = ["MAY_DIFFER", "NothingLeftError", "check_sinks", "peak_memory_bytes", "sinks_of", "train"]

MAY_DIFFER = ("steps", "name", "evaluation.every", "alarms.action", "checkpoint", "tracking", "engine.url", "engine.judge_url")
"""Settings that a resumed run may change."""


class NothingLeftError(RunError):
    """The run is finished; a larger `steps` continues it."""


class _Totals(NamedTuple):
    """Sums over all processes of a run."""

    seconds: float = 0.0
    episodes: int = 0
    tokens: int = 0
    peak_memory_bytes: int = 0
    """The largest of any process."""


def train(
    config: Config, run: Path | str, *, resume: bool = False, show: bool = False, warm: Path | str | None = None
) -> Iterator[tuple[int, Metrics]]:
    """Trains; yields (number of updates done, metrics) after every step.

    Everything is checked before any token is sampled. With `resume` a run that was killed at any moment goes on to the same numbers; a
    folder without a run starts one. When the iterator ends, `report.md` and `report.json` are in the folder.

    Args:
        config: From `stepwell.load` or `stepwell.parse`.
        run: The run's folder.
        resume: Go on with the run in the folder.
        show: Print a progress bar and notices to standard error.
        warm: A run that has done this config's warm start (`stepwell.ablation.warm`): a run that is new begins where that ended, to the
            numbers that it would have had by itself.

    Started by `torchrun`, the first process leads and yields; the others compute with it, yield nothing and write nothing.

    Raises:
        ConfigError: A setting that cannot work.
        RunError: The folder cannot be used; `NothingLeftError` where the run is finished.
    """
    run, warm = Path(run), None if warm is None else Path(warm)
    if num_ranks() == 1:
        yield from _train(config, run, resume=resume, show=show, warm=warm, ranks=None)
        return
    ranks = Ranks.join()
    if ranks.number:
        follow(build_follower(config, build_domain(config.domain)), ranks)
        return
    try:
        yield from _train(config, run, resume=resume, show=show, warm=warm, ranks=ranks)
    finally:
        ranks.dismiss()


def _train(config: Config, run: Path, *, resume: bool, show: bool, warm: Path | None, ranks: Ranks | None) -> Iterator[tuple[int, Metrics]]:
    built = build(config, ranks=ranks)
    _check_ahead(config, built)
    if resume:
        _check_not_beyond(built, run)
    tree = dump(config)
    fixed = ("checkpoint", "evaluation.every") if config.rollout.ahead else ()  # They decide which batches are sampled ahead.
    folder = (RunFolder.resume if resume else RunFolder.create)(run, tree, may_differ=[key for key in MAY_DIFFER if key not in fixed])
    with folder:
        yield from _Conductor(config, built, folder, show=show, warm=warm).conduct()


def _check_ahead(config: Config, built: Built) -> None:
    """What would otherwise come to light only after the training."""
    check_sinks(config)
    watching(config)
    if not built.domain.tasks("test"):
        raise ConfigError("The domain's split 'test' has no tasks; success is measured on them before and after training, so give it some.")
    if not config.evaluation.every:
        return
    try:
        found = built.domain.tasks("validation")
    except ConfigError as error:
        raise ConfigError(f"{error} Set evaluation.every=0 to do without evaluations during training, which need the split.") from error
    if not found:
        raise ConfigError(f"The domain's split 'validation' has no tasks; evaluation.every is {config.evaluation.every}: set it to 0.")


def _check_not_beyond(built: Built, run: Path) -> None:
    """A run cannot be resumed to an earlier step."""
    done = max(checkpoint.saved_steps(run / "checkpoints"), default=0)
    if done > built.trainer.total_steps:
        clone_steps = built.trainer.clone_steps
        raise RunError(
            f"{run} has done {done - clone_steps} steps and was asked for steps={built.trainer.total_steps - clone_steps}. "
            "Give as many steps as are done, or more."
        )


class _Conductor:
    """Holds what is written down around the loop."""

    def __init__(self, config: Config, built: Built, folder: RunFolder, *, show: bool, warm: Path | None) -> None:
        self.config, self.built, self.folder = config, built, folder
        self._show = show
        self.trainer = built.trainer
        self.totals = _Totals()
        self.before: dict[str, JSON] = {}
        self.after: dict[str, JSON] = {}
        self.notes = list(built.speaker.notices)
        watch = watching(config)
        self.alarmed = None if watch is None else Alarmed(config, watch, built.trainer, folder.checkpoints)
        self._value: float | None = None
        logged = last_step(folder.path)
        found = folder.rewind()
        if found is not None:
            self._restore(found)
        elif warm is not None:
            self._begin_where(warm)
        elif logged and logged > self.config.checkpoint.every:  # as many steps have had a checkpoint
            self.notes.append(f"{folder.path} had logged {logged} steps and holds no checkpoint; the run began again.")
        trainer = self.trainer
        bar = progress(trainer.total_steps, start=trainer.done, warm=trainer.clone_steps) if show else None
        if show:
            for note in self.notes:
                print(f"note: {note}", file=sys.stderr)
        self.tracker = Tracker(folder.path, sinks=sinks_of(config, folder.path, trainer.done), progress=bar)
        self._bar: Progress | None = bar

    def conduct(self) -> Iterator[tuple[int, Metrics]]:
        """The steps that are left, each logged and saved when it is due; then the report."""
        trainer = self.trainer
        if trainer.done >= trainer.total_steps and self.after:
            self.report()
            raise NothingLeftError(
                f"{self.folder.path} is finished: all {trainer.total_steps} steps are done and nothing is left. "
                f"Its report is {self.folder.path / 'report.md'}; give a larger steps=... to go on."
            )
        with self.tracker:
            if trainer.done == 0 and trainer.clone_steps == 0 and not self.before:
                self.tracker.log(0, self._measure_before())
            for result in trainer.run():
                metrics = self._after_step(result)
                yield trainer.done, metrics
                if self.alarmed is not None and self.alarmed.stopped:
                    break
            if not self.after:  # no step was left, but the steps that are done were not planned as the last ones
                self._measure_after()
                self._save()
        self.report()

    def _after_step(self, result: StepResult) -> Metrics:
        trainer, done = self.trainer, self.trainer.done
        metrics = dict(result.metrics)
        learnt = done - trainer.clone_steps
        if result.phase == "learn":
            episodes = [Group(g.task, tuple(m.scored.episode for m in g.members)) for g in result.groups]
            scored: list[Group[Scored]] = [Group(g.task, tuple(m.scored for m in g.members)) for g in result.groups]
            metrics |= episode_metrics(episodes) | reward_metrics(scored)
            tokens = sum(e.num_tokens for g in episodes for e in g.members)
            step_s = metrics["time/step_s"]
            count = sum(len(g.members) for g in episodes)
            self._add(_Totals(step_s, count, tokens))
            every = self.config.tracking.episodes_every
            if every and (learnt % every == 0 or done == trainer.total_steps):
                self.tracker.log_episodes(done, result.groups)
        else:
            self._add(_Totals(metrics["time/step_s"]))
        curriculum = trainer.parts.curriculum
        self.notes = list(dict.fromkeys([*self.notes, *(curriculum.news() if isinstance(curriculum, Tells) else ())]))
        metrics["time/train_s"] = self.totals.seconds
        if learnt == 0:
            metrics |= self._measure_before()
        self._value = self._validate(metrics, learnt)
        if result.phase == "learn":
            self._look(result, metrics)
        if done == trainer.total_steps:
            metrics |= self._measure_after()
        self.tracker.log(done, metrics)
        went_back = self.alarmed is not None and self.alarmed.went_back
        if went_back or self._is_due(done, learnt):
            self._save()
        return metrics

    def _look(self, result: StepResult, metrics: Metrics) -> None:
        """Asks for alarms. Where weights were taken back, the evaluation was of others."""
        if self.alarmed is None:
            return
        found, said = self.alarmed.look(result)
        metrics |= found
        self.notes = list(dict.fromkeys([*self.notes, *said]))
        if self._show:
            for note in said:
                print(f"note: {note}", file=sys.stderr)
        if self.alarmed.went_back:
            self._value = None

    def _add(self, more: _Totals) -> None:
        peak = max(self.totals.peak_memory_bytes, peak_memory_bytes())
        seconds, episodes, tokens, _ = self.totals
        self.totals = _Totals(seconds + more.seconds, episodes + more.episodes, tokens + more.tokens, peak)

    # -- evaluation -----------------------------------------------------------------------------------------------------------

    def _evaluate(self, split: str, n: int, temperature: float) -> Evaluation:
        domain, player = self.built.domain, self.built.speaker.player
        tasks = first_tasks(domain, split, n)
        seed = (self.config.seed, split, f"temperature {temperature}")
        return evaluate(domain, tasks, self.built.policy.snapshot(), player.at(temperature), seed=seed)

    def _validate(self, metrics: Metrics, learnt: int) -> float | None:
        every = self.config.evaluation.every
        if learnt < 0 or not every or learnt % every:
            return None
        sampled = self._evaluate("validation", self.config.evaluation.during, 1.0)
        metrics |= _named("eval/success", sampled.success)
        if self.config.evaluation.how == "both":
            greedy = self._evaluate("validation", self.config.evaluation.during, 0.0)
            metrics |= _named("eval/success_greedy", greedy.success)
        metrics |= {"eval/score": sampled.score.mean, "eval/turns": sampled.turns, "eval/invalid_actions": sampled.invalid}
        return None if math.isnan(sampled.success.mean) else sampled.success.mean

    def _measure(self, when: str) -> tuple[dict[str, JSON], Metrics]:
        n = self.config.evaluation.episodes
        sampled, greedy = self._evaluate("test", n, 1.0), self._evaluate("test", n, 0.0)
        self.notes = list(dict.fromkeys([*self.notes, *_ungraded(sampled, f"sampled held-out episodes {when} training")]))
        metrics = _named("test/success", sampled.success) | _named("test/success_greedy", greedy.success)
        metrics |= {"test/score": sampled.score.mean, "test/score_greedy": greedy.score.mean}
        return {"sampled": sampled.to_json(), "greedy": greedy.to_json()}, metrics

    def _measure_before(self) -> Metrics:
        self.before, metrics = self._measure("before")
        return metrics

    def _measure_after(self) -> Metrics:
        self.after, metrics = self._measure("after")
        return metrics

    # -- saving ---------------------------------------------------------------------------------------------------------------

    def _is_due(self, done: int, learnt: int) -> bool:
        every = self.config.checkpoint.every
        last_or_first = done == self.trainer.total_steps or learnt == 0
        return last_or_first or self._value is not None or (learnt % every == 0 if learnt > 0 else done % every == 0)

    def _save(self) -> None:
        """The state after the steps that are done; what `_restore` reads."""
        state: dict[str, JSON] = {
            "trainer": self.trainer.state(),
            "before": self.before,
            "after": self.after,
            "totals": list(self.totals),
            "steps": self.config.steps,
            "notes": self.notes,
            **({} if self.alarmed is None else {"alarms": self.alarmed.state()}),
        }
        keep, models = self.config.checkpoint.keep, self.trainer.models()
        checkpoint.save(self.folder.checkpoints, self.trainer.done, models=models, state=state, keep=keep, value=self._value)

    def _restore(self, found: checkpoint.Checkpoint) -> None:
        state = found.state
        trainer, before, after, totals, notes = (state[name] for name in ("trainer", "before", "after", "totals", "notes"))
        assert isinstance(trainer, Mapping) and isinstance(before, dict) and isinstance(after, dict)
        assert isinstance(totals, list) and isinstance(notes, list)
        self.trainer.restore(trainer, found.restore_models)
        seconds, episodes, tokens, peak = totals
        self.totals = _Totals(float(seconds), int(episodes), int(tokens), int(peak))
        self._value = found.value
        alarms = state.get("alarms")
        if self.alarmed is not None and isinstance(alarms, Mapping):
            self.alarmed.restore(alarms)
        self.before = before
        self.after = after if self.trainer.done == self.trainer.total_steps else {}
        self.notes = list(dict.fromkeys([*map(str, notes), *self.notes, *self._replanned(state["steps"])]))

    def _begin_where(self, warm: Path) -> None:
        """Takes the policy, the logs and the measurements of a run that has done the warm start; all else is new."""
        found = find_checkpoint(warm, "last")
        if found.step != self.trainer.clone_steps:
            raise RunError(
                f"{warm} ends after {found.step} updates, and the warm start of {self.folder.path} has {self.trainer.clone_steps}; "
                "give the run that has done this warm start, or none."
            )
        with disk_errors(f"The logs of {warm} could not be copied to {self.folder.path}"):
            copy_metrics(warm, self.folder.path)
        self._restore(replace(found, state={**found.state, "trainer": {**self.trainer.state(), "done": found.step}, "after": {}}))
        self._save()

    def _replanned(self, planned: JSON) -> list[str]:
        """A decay that runs over all steps has by now been another one than it would be from the start."""
        decay, steps = self.config.optimizer.decay, self.config.steps
        if decay == "constant" or planned == steps or self.trainer.done <= self.trainer.clone_steps:
            return []
        done = self.trainer.done - self.trainer.clone_steps
        return [
            f"The first {done} steps were planned as the beginning of {planned}, the others as part of {steps}: with "
            f"optimizer.decay={decay} the learning rate is not that of a run with steps={steps} from the start."
        ]

    def report(self) -> None:
        """Writes report.md, report.json and plots."""
        self._add(_Totals())
        success, greedy = (Change(_interval(self.before, how), _interval(self.after, how)) for how in ("sampled", "greedy"))
        facts = Facts(
            title=f"{self.config.name}, seed {self.config.seed}",
            evaluated=f"{_count(self.after or self.before)} held-out tasks",
            success=success,
            success_greedy=greedy,
            train_seconds=self.totals.seconds,
            episodes=self.totals.episodes,
            tokens=self.totals.tokens,
            peak_memory_bytes=self.totals.peak_memory_bytes,
            seed=self.config.seed,
            config_hash=self.folder.config_hash,
            notes=tuple(self.notes),
        )
        write_report(self.folder.path, facts)


def sinks_of(config: Config, run: Path, done: int) -> list[Sink]:
    """Where else metrics go, from update `done` on."""
    settings, sinks = config.tracking, []
    if settings.tensorboard:
        sinks.append(tensorboard(run / "tensorboard", start=done))
    if settings.wandb is not None:
        sinks.append(wandb(settings.wandb, config.name, folder=run, config=dump(config)))
    return sinks


def check_sinks(config: Config) -> None:
    """Whether what these settings write to is installed."""
    for package, wanted in (("tensorboard", config.tracking.tensorboard), ("wandb", config.tracking.wandb is not None)):
        if wanted and importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "track")


def _ungraded(found: Evaluation, what: str) -> list[str]:
    """That episodes enter no number, and why the first does not."""
    lost = found.failed + found.unscored
    if not lost:
        return []
    episodes = (episode for group in found.groups for episode in group.members)
    reason = next(episode.verdict.reason for episode in episodes if episode.verdict.score is None)
    shown = " ".join(neutral(reason).replace("`", "'").split())[:200]
    return [f"{lost} of {found.episodes} {what} have no grade and enter no number ({found.failed} of them failed). The first: `{shown}`"]


def peak_memory_bytes() -> int:
    """Largest resident memory of this process so far."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _interval(measured: dict[str, JSON], how: str) -> Interval | None:
    part = measured.get(how)
    found = part["success"] if isinstance(part, dict) else None
    if not isinstance(found, dict):
        return None
    return Interval(*(math.nan if found[name] is None else float(found[name]) for name in ("mean", "low", "high")))


def _count(measured: dict[str, JSON]) -> JSON:
    part = measured.get("sampled")
    return part["episodes"] if isinstance(part, dict) else 0


def _named(name: str, interval: Interval) -> Metrics:
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
