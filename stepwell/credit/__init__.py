"""Pure numpy: step rewards -> advantages. Ragged float64 arrays on the host; no torch."""

from stepwell.credit.adaptive import Adaptive
from stepwell.credit.advantage import IStar, OutcomeOnly, ProcessToGo
from stepwell.credit.anchor import GiGPO
from stepwell.credit.around import Around, Undisturbed, WeighedByEvents, Without, Worth, events_after
from stepwell.credit.baseline import Baseline, Centred, Fit, LeaveOneOut, Raw, Standardised, compare, compare_each
from stepwell.credit.by_hand import group_by_hand
from stepwell.credit.counterfactual import Counterfactual, Replay
from stepwell.credit.gae import GAE, Estimate, lambda_advantages
from stepwell.credit.leave_out import Prime, RePIRL
from stepwell.credit.metrics import credit_metrics
from stepwell.credit.min_form import MinForm
from stepwell.credit.returns import to_go
from stepwell.credit.rule import Need, Needing, Rule, needs_of, outcome_counts, outcomes_differ
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
from stepwell.credit.suffix import SuffixLogRatio
from stepwell.credit.supervised import ProcessSupervision
from stepwell.credit.whitened import ReinforcePlusPlus, Whitened

__all__ = [
    "GAE",
    "Adaptive",
    "Around",
    "Baseline",
    "Centred",
    "Counterfactual",
    "Estimate",
    "Fit",
    "GiGPO",
    "IStar",
    "LeaveOneOut",
    "MinForm",
    "Need",
    "Needing",
    "OutcomeOnly",
    "Pieces",
    "Prime",
    "ProcessSupervision",
    "ProcessToGo",
    "Raw",
    "RePIRL",
    "ReinforcePlusPlus",
    "Replay",
    "Rule",
    "Segment",
    "Standardised",
    "SuffixLogRatio",
    "Undisturbed",
    "WeighedByEvents",
    "Whitened",
    "Without",
    "Worth",
    "by_line",
    "by_paragraph",
    "by_token",
    "by_turn",
    "by_window",
    "compare",
    "compare_each",
    "credit_metrics",
    "events_after",
    "group_by_hand",
    "lambda_advantages",
    "last_steps",
    "needs_of",
    "outcome_counts",
    "outcomes_differ",
    "pool",
    "spread",
    "step_of_tokens",
    "to_go",
]
