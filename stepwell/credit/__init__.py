"""Pure numpy: step rewards -> advantages. Ragged float64 arrays on the host; no torch."""

from stepwell.credit.advantage import IStar, OutcomeOnly, ProcessToGo, outcome_counts, outcomes_differ
from stepwell.credit.baseline import Baseline, Centred, Fit, LeaveOneOut, Standardised, compare
from stepwell.credit.metrics import credit_metrics
from stepwell.credit.returns import to_go
from stepwell.credit.segment import (
    Pieces,
    Segment,
    by_line,
    by_paragraph,
    by_token,
    by_turn,
    by_window,
    last_steps,
    pool,
    spread,
    step_of_tokens,
)

__all__ = [
    "Baseline",
    "Centred",
    "Fit",
    "IStar",
    "LeaveOneOut",
    "OutcomeOnly",
    "Pieces",
    "ProcessToGo",
    "Segment",
    "Standardised",
    "by_line",
    "by_paragraph",
    "by_token",
    "by_turn",
    "by_window",
    "compare",
    "credit_metrics",
    "last_steps",
    "outcome_counts",
    "outcomes_differ",
    "pool",
    "spread",
    "step_of_tokens",
    "to_go",
]
