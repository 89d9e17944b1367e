"""Judges with planted holes, and the runs that find them."""
