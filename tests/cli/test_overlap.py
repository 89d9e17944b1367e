"""Problems that stand in two sets: by letters, by title, by runs of words; and the overlaps that are known of published sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import stepwell
from hypothesis import given
from hypothesis import strategies as st

from stepwell.datasets.benchmarks import read_problems, read_texts
from stepwell.datasets.overlap import Match, Overlap, Text, _letters, find_overlap
from stepwell.errors import ConfigError

LONG = "a train leaves the town at nine and runs for two hours to the north where it stops and waits for another one"


def _texts(*texts: str) -> list[Text]:
    return [Text(text) for text in texts]


def test_letters_and_digits_alone_count() -> None:
    found = find_overlap(_texts("Find $x+1$.", "other"), _texts("find X + 1", "find x + 2", "Find $x+1$."))
    assert found.matches == (Match(0, 0, "exact", 1.0), Match(2, 0, "exact", 1.0))
    assert (found.distinct_test, found.distinct_exact, found.num_test, found.num_train) == (2, 1, 3, 2)


def test_titles_find_what_was_rewritten_and_no_title_finds_nothing() -> None:
    found = find_overlap([Text("one", "two-sum"), Text("three")], [Text("two", "two-sum"), Text("four"), Text("five", "other")])
    assert found.matches == (Match(0, 0, "title", 1.0),)


def test_runs_are_a_share_of_the_shorter_problem() -> None:
    words = LONG.split()
    padded = f"{LONG} and then there is much more text about other things that nobody asked for in the first place, such as this"
    assert find_overlap(_texts(LONG), _texts(padded)).matches == (Match(0, 0, "ngram", 1.0),)
    assert find_overlap(_texts(padded), _texts(LONG)).matches == (Match(0, 0, "ngram", 1.0),)
    half = " ".join([*words[:16], *["else"] * 12])  # 7 of its 19 runs, 6 of them distinct from those of `else` alone
    near = find_overlap(_texts(LONG), _texts(half), share=0.3)
    assert [match.how for match in near.matches] == ["ngram"] and near.matches[0].share == pytest.approx(7 / 14)
    assert find_overlap(_texts(LONG), _texts(half), share=0.6).matches == ()
    assert find_overlap(_texts(LONG), _texts("too short for it")).short == 1


def test_the_form_of_a_set_says_nothing() -> None:
    form = "return the answer modulo one thousand million and seven because it may be very large indeed"
    train = _texts(*[f"problem number {n} {form}" for n in range(20)])
    assert find_overlap(train, _texts(f"quite another problem {form}")).matches == ()
    assert find_overlap(train[:4], _texts(f"quite another problem {form}")).matches != ()


@given(st.lists(st.text(alphabet="ab 1", min_size=1, max_size=30), min_size=1, max_size=6))
def test_every_set_overlaps_with_itself_wholly(texts: list[str]) -> None:
    found = find_overlap(_texts(*texts), _texts(*texts))
    assert len(found.matches) == len(texts) == found.count("exact")
    assert found.distinct_exact == found.distinct_test


def test_sets_and_numbers_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="Got 0 training and 1 test problems; both sets need at least one"):
        find_overlap([], _texts("x"))
    for bad in ({"n": 0}, {"share": 0.0}, {"share": 1.1}, {"common": 0.0}):
        with pytest.raises(ConfigError, match="allowed are 1 or more"):
            find_overlap(_texts("x"), _texts("x"), **bad)  # type: ignore[arg-type]


def _bench(shared_data: Path, file: str) -> Path:
    path = shared_data / "data" / "bench" / file
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def _named(shared_data: Path, name: str, file: str) -> list[Text]:
    return [Text(one.text, one.title) for one in read_problems(name, _bench(shared_data, file), unanswered="keep")]


@pytest.mark.slow
def test_known_overlaps_of_mathematics(shared_data: Path) -> None:
    math500 = _named(shared_data, "math500", "math500.jsonl.gz")
    olympiad = _named(shared_data, "olympiadbench", "olympiadbench.jsonl.gz")
    assert find_overlap(_named(shared_data, "aime-train", "aime83-23_with_solutions.json.gz"), math500).distinct_exact == 6
    big = {_letters(one.text) for one in _named(shared_data, "math-train", "math_train_7500_answers.jsonl.gz")}
    assert [len(big & {_letters(one.text) for one in test}) for test in (math500, olympiad)] == [1, 2]
    small = _named(shared_data, "math-train", "math_4500_with_solutions.jsonl.gz")
    judged = read_texts(_bench(shared_data, "processbench_math.json.gz"))[1]
    found = find_overlap(small, judged)
    assert (found.distinct_exact, found.distinct_test) == (847, 955)
    assert find_overlap(math500, judged).distinct_exact == 955 - 847
    assert find_overlap(small, olympiad).distinct_exact == 1
    amc = find_overlap(_named(shared_data, "amc22-23", "amc22-23.jsonl"), _named(shared_data, "amc23", "amc23.jsonl"))
    assert len(amc.matches) == 40


def test_known_overlaps_of_word_problems(shared_data: Path) -> None:
    judged = read_texts(_bench(shared_data, "processbench_gsm8k.json.gz"))[1]
    train = find_overlap(_named(shared_data, "gsm8k-train", "gsm8k_train.jsonl.gz"), judged)
    assert (train.matches, train.distinct_test) == ((), 375)
    assert find_overlap(_named(shared_data, "gsm8k", "gsm8k_test.jsonl.gz"), judged).distinct_exact == 375


@pytest.mark.slow
def test_known_overlaps_of_code_by_title_and_most_of_them_by_words(shared_data: Path) -> None:
    train = _named(shared_data, "leetcode-train", "leetcode_v0.2.0_train.jsonl.gz")
    test = _named(shared_data, "leetcode", "leetcode_prime_test.jsonl.gz")
    found = find_overlap(train, test)
    assert (found.count("title"), len(found.matches)) == (54, 54)
    words = find_overlap([Text(one.text) for one in train], [Text(one.text) for one in test])
    assert len({match.test for match in words.matches} & {match.test for match in found.matches}) == len(words.matches) >= 45
    assert find_overlap(train, _named(shared_data, "leetcode-dataset", "leetcode_v0.3.1_test.jsonl.gz")).matches == ()


def test_the_command(tmp_path: Path) -> None:
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    train.write_text('{"problem": "Find x."}\n{"problem": "Find y."}\n')
    test.write_text('{"question": "find Y"}\n{"question": "find z"}\n')
    said = stepwell("overlap", train, test, "--json", "--drop", tmp_path / "found.txt")
    assert said.json["sets"] == [
        {
            "test": str(test),
            **{"problems": 2, "distinct": 2, "exact": 1, "distinct_exact": 1, "title": 0, "ngram": 0, "short": 2},
            "pairs": [{"test": "line 1", "train": "line 2", "how": "exact", "share": 1.0}],
        }
    ]
    assert (tmp_path / "found.txt").read_text() == "line 2\n"
    assert "1 of 2 problems: 1 letter for letter (1 of 2 different ones), 0 by title, 0 nearly" in stepwell("overlap", train, test).out
    none = stepwell("overlap", train, tmp_path / "none.jsonl")
    assert none.code == 2 and "Problems cannot be read from" in none.err


def test_the_list_of_sets_and_one_of_them(tmp_path: Path) -> None:
    listed = {one["name"]: one for one in stepwell("problems", "--json").json}
    assert listed["math500"]["hub"] == "HuggingFaceH4/MATH-500" and listed["leetcode"]["hub"] is None
    assert "math500" in stepwell("problems").out
    file = tmp_path / "one.jsonl"
    file.write_text('{"problem": "P?", "answer": "1"}\n')
    said = stepwell("problems", "math500", "--file", file, "--json")
    assert said.json == {"name": "math500", "problems": 1, "with_solution": 0, "graded_by": "maths"}
    assert "The first, line 1:\n\nP?" in stepwell("problems", "math500", "--file", file).out
    assert "--file and --check are for one set" in stepwell("problems", "--check").err


def test_gold_answers_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    pytest.importorskip("math_verify", reason="math-verify is not installed: pip install 'stepwell[maths]'")
    file = tmp_path / "one.jsonl"
    file.write_text('{"id": 1, "problem": "P?", "answer": "((("}\n{"id": 2, "problem": "Q?", "answer": "x+1"}\n')
    said = stepwell("problems", "aime24", "--file", file, "--check")
    assert "unread         1" in said.out
    assert said.err == "1: the gold answer '(((' cannot be read as a formula; an answer to it is right only letter for letter.\n"


def test_counts_by_sign_are_of_the_matches() -> None:
    found = Overlap((Match(0, 0, "exact", 1.0), Match(1, 0, "ngram", 0.6)), 2, 1, 2, 1, 0)
    assert (found.count("exact"), found.count("title"), found.count("ngram")) == (1, 0, 1)
