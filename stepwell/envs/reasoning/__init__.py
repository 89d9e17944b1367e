"""Reasoning tasks whose every step is checked: arithmetic, words, games, machines, and those of reasoning-gym."""

from stepwell.envs.reasoning.arithmetic import Arithmetic
from stepwell.envs.reasoning.countdown import Countdown
from stepwell.envs.reasoning.domain import ReasoningDomain, ReasoningEnvironment, lines_of
from stepwell.envs.reasoning.equations import Equations
from stepwell.envs.reasoning.family import Family
from stepwell.envs.reasoning.gym import Gym
from stepwell.envs.reasoning.labelled import labelled_solutions
from stepwell.envs.reasoning.machine import Machine
from stepwell.envs.reasoning.recurrence import Recurrence
from stepwell.envs.reasoning.references import judge_text, steps_of
from stepwell.envs.reasoning.strings import Strings
from stepwell.envs.reasoning.truth import StepTruth, Truth, first_wrong
from stepwell.envs.reasoning.words import Words

__all__ = [
    "Arithmetic",
    "Countdown",
    "Equations",
    "Family",
    "Gym",
    "Machine",
    "ReasoningDomain",
    "ReasoningEnvironment",
    "Recurrence",
    "StepTruth",
    "Strings",
    "Truth",
    "Words",
    "first_wrong",
    "judge_text",
    "labelled_solutions",
    "lines_of",
    "steps_of",
]
