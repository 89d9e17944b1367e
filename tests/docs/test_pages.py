"""What the pages show is what the library computes, and what they name exists."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
import re
import sys
from pathlib import Path

import pytest
import yaml

import stepwell

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
MODULES = sorted(module.name for module in pkgutil.walk_packages(stepwell.__path__, "stepwell."))
_BLOCK = re.compile(r"```pycon\n(.*?)```", re.DOTALL)


def examples(page: Path) -> str:
    return "\n".join(_BLOCK.findall(page.read_text(encoding="utf-8")))


def test_numbers_on_pages_are_found() -> None:
    assert sum(examples(page).count(">>>") for page in PAGES) > 40


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.stem)
def test_numbers_on_a_page(page: Path) -> None:
    test = doctest.DocTestParser().get_doctest(examples(page), {}, page.name, str(page), 0)
    failed = doctest.DocTestRunner(verbose=False).run(test).failed
    assert failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = set(re.findall(r"[\w/-]+\.md", yaml.dump(yaml.safe_load(text)["nav"])))
    assert nav == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_every_public_module_is_in_the_reference() -> None:
    named = set(re.findall(r"^::: ([\w.]+)$", "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md")), re.MULTILINE))
    assert named <= set(MODULES), f"no such module: {sorted(named - set(MODULES))}"
    for area in ("credit", "losses", "rewards", "testing"):
        public = {name for name in MODULES if name.startswith(f"stepwell.{area}.") and sys.modules.get(name) is not None}
        assert public - named <= {"stepwell.testing.demand"}, f"not in docs/reference: {sorted(public - named)}"


def test_files_that_the_readme_names_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert links and not [link for link in links if not (ROOT / link).exists()]


def test_the_loop_of_the_readme_runs() -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    code = found[1]
    for large, small in {'"quick"': '"smoke"', "range(100)": "range(2)", "range(16)": "range(2)", "group_size=8": "group_size=4"}.items():
        assert large in code
        code = code.replace(large, small)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    metrics = names["metrics"]
    assert isinstance(metrics, dict) and {"policy/grad_norm", "judge/log_ratio_abs"} <= set(metrics)


def test_examples_of_docstrings_are_code_in_the_reference() -> None:
    spec = importlib.util.spec_from_file_location("reference_examples", DOCS / "reference_examples.py")
    assert spec is not None and spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    text = "One.\n\n>>> a = [\n...     1]\n>>> a[0]\n1\n\nTwo.\n>>> 2\n2"
    assert page.fenced(text) == "One.\n\n```pycon\n>>> a = [\n...     1]\n>>> a[0]\n1\n```\n\nTwo.\n```pycon\n>>> 2\n2\n```"


def test_the_first_run_names_a_step_that_has_episodes() -> None:
    text, quick = (DOCS / "tutorial" / "first-run.md").read_text(encoding="utf-8"), stepwell.load("quick")
    warm, end = quick.cloning.steps, quick.cloning.steps + quick.steps
    shown = re.search(r"--step (\d+)", text)
    assert shown is not None and warm < int(shown[1]) <= end
