"""The script for GPU machines works, as far as a machine without one can tell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "gpu-check"


@pytest.mark.slow
def test_in_miniature_on_the_cpu(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = ["bash", str(SCRIPT), "--cpu", "--small", "--json", str(tmp_path / "gpu.json")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert found["facts"]["device"].startswith("CPU") and found["facts"]["torch"] in ran.stdout
    results = {(line["what"], line["model"]): line["result"] for line in found["results"]}
    assert not any(line["failed"] for line in found["results"])
    assert results["contract of the engine", "tiny, full, float32"] == "kept (log-probs within 0.0001)"
    rms = re.match(r"rms ([\d.e-]+)", results["sampler against trainer", "small"])
    assert rms is not None and float(rms[1]) < 1e-5
    for what in ("decode", "prefill", "train step"):
        speed = re.match(r"([\d,]+) tokens/s", results[what, "small"])
        assert speed is not None and int(speed[1].replace(",", "")) > 10
    assert re.search(r"preset smoke +tiny.* s of training", ran.stdout)


def test_without_a_gpu_it_says_so() -> None:
    environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(["bash", str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 2
    assert "no CUDA device" in ran.stderr
