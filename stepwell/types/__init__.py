"""The nouns of Stepwell.

Legend of shape suffixes, used in the whole library: G group, S step, B batch row, L row length, N target, T sampled token, V vocabulary.

An episode is a list of turns. A turn is one message of the policy, made of sampled tokens, and the environment's reply to it.
A **step** is a half-open span of the episode's sampled tokens inside one turn; steps partition the sampled tokens, in order.
Stages are types: `Group[Episode] -> Group[Scored] -> Group[Credited] -> rows -> loss`. A skipped stage is a type error.

All data types are frozen. Log-probabilities are natural logs of sampled tokens under the sampling distribution (temperature included),
float64 on the host. "Unscored" is `None` (or `False` in a `scored` mask): neither 0 nor NaN.
"""

from stepwell.types.rows import Batch, Mean, Outputs, Row, Tallies
from stepwell.types.stages import Credited, Group, Scored, Steps
from stepwell.types.turns import Completion, Ending, EndingKind, Episode, Sampling, Stop, Turn
from stepwell.types.values import JSON, Bools, Floats, Ids, Metrics
from stepwell.types.words import Action, Invalid, Observation, Reply, Task, Tool, Verdict

__all__ = [
    "JSON",
    "Action",
    "Batch",
    "Bools",
    "Completion",
    "Credited",
    "Ending",
    "EndingKind",
    "Episode",
    "Floats",
    "Group",
    "Ids",
    "Invalid",
    "Mean",
    "Metrics",
    "Observation",
    "Outputs",
    "Reply",
    "Row",
    "Sampling",
    "Scored",
    "Steps",
    "Stop",
    "Tallies",
    "Task",
    "Tool",
    "Turn",
    "Verdict",
]
