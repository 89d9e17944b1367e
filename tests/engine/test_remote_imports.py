"""Who knows the SDK."""

from __future__ import annotations

import re
from pathlib import Path

import stepwell

ROOT = Path(stepwell.__file__).parent
IMPORTS = re.compile(r"^\s*(from|import) tinker\b", re.MULTILINE)


def test_the_sdk_is_imported_in_one_module_and_its_words_in_the_test_server() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if IMPORTS.search(path.read_text(encoding="utf-8"))}
    assert found == {"engine/tinker_api.py", "testing/wire.py"}
