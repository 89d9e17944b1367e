from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from stepwell import checkpoint

DRIVER = Path(__file__).parent / "kill_driver.py"

LOOP = """
import sys
from pathlib import Path
from stepwell import checkpoint

class Big:
    def __init__(self, step): self.step = step
    def save(self, path):
        with (path / "weights").open("wb") as file:
            for part in range(20):
                file.write(bytes([self.step % 256]) * 20_000)
    def load(self, path): ...

folder = Path(sys.argv[1])
found = checkpoint.latest(folder)
step = found.step if found else 0
while True:
    step += 1
    checkpoint.save(folder, step, models={"policy": Big(step)}, state={"step": step}, keep=2, value=(step * 7 % 5) / 5)
    print(step, flush=True)
"""


@pytest.mark.parametrize("start", ["clean", "wreck"])
@pytest.mark.parametrize("mode", ["next", "same"])
def test_killed_at_every_touch_of_the_disk(memory_folder: Path, mode: str, start: str) -> None:
    """After each death the latest checkpoint is whole, and the old or the new one; `wreck`: deaths in a row."""
    run = subprocess.run([sys.executable, str(DRIVER), str(memory_folder), mode, start], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    *children, left = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(children) > 40
    assert all(child["whole"] and (child["new"] or child["kept"]) and child["best"] for child in children), children
    assert [child["lived"] for child in children] == [False] * (len(children) - 1) + [True]
    assert sum(child["kept"] for child in children) > 20
    assert sum(child["new"] for child in children) > (10 if start == "clean" else 1)
    assert not [name for name in left if name.startswith(".")], left


def test_killed_at_random_moments_again_and_again(tmp_path: Path) -> None:
    """A checkpoint whose `save` returned is never lost, whatever happens to the saves after it."""
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    folder = tmp_path / "checkpoints"
    draw = random.Random(7)
    last = 0
    for _ in range(8):
        process = subprocess.Popen([sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = [process.stdout.readline()]
        time.sleep(draw.uniform(0.0, 0.12))
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read().split("\n")
        process.stdout.close()
        process.wait()
        acknowledged = max(int(line) for line in said if line.strip())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = checkpoint.latest(folder)
        assert found is not None
        assert acknowledged <= found.step <= acknowledged + 1
        assert found.state == {"step": found.step}
        assert (found.path / "models" / "policy" / "weights").read_bytes() == bytes([found.step % 256]) * 400_000
        assert found.step > last
        last = found.step
