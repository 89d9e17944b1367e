"""Stages are types: mypy rejects a skipped stage, and has nothing to say where none is skipped."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def findings(pytestconfig: pytest.Config) -> set[tuple[str, int, str]]:
    """(file, line, code) of all that mypy reports on the two files."""
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("mypy-stages")
    files = [HERE / "every_stage.py", HERE / "skipped_stage.py"]
    command = [sys.executable, "-m", "mypy", "--config-file", HERE / "mypy.ini", "--cache-dir", cache, *files]
    run = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found = re.findall(r"(\w+\.py):(\d+): error: .*\[([a-z-]+)\]$", run.stdout, re.MULTILINE)
    assert len(found) == run.stdout.count(": error:"), run.stdout
    return {(name, int(line), code) for name, line, code in found}


@pytest.mark.slow
def test_a_skipped_stage_is_a_type_error(findings: set[tuple[str, int, str]]) -> None:
    lines = (HERE / "skipped_stage.py").read_text(encoding="utf-8").splitlines()
    marked = {("skipped_stage.py", number, line.partition("# E: ")[2]) for number, line in enumerate(lines, 1) if "# E: " in line}
    assert len(marked) == 6
    assert {finding for finding in findings if finding[0] == "skipped_stage.py"} == marked


@pytest.mark.slow
def test_every_stage_in_its_order_has_no_error(findings: set[tuple[str, int, str]]) -> None:
    assert not [finding for finding in findings if finding[0] == "every_stage.py"]
