"""The command `stepwell`."""

from stepwell.cli.app import app, main

__all__ = ["app", "main"]
