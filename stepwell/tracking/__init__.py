"""What a run writes down: metrics for each step, every episode, and what is shown while it runs."""

from stepwell.tracking.episodes import (
    EpisodeRecord,
    StepRecord,
    TurnRecord,
    cut_episodes,
    episode_steps,
    read_episodes,
    record,
    write_episodes,
)
from stepwell.tracking.metrics import (
    MetricsLine,
    Present,
    append_metrics,
    check_names,
    copy_metrics,
    cut_metrics,
    episode_metrics,
    last_step,
    mean_present,
    read_metrics,
    reward_metrics,
)
from stepwell.tracking.progress import Progress, progress
from stepwell.tracking.sinks import Sink, tensorboard, wandb
from stepwell.tracking.tracker import Tracker

__all__ = [
    "EpisodeRecord",
    "MetricsLine",
    "Present",
    "Progress",
    "Sink",
    "StepRecord",
    "Tracker",
    "TurnRecord",
    "append_metrics",
    "check_names",
    "copy_metrics",
    "cut_episodes",
    "cut_metrics",
    "episode_metrics",
    "episode_steps",
    "last_step",
    "mean_present",
    "progress",
    "read_episodes",
    "read_metrics",
    "record",
    "reward_metrics",
    "tensorboard",
    "wandb",
    "write_episodes",
]
