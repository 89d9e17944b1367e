"""Alarms for reward hacking: what a step shows, detectors over a run's history, probes of the judge, and a watch that holds them."""

from stepwell.alarms.detectors import DETECTORS, Bounds, Finding, History, correlation
from stepwell.alarms.probes import probes, shuffled, truncated
from stepwell.alarms.signals import FEATURES, repetition, signals
from stepwell.alarms.watch import Alarm, Watch

__all__ = [
    "DETECTORS",
    "FEATURES",
    "Alarm",
    "Bounds",
    "Finding",
    "History",
    "Watch",
    "correlation",
    "probes",
    "repetition",
    "shuffled",
    "signals",
    "truncated",
]
