"""Writes down what a run does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from stepwell.files import disk_errors
from stepwell.tracking.episodes import Decode, Purpose, write_episodes
from stepwell.tracking.metrics import append_metrics, check_names, last_step
from stepwell.tracking.progress import Progress
from stepwell.tracking.sinks import Sink
from stepwell.types import Credited, Episode, Group, Metrics, Scored

__all__ = ["Tracker"]


class Tracker:
    """Metrics, episodes, sinks and progress of one run.

    Call `log_episodes` and `log` for a step before its checkpoint is saved: a resumed run keeps the logs up to the checkpoint's step, so
    whatever is logged after would be missing for ever. Step n is update n, counted from 1; step 0 is what is measured before the first.

    Args:
        run: The run's folder.
        sinks: Other places for the metrics.
        progress: What is shown.
        decode: Token ids -> text, for steps that are a part of a turn.
    """

    def __init__(self, run: Path, *, sinks: Sequence[Sink] = (), progress: Progress | None = None, decode: Decode | None = None) -> None:
        self._run, self._sinks, self._progress, self._decode = run, tuple(sinks), progress, decode
        with disk_errors(f"Metrics cannot be kept in {run}"):
            run.mkdir(parents=True, exist_ok=True)
            self._last = last_step(run)

    def log(self, step: int, metrics: Metrics) -> None:
        """Writes the metrics of a step, all in one line.

        Raises:
            ValueError: The step is not later than the last one, or a name is not `area/name`.
            RunError: The disk refuses; the file is as it was before.
        """
        if self._last is not None and step <= self._last:
            raise ValueError(
                f"Metrics of step {step} come after those of step {self._last}; steps ascend and each has one line. "
                "Put all metrics of a step into one call; on resume, cut the logs back first (RunFolder.rewind)."
            )
        check_names(metrics)
        with disk_errors(f"The metrics of step {step} could not be written to {self._run}"):
            append_metrics(self._run, step, metrics)
        self._last = step
        for sink in self._sinks:
            sink.log(step, metrics)
        if self._progress is not None:
            self._progress.advance(step, metrics)

    def log_episodes(
        self, step: int, groups: Sequence[Group[Episode] | Group[Scored] | Group[Credited]], purpose: Purpose = "train"
    ) -> None:
        """Writes every episode of a step; calling it again for the same step replaces the file."""
        with disk_errors(f"The episodes of step {step} could not be written to {self._run}"):
            write_episodes(self._run, step, groups, purpose=purpose, decode=self._decode)

    def close(self) -> None:
        """Ends the progress display and the sinks."""
        if self._progress is not None:
            self._progress.close()
        for sink in self._sinks:
            sink.close()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
