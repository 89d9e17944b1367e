"""A finished run to look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import SMALL, stepwell


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the smallest size; read it, do not change it."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    said = stepwell("train", "smoke", *SMALL, "--run", folder)
    assert said.code == 0, said.err
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
