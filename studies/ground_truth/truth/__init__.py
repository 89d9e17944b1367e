"""Judges and credit rules against exact truth, on environments that can be enumerated."""
