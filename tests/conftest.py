"""Fixtures of the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("stepwell", deadline=None, max_examples=50)
settings.load_profile("stepwell")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded data (goldens, real products); tests that need it skip where it is absent."""
    folder = os.environ.get("STEPWELL_DATA", "")
    if not folder:
        pytest.skip("recorded data is not at hand: set STEPWELL_DATA to its folder")
    path = Path(folder)
    if not path.is_dir():
        pytest.skip(f"recorded data is not at hand: STEPWELL_DATA={folder} is no folder")
    return path


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of the preset `smoke`."""
    import stepwell

    folder = tmp_path_factory.mktemp("smoke") / "run"
    for _ in stepwell.train(stepwell.load("smoke", ["engine.threads=1"]), folder):
        pass
    return folder
