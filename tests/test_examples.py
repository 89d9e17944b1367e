"""Every example is short, runs on a CPU in seconds, and shows what its first line says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SHOWN = {
    "exact_values.py": (r"by chance, 1\.000 at best", r"exact advantage \+0\.\d+   judge", r"^rank correlation 0\.[4-9]"),
    "loop.py": (r"warm start 100 .*cloning/loss", r"^3 .*policy/entropy.*judge/fresh_pair_accuracy"),
    "own_environment.py": (r"^60 .*cloning/loss.*test/success", r"^72 .*rollout/success.*test/success"),
    "own_reward.py": (r"^60 .*cloning/loss", r"^64 .*reward/new"),
}


def test_no_example_is_left_out() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(SHOWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SHOWN))
def test_example(name: str) -> None:
    path = EXAMPLES / name
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "error::UserWarning", str(path)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    for pattern in SHOWN[name]:
        assert re.search(pattern, ran.stdout, re.MULTILINE), f"{pattern} is not in:\n{ran.stdout}"
    if name == "own_environment.py":
        before, after = (float(found) for found in re.findall(r"'test/success': ([\d.]+)", ran.stdout))
        assert before > 0.3, "the warm start has taught nothing"
        assert after > before - 0.1, "learning has undone the warm start"
