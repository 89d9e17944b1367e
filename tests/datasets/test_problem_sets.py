"""Sets of problems by name: each published layout becomes a problem with its answer; other fields, no answers and no hub are sentences."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stepwell.datasets import hub
from stepwell.datasets.benchmarks import BENCHMARKS, read_problems, read_texts
from stepwell.datasets.hub import HubSet, fetch
from stepwell.datasets.problem import Problem
from stepwell.errors import ConfigError, DataError

PRM = {"question": "q", "answer": "1"}
ROWS: dict[str, tuple[Mapping[str, Any], Problem]] = {
    "aime24": ({"id": 60, "problem": "P", "answer": "204", "solution": "S"}, Problem("60", "P", "204", solution="S")),
    "amc23": ({"id": 0, "question": "P", "answer": 27.0}, Problem("0", "P", "27")),
    "math500": (
        {"problem": "P", "answer": "p - q", "solution": "S", "level": 5, "unique_id": "test/a/1.json"},
        Problem("test/a/1.json", "P", "p - q", solution="S", difficulty=1.0),
    ),
    "math-train": (
        {"problem": "P", "solution": r"so \boxed{\frac12}.", "level": "Level 3", "idx": 4},
        Problem("4", "P", r"\frac12", solution=r"so \boxed{\frac12}.", difficulty=0.5),
    ),
    "minerva": ({"problem": "P", "solution": r"\boxed{1.6} cm", "idx": 2}, Problem("2", "P", "1.6", solution=r"\boxed{1.6} cm")),
    "olympiadbench": (
        {"id": 1606, "context": "C", "question": "Q", "final_answer": ["$2 n$"], "solution": ["A", "B"], "error": "1e-1"},
        Problem("1606", "C\n\nQ", "$2 n$", solution="A\n\nB", tolerance=0.1),
    ),
    "gsm8k": (
        {"question": "Q", "answer": "3+4 = <<3+4=7>>7\n#### -1,007"},
        Problem("line 1", "Q", "-1,007", solution="3+4 = <<3+4=7>>7"),
    ),
    "leetcode": (
        {
            "task_id": "w-two-sum",
            "title": "two-sum",
            "meta": {"difficulty": "Medium"},
            "prompt": '"""Q"""',
            "prompt_sft": "Q",
            "test": "assert 1",
        },
        Problem("two-sum", "Q", tests={"test": "assert 1"}, difficulty=0.5, title="two-sum"),
    ),
    "leetcode-dataset": (
        {
            "task_id": "two-sum",
            "prompt": "import x",
            "query": "Q",
            "test": "T",
            "entry_point": "f",
            "completion": "C",
            "difficulty": "Hard",
        },
        Problem(
            "two-sum",
            "Q",
            tests={"test": "T", "entry_point": "f", "prompt": "import x"},
            solution="C",
            difficulty=1.0,
            title="two-sum",
        ),
    ),
    "livecodebench": (
        {
            "question_id": "a",
            "question_content": "Q",
            "starter_code": "class S:",
            "public_test_cases": "[]",
            "metadata": "{}",
            "difficulty": "easy",
        },
        Problem(
            "a",
            "Q\n\nComplete this:\n\n```python\nclass S:\n```",
            tests={"public_test_cases": "[]", "metadata": "{}"},
            difficulty=0.0,
        ),
    ),
    "humaneval": (
        {"task_id": "HumanEval/0", "prompt": "def f():", "test": "T", "entry_point": "f", "canonical_solution": "  pass"},
        Problem("HumanEval/0", "def f():", tests={"test": "T", "entry_point": "f", "prompt": "def f():"}, solution="  pass"),
    ),
    "mbpp": (
        {"task_id": 11, "text": "Q", "code": "C", "test_list": ["assert f() == 1"], "test_setup_code": ""},
        Problem(
            "11",
            "Q\n\nIt must pass these tests:\n\nassert f() == 1",
            tests={"test_list": ["assert f() == 1"], "test_setup_code": ""},
            solution="C",
        ),
    ),
    "countdown": (
        {"nums": [44, 19, 35], "target": 98},
        Problem(
            "44-19-35=98",
            "Use the numbers, each at most once, with + - * / and brackets, to reach 98. Numbers: 44, 19, 35.",
            tests={"numbers": [44, 19, 35], "target": 98, "every": False},
        ),
    ),
    "game24": (
        {"question": "3 3 5 12", "answer": [{"text": "no", "correct": False}, {"text": "yes", "correct": True}]},
        Problem(
            "3-3-5-12",
            "Use all of the numbers, each once, with + - * / and brackets, to reach 24. Numbers: 3, 3, 5, 12.",
            tests={"numbers": [3, 3, 5, 12], "target": 24, "every": True},
            solution="yes",
        ),
    ),
    "eurus": (
        {
            "prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}],
            "reward_model": {"ground_truth": "4"},
            "ability": "math",
        },
        Problem("line 1", "Q", "4"),
    ),
}


def _file(folder: Path, *rows: Mapping[str, Any], name: str = "rows.jsonl") -> Path:
    path = folder / name
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_each_layout(tmp_path: Path, name: str) -> None:
    row, problem = ROWS[name]
    assert read_problems(name, _file(tmp_path, row)) == [problem]
    assert read_problems(name, _file(tmp_path, row, name="rows.jsonl.gz")) == [problem]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_other_fields_are_listed_beside_the_expected_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"rows.jsonl, line 1 has the fields 'text_of_it', 'key'; expected .* missing. Is it the file of"):
        read_problems(name, _file(tmp_path, {"text_of_it": "x", "key": 1}))


def test_no_problem_is_without_an_answer_unless_that_is_asked_for(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        {"id": 1, "problem": "P", "answer": "1"},
        {"id": 2, "problem": "Q", "answer": None},
        {"id": 3, "problem": "R", "answer": ""},
    )
    with pytest.raises(DataError, match=r"rows.jsonl: 2 of 3 problems have no answer \(2, 3\); give them one, or take them out"):
        read_problems("aime24", path)
    assert [one.key for one in read_problems("aime24", path, unanswered="drop")] == ["1"]
    assert [one.key for one in read_problems("aime24", path, unanswered="keep")] == ["1", "2", "3"]
    with pytest.raises(DataError, match="none of the 1 problems has an answer"):
        read_problems("aime24", _file(tmp_path, {"problem": "P", "answer": None}), unanswered="drop")
    with pytest.raises(DataError, match="1 of 1 problems have no answer"):
        read_problems("gsm8k", _file(tmp_path, {"question": "Q", "answer": "no mark"}))


def test_names_used_twice_are_told_apart(tmp_path: Path) -> None:
    rows = [{"id": 7, "problem": text, "answer": "1"} for text in "PQR"]
    assert [one.key for one in read_problems("aime24", _file(tmp_path, *rows))] == ["7", "7 #2", "7 #3"]


@pytest.mark.parametrize(
    ("name", "row", "sentence"),
    [
        ("aime24", {"problem": "", "answer": "1"}, "problem is ''; it must be a text that is not empty"),
        ("aime24", {"problem": 3, "answer": "1"}, "problem is '3'; it must be a text"),
        ("aime24", {"problem": "P", "answer": [1]}, r"answer is '\[1\]'; it must be a text or a number"),
        ("olympiadbench", {"question": "Q", "final_answer": "2"}, "final_answer is '2'; it must be a list of one text"),
        ("olympiadbench", {"question": "Q", "final_answer": ["2"], "error": "big"}, "error is 'big'; it must be a number"),
        ("countdown", {"nums": [1, "2"], "target": 3}, "nums is .*; it must be a list of whole numbers"),
        ("countdown", {"nums": [1], "target": "3"}, "target is '3'; it must be a whole number"),
        ("game24", {"question": "a b", "answer": []}, "question is 'a b'; it must be numbers"),
        ("mbpp", {"text": "T", "test_list": []}, r"test_list is '\[\]'; it must be a list of at least one assertion"),
        ("eurus", {"prompt": "Q", "reward_model": {}}, "prompt is 'Q'; it must be a list of messages"),
    ],
)
def test_values_of_another_kind(tmp_path: Path, name: str, row: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=f"line 1: {sentence}"):
        read_problems(name, _file(tmp_path, row))


def test_names_files_and_hubs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no set of problems 'math5000'; did you mean 'math500'"):
        read_problems("math5000")
    with pytest.raises(ConfigError, match="leetcode is on no hub; give its file"):
        read_problems("leetcode")
    with pytest.raises(DataError, match=r"Problems cannot be read from .*none.jsonl: No such file"):
        read_problems("math500", tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="holds no problem; a row has problem, answer"):
        read_problems("math500", _file(tmp_path))
    with pytest.raises(DataError, match="line 1 is a list"):
        path = tmp_path / "list.jsonl"
        path.write_text("[1]\n")
        read_problems("math500", path)


class _Api:
    def list_repo_files(self, repo: str, *, repo_type: str, revision: str) -> list[str]:
        assert (repo_type, revision) == ("dataset", "refs/convert/parquet")
        if repo == "away/set":
            raise ConnectionError("Name or service not known\nmore")
        return ["main/train/0000.parquet", "main/test/0001.parquet", "main/test/0000.parquet", "README.md"]


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A hub that answers from this process."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "HfApi", _Api)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda repo, name, **where: str(tmp_path / name.replace("/", "-")))
    return tmp_path


def test_a_split_of_the_hub_is_all_its_files_in_order(there: Path) -> None:
    assert fetch(HubSet("some/set", "test", "main")) == [there / "main-test-0000.parquet", there / "main-test-0001.parquet"]


def test_a_hub_that_cannot_be_reached_names_the_local_way(there: Path) -> None:
    with pytest.raises(DataError, match=r"away/set could not be fetched .*ConnectionError: Name or service not known\). Where there is no"):
        fetch(HubSet("away/set", "test"))
    with pytest.raises(
        DataError, match=r"some/set has no default/test/ on the hub; it has main/test, main/train\. Where there is no network"
    ):
        fetch(HubSet("some/set", "test"))


def test_rows_of_the_hub_are_read(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for part in range(2):
        table = pyarrow.Table.from_pylist([{"problem": f"P{part}", "answer": str(part), "unique_id": f"u{part}"}])
        parquet.write_table(table, there / f"main-test-000{part}.parquet")
    monkeypatch.setitem(
        BENCHMARKS, "math500", BENCHMARKS["math500"].__class__(**{**_fields(BENCHMARKS["math500"]), "hub": HubSet("a/b", "test", "main")})
    )
    assert [(one.key, one.gold) for one in read_problems("math500")] == [("u0", "0"), ("u1", "1")]
    assert hub.fetch is fetch


def _fields(benchmark: object) -> dict[str, Any]:
    return {name: getattr(benchmark, name) for name in ("summary", "graded_by", "needs", "read", "hub", "trains")}


COUNTS = [
    *[("aime24", "aime24.jsonl.gz", 30), ("aime22-24", "aime22-24.jsonl.gz", 90), ("amc23", "amc23.jsonl", 40)],
    *[("amc22-23", "amc22-23.jsonl", 83), ("math500", "math500.jsonl.gz", 500), ("minerva", "minerva_math.jsonl.gz", 272)],
    *[("olympiadbench", "olympiadbench.jsonl.gz", 675), ("gsm8k", "gsm8k_test.jsonl.gz", 1319), ("humaneval", "humaneval.jsonl.gz", 164)],
    *[("leetcode", "leetcode_prime_test.jsonl.gz", 180), ("leetcode-dataset", "leetcode_v0.3.1_test.jsonl.gz", 228)],
    *[
        ("mbpp", "mbpp.jsonl.gz", 500),
        ("mbpp-train", "mbpp.jsonl.gz", 374),
        ("countdown", "countdown_8001.parquet", 8001),
        ("game24", "game24_test.jsonl.gz", 362),
    ],
    *[("gsm8k-train", "gsm8k_train.jsonl.gz", 7473), ("math-train", "math_4500_with_solutions.jsonl.gz", 4500)],
    *[("aime-train", "aime83-23_with_solutions.json.gz", 975), ("leetcode-train", "leetcode_v0.2.0_train.jsonl.gz", 1890)],
]


@pytest.mark.parametrize(("name", "file", "count"), COUNTS)
def test_the_published_files(shared_data: Path, name: str, file: str, count: int) -> None:
    path = shared_data / "data" / "bench" / file
    if not path.exists():
        pytest.skip(f"{path} is not there")
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'stepwell[parquet]'")
    read = read_problems(name, path)
    assert len(read) == len({problem.key for problem in read}) == count
    assert all(problem.gold or problem.tests for problem in read)
    if BENCHMARKS[name].trains and name != "game24":
        assert all(problem.solution for problem in read)


def test_two_problems_of_math_train_have_no_answer(shared_data: Path) -> None:
    path = shared_data / "data" / "bench" / "math_train_7500_answers.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with pytest.raises(DataError, match="2 of 7500 problems have no answer"):
        read_problems("math-train", path)
    assert len(read_problems("math-train", path, unanswered="drop")) == 7498


def test_a_file_of_all_parts_of_a_set_gives_each_its_own(tmp_path: Path) -> None:
    """What is trained on is never what is measured, though both stand in one file."""
    path = _file(tmp_path, *({"task_id": number, "text": "Q", "test_list": ["assert 1"]} for number in (10, 11, 510, 511, 601, 974, 975)))
    assert [problem.key for problem in read_problems("mbpp", path)] == ["11", "510"]
    assert [problem.key for problem in read_problems("mbpp-train", path)] == ["601", "974"]
    with pytest.raises(DataError, match="holds no problem of mbpp-train, which are those of task_id 601 to 974; a row has text or prompt"):
        read_problems("mbpp-train", _file(tmp_path, {"task_id": 11, "text": "Q", "test_list": ["assert 1"]}))


def test_texts_of_any_file(tmp_path: Path) -> None:
    keys, texts = read_texts(_file(tmp_path, {"problem": "P"}, {"prompt": "Q", "other": 1}))
    assert (keys, [one.text for one in texts]) == (["line 1", "line 2"], ["P", "Q"])
    with pytest.raises(DataError, match="line 1 has the fields 'text'; expected problem, question or prompt"):
        read_texts(_file(tmp_path, {"text": "P"}))
    with pytest.raises(DataError, match="holds no problem"):
        read_texts(_file(tmp_path))
