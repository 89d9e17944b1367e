"""The command, as these tests call it."""

from __future__ import annotations

from typer.testing import CliRunner

from stepwell.cli.app import app

__all__ = ["run"]


def run(*arguments: object, code: int = 0) -> str:
    """What `stepwell ...` says: its output where it succeeds, else its error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result.stderr if code else result.stdout
