"""Stepwell trains LLM agents and reasoners with process rewards: a reward for every step, learned together with the policy."""

__version__ = "0.1.0"
