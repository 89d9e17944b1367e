"""The scripts say in a sentence what is wrong, and are what the README says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted([*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_is_executable_and_can_be_parsed(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash\n# ")
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def setup(python: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(ROOT / "scripts" / "setup")]
    return subprocess.run(command, env={**os.environ, "PYTHON": python}, capture_output=True, text=True, timeout=60, check=False)


def test_setup_without_python_says_what_to_do() -> None:
    ran = setup("no-such-python")
    assert ran.returncode == 1
    assert "there is no no-such-python. Install Python 3.11 or later" in ran.stderr


def test_setup_refuses_an_old_python(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text('#!/usr/bin/env bash\n[[ "$2" == *print* ]] && echo 3.10 || exit 1\n', encoding="utf-8")
    old.chmod(0o755)
    ran = setup(str(old))
    assert ran.returncode == 1
    assert "is Python 3.10; Stepwell needs 3.11 or later" in ran.stderr
