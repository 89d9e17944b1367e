"""Other places for metrics: TensorBoard and Weights & Biases, imported only when asked for (extra `track`)."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from stepwell.errors import MissingExtraError
from stepwell.files import write_atomic
from stepwell.types import JSON, Metrics

__all__ = ["Sink", "tensorboard", "wandb"]


class Sink(Protocol):
    """Takes the metrics of each step; missing values (NaN) are left out."""

    def log(self, step: int, metrics: Metrics) -> None: ...
    def close(self) -> None: ...


def tensorboard(folder: Path, *, start: int = 0) -> Sink:
    """Event files in `folder`, written without torch; a resumed run (`start` steps done) hides what an earlier process wrote after that.

    Raises:
        MissingExtraError: tensorboard is not installed.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as fault:
        raise MissingExtraError("tensorboard", "track") from fault
    writer = EventFileWriter(str(folder))
    writer.add_event(Event(wall_time=time.time(), step=start + 1, session_log=SessionLog(status=SessionLog.START)))

    class TensorBoard:
        def log(self, step: int, metrics: Metrics) -> None:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items() if not math.isnan(value)]
            writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
            writer.flush()

        def close(self) -> None:
            writer.close()

    return TensorBoard()


def wandb(project: str, name: str, *, folder: Path, config: Mapping[str, JSON]) -> Sink:
    """A run of Weights & Biases named `name`. Its id is kept in `folder`, so that a resumed run goes on in it, and a new one of the same
    name does not. W&B's own settings (WANDB_MODE, ...) hold.

    Raises:
        MissingExtraError: wandb is not installed.
    """
    try:
        import wandb as library
    except ImportError as fault:
        raise MissingExtraError("wandb", "track") from fault
    id_file = folder / ".wandb-id"
    if not id_file.exists():
        write_atomic(id_file, uuid.uuid4().hex[:16])
    run = library.init(
        project=project, name=name, id=id_file.read_text(encoding="utf-8"), dir=str(folder), config=dict(config), resume="allow"
    )
    run.define_metric("*", step_metric="step")

    class WandB:
        def log(self, step: int, metrics: Metrics) -> None:
            run.log({"step": step, **{key: value for key, value in metrics.items() if not math.isnan(value)}})

        def close(self) -> None:
            run.finish()

    return WandB()
