"""`import stepwell`: quick, and all names are where they are said to be."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import stepwell


def test_import_takes_no_time_and_no_torch() -> None:
    code = "import sys, time; start = time.perf_counter(); import stepwell; print(time.perf_counter() - start, 'torch' in sys.modules)"
    best = min(
        (subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() for _ in range(3)),
        key=lambda found: float(found[0]),
    )
    assert float(best[0]) < 0.3
    assert best[1] == "False"


def test_types_and_configs_need_no_torch() -> None:
    code = "import sys, stepwell; stepwell.Episode, stepwell.Domain, stepwell.load('smoke').steps; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_name_is_the_one_that_type_checkers_see() -> None:
    tree = ast.parse(Path(stepwell.__file__).read_text(encoding="utf-8"))
    homes = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("stepwell.")
        for alias in node.names
    }
    assert set(homes) == set(stepwell.__all__)
    assert stepwell.__all__ == sorted(stepwell.__all__)
    for name, module in homes.items():
        __import__(module)
        assert vars(stepwell).get(name, stepwell.__getattr__(name)) is vars(sys.modules[module])[name], name


def test_an_unknown_name_is_said() -> None:
    try:
        stepwell.nothing  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        assert str(error) == "module 'stepwell' has no attribute 'nothing'"
    else:
        raise AssertionError
