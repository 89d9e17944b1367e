"""envs/shop."""
