"""Labelled steps in the forms that people publish: every rating becomes one label at its step; what is no such form is said."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from stepwell.entries import read_entries
from stepwell.errors import DataError, MissingExtraError
from stepwell.label_layouts import LabelledSolution, Labels
from stepwell.step_labels import read_step_labels

PROCESSBENCH = {"id": "gsm8k-7", "generator": "g", "problem": "p", "steps": ["a", "b", "c"], "final_answer_correct": False, "label": 1}
PRMBENCH = {
    **{"original_question": "o", "modified_question": "q", "modified_process": ["a", "b", "c"], "error_steps": [1, 3]},
    **{"classification": "circular", "idx": "x_0"},
}


def row(prompt: str, responses: Sequence[str], said: str, rating: float | None, preferred: bool = False) -> dict[str, object]:
    made = {"instruction": prompt, "responses": list(responses), "next_response": said, "rating": rating}
    return {**made, "is_preferred_response": preferred, "answer": None}


ROWS = [
    row("p", [], "a", 1.0, preferred=True),
    row("p", [], "b", -1.0),
    row("p", ["a"], "h", None, preferred=True),
    row("p", ["a", "h"], "c", 0.0, preferred=True),
    row("p", ["a"], "d", None),
    row("p", [], "a", -1.0),
    row("q", [], "a", -1.0),
]
READ = [
    LabelledSolution("p", ("a", "h", "c"), (1.0, None, 0.25)),
    LabelledSolution("p", ("b",), (0.0,)),
    LabelledSolution("p", ("a",), (0.0,)),
    LabelledSolution("q", ("a",), (0.0,)),
]


def write(path: Path, *entries: object) -> Path:
    path.write_text("\n".join(json.dumps(one, ensure_ascii=False) for one in entries), encoding="utf-8")
    return path


def read(tmp_path: Path, *entries: object) -> list[LabelledSolution]:
    return read_step_labels(write(tmp_path / "labels.jsonl", *entries), Labels(neutral=0.25))


def test_processbench(tmp_path: Path) -> None:
    """Right up to the first error; nobody has said anything about what follows it."""
    every = [{**PROCESSBENCH, "label": label} for label in (-1, 0, 1, 2)]
    assert [one.labels for one in read(tmp_path, *every)] == [(1.0, 1.0, 1.0), (0.0, None, None), (1.0, 0.0, None), (1.0, 1.0, 0.0)]
    assert read(tmp_path, PROCESSBENCH)[0][:2] == ("p", ("a", "b", "c"))
    assert read(tmp_path, PROCESSBENCH)[0][3:] == ("gsm8k-7", "gsm8k")


def test_prmbench_counts_from_one_and_says_nothing_where_its_numbers_cannot_be_right(tmp_path: Path) -> None:
    good, beyond = read(tmp_path, PRMBENCH, {**PRMBENCH, "error_steps": [2, 4]})
    assert good == LabelledSolution("q", ("a", "b", "c"), (0.0, 1.0, 0.0), "x_0", "circular")
    assert beyond.labels == (None, None, None)
    with pytest.raises(DataError, match="holds no labelled step"):
        read(tmp_path, {**PRMBENCH, "error_steps": [0]})


def test_a_marked_process(tmp_path: Path) -> None:
    entry = {"question": "p", "process": "Step: 1: a ки\nStep: 2: b ки", "labels": [1, 0]}
    assert read(tmp_path, entry) == [LabelledSolution("p", ("Step: 1: a", "Step: 2: b"), (1.0, 0.0))]


def test_rows_of_completions_become_paths_and_ways_that_were_not_taken(tmp_path: Path) -> None:
    assert read(tmp_path, *ROWS) == READ


def test_ways_that_part_share_the_labels_of_their_common_steps(tmp_path: Path) -> None:
    """Each rating is one label, whatever order the rows have."""
    rows = [row("p", ["a"], "c", 1.0, True), row("p", [], "a", 1.0, True), row("p", ["a"], "b", -1.0, True)]
    assert read(tmp_path, *rows) == [LabelledSolution("p", ("a", "c"), (1.0, 1.0)), LabelledSolution("p", ("a", "b"), (None, 0.0))]


def test_parquet_reads_as_lines_do(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow: pip install 'stepwell[parquet]'")
    import pyarrow.parquet as parquet

    parquet.write_table(arrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    assert read_step_labels(tmp_path / "rows.parquet", Labels(neutral=0.25)) == READ
    plain = [{"prompt": "p", "completions": ["x", "y"], "labels": [True, False]}]
    parquet.write_table(arrow.Table.from_pylist(plain), tmp_path / "trl.parquet")
    assert read_step_labels(tmp_path / "trl.parquet") == [LabelledSolution("p", ("x", "y"), (1.0, 0.0))]
    (tmp_path / "no.parquet").write_bytes(b"words")
    with pytest.raises(DataError, match=r"Step labels cannot be read from .*no\.parquet"):
        read_step_labels(tmp_path / "no.parquet")
    with pytest.raises(DataError, match=r"gone\.parquet"):
        read_step_labels(tmp_path / "gone.parquet")


def test_parquet_without_its_package_names_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'stepwell\[parquet\]'"):
        list(read_entries(tmp_path / "rows.parquet", "Step labels", "x"))


def test_one_list_reads_as_lines_do(tmp_path: Path) -> None:
    write(tmp_path / "list.json", [PROCESSBENCH, PRMBENCH])
    assert read_step_labels(tmp_path / "list.json") == read(tmp_path, PROCESSBENCH, PRMBENCH)
    with pytest.raises(DataError, match=r"list\.json, entry 2 has the keys 'id'"):
        read_step_labels(write(tmp_path / "list.json", [PROCESSBENCH, {"id": 1}]))


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({"prompt": "p", "stepz": [], "labels": []}, r"has the keys 'prompt', 'stepz', 'labels'; .*ProcessBench: problem, steps, label;"),
        ({**PROCESSBENCH, "label": 3}, r"label is 3 with 3 steps; it is the first wrong step, from 0 on, or -1"),
        ({**PROCESSBENCH, "label": True}, r"label is True with 3 steps"),
        ({**PROCESSBENCH, "steps": "a"}, r"steps is 'a'; it must be a list of texts"),
        ({**PRMBENCH, "error_steps": ["1"]}, r"error_steps is \['1'\]; it must be a list of numbers of steps, from 1 on"),
        ({**PRMBENCH, "modified_process": ["a", None]}, r"step 2 is None; it must be a text"),
        ({"question": "p", "process": "a", "labels": [1]}, r"the mark 'ки' is nowhere in the process"),
        ({"question": "p", "process": "a ки", "labels": [1, 0]}, r"1 steps and 2 labels"),
        (row("p", [], "a", 2.0), r"rating is 2\.0; allowed is -1, 0, 1, or null"),
        ({**row("p", [], "a", 1.0), "responses": None}, r"responses is None; it must be a list of texts"),
    ],
)
def test_entries_that_are_refused(tmp_path: Path, entry: Mapping[str, object], match: str) -> None:
    with pytest.raises(DataError, match=match):
        read(tmp_path, entry)


def test_half_a_character_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(json.dumps({**PROCESSBENCH, "problem": "half of \ud800"}))
    with pytest.raises(DataError, match=r"labels\.jsonl, line 1 holds half a character \(a lone surrogate\), which cannot be encoded"):
        read_step_labels(file)
    file.write_text(json.dumps({**PROCESSBENCH, "problem": "both halves: \U0001f600"}))  # written as two escapes
    assert read_step_labels(file)[0].prompt == "both halves: \U0001f600"


@pytest.mark.parametrize(
    ("name", "solutions", "labels"),
    [
        ("prm800k_phase1_test.parquet", 3688, {1.0: 2245, 0.0: 1970, 0.5: 867}),
        ("prm800k_phase1_trajectories.json.gz", 310, {1.0: 4898, 0.0: 1008}),
        ("math_shepherd_sample.jsonl", 7, {1.0: 5, 0.0: 20}),
        ("processbench_gsm8k.json.gz", 400, {1.0: 1361, 0.0: 207}),
        ("prmbench_redundancy.jsonl.gz", 90, {1.0: 1245, 0.0: 181}),
    ],
)
def test_published_files(shared_data: Path, name: str, solutions: int, labels: dict[float, int]) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="Parquet needs pyarrow: pip install 'stepwell[parquet]'")
    found = read_step_labels(shared_data / "data" / "bench" / name)
    assert len(found) == solutions
    assert Counter(label for one in found for label in one.labels if label is not None) == labels
    assert all(len(one.steps) == len(one.labels) and one.prompt.strip() for one in found)
