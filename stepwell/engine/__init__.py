"""The only owner of weights."""
