"""What to ask next, and which groups may train."""

from stepwell.curriculum.bins import Bins, Tells, falling
from stepwell.curriculum.entropy import EntropyCurriculum, Phase
from stepwell.curriculum.gates import Accuracy, Gate, Gated, accuracy_of, mixed
from stepwell.curriculum.pools import Pools
from stepwell.curriculum.uniform import Uniform
from stepwell.curriculum.zone import Zone, zone_weight

__all__ = [
    "Accuracy",
    "Bins",
    "EntropyCurriculum",
    "Gate",
    "Gated",
    "Phase",
    "Pools",
    "Tells",
    "Uniform",
    "Zone",
    "accuracy_of",
    "falling",
    "mixed",
    "zone_weight",
]
