"""Labels stay with their steps, from the file to the judge; a judge learns them, and says how good it is."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from builders import make_episode, make_task
from hypothesis import given
from hypothesis import strategies as st
from speakers import chatml_tokenizer, engine, merging_tokenizer

from stepwell.errors import ConfigError, DataError
from stepwell.protocols import ModelSpec, RewardLearner
from stepwell.rewards.fitted import HeadReader
from stepwell.rewards.labelled import Encoded, LabelledReward, LabelledSettings, encoded
from stepwell.step_labels import LabelledSolution, Labels, read_step_labels
from stepwell.testing import check_reward
from stepwell.types import Episode, Group, Ids

SHEPHERD = {
    "input": "2 + 3 * 4? Step 1: 3 * 4 = 12 ки\nStep 2: 2 + 12 = 15 ки",
    "label": "2 + 3 * 4? Step 1: 3 * 4 = 12 +\nStep 2: 2 + 12 = 15 -",
}
PRM800K = {
    "question": {"problem": "2 + 3 * 4?"},
    "label": {
        "steps": [
            {"completions": [{"text": "a", "rating": 1}, {"text": "b", "rating": -1}], "chosen_completion": 0, "human_completion": None},
            {"completions": [{"text": "c", "rating": 0}], "chosen_completion": None, "human_completion": {"text": "h", "rating": None}},
            {"completions": [{"text": "d", "rating": -1}, {"text": "e", "rating": None}], "chosen_completion": 0},
        ]
    },
}


def read(tmp_path: Path, *lines: object, how: Labels | None = None) -> list[LabelledSolution]:
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
    return read_step_labels(path) if how is None else read_step_labels(path, how)


# -- files -----------------------------------------------------------------------------------------------------------------------


def test_three_layouts(tmp_path: Path) -> None:
    plain = {"prompt": "p", "steps": ["x", "y", "z"], "labels": [True, None, 0.25]}
    assert (
        read(tmp_path, plain, "", {**plain, "completions": plain["steps"]})
        == [LabelledSolution("p", ("x", "y", "z"), (1.0, None, 0.25))] * 2
    )
    steps = ("Step 1: 3 * 4 = 12", "Step 2: 2 + 12 = 15")
    assert read(tmp_path, SHEPHERD) == [LabelledSolution("2 + 3 * 4?", steps, (1.0, 0.0))]
    assert read(tmp_path, PRM800K, how=Labels(neutral=0.75)) == [
        LabelledSolution("2 + 3 * 4?", ("b",), (0.0,)),
        LabelledSolution("2 + 3 * 4?", ("a", "c"), (None, 0.75)),
        LabelledSolution("2 + 3 * 4?", ("a", "h", "d"), (1.0, None, 0.0)),
    ], "the human wrote the second step; completions that nobody rated are left out"


def test_ratings_and_compressed_files(tmp_path: Path) -> None:
    rated = {"prompt": "p", "steps": ["x", "y", "z"], "labels": [-1, 0, 1]}
    assert read(tmp_path, rated, how=Labels("rating"))[0].labels == (0.0, 0.5, 1.0)
    packed = tmp_path / "labels.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(SHEPHERD).encode()))
    assert read_step_labels(packed)[0].labels == (1.0, 0.0)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("{", r"line 1: not JSON"),
        ("[1]", r"line 1 is a list; a line is"),
        ({"prompt": "p"}, r"line 1 has the keys 'prompt'; a line is"),
        ({"prompt": 1, "steps": [], "labels": []}, r"line 1: prompt is 1; it must be a text"),
        ({"prompt": "p", "steps": ["a"], "labels": [True, False]}, r"line 1: 1 steps and 2 labels; every step needs one"),
        ({"prompt": "p", "steps": ["a"], "labels": [-1]}, r"line 1, label 1 is -1; allowed is true, false, .* set reward\.scale=rating"),
        ({"prompt": "p", "steps": ["a"], "labels": ["good"]}, r"line 1, label 1 is 'good'"),
        ({"prompt": "p", "steps": ["a"], "labels": [None]}, r"holds no labelled step"),
        ({**SHEPHERD, "input": "no mark here"}, r"the mark 'ки' is nowhere in the input"),
        ({**SHEPHERD, "input": SHEPHERD["input"] + " and on"}, r"'and on' follows the last mark"),
        ({**SHEPHERD, "label": SHEPHERD["label"][:-1]}, r"does not say \+ or - after step 2 of 2"),
        ({"input": "Step 1: x ки", "label": "Step 1: x +"}, r"no problem before 'Step 1:'"),
        ({**PRM800K, "label": {}}, r"no label\.steps as PRM800K has"),
        ({**PRM800K, "label": {"steps": [{"completions": [], "chosen_completion": 3}]}}, r"step 1: chosen_completion is 3 of 0"),
    ],
)
def test_lines_that_are_refused(tmp_path: Path, line: object, match: str) -> None:
    """U02, U03: a mark that is not found, or steps and labels of different number, are said with the line."""
    with pytest.raises(DataError, match=match):
        read(tmp_path, line)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: No such file"):
        read_step_labels(tmp_path / "nowhere.jsonl")
    (tmp_path / "broken.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"broken\.gz"):
        read_step_labels(tmp_path / "broken.gz")
    (tmp_path / "latin.jsonl").write_bytes(b"\xff")
    with pytest.raises(DataError, match="text in UTF-8"):
        read_step_labels(tmp_path / "latin.jsonl")


# -- tokens ----------------------------------------------------------------------------------------------------------------------


def letters(text: str) -> Ids:
    return np.array([ord(letter) for letter in text], np.int64)


def encode(solution: LabelledSolution, *, separator: str = ";", max_length: int = 1000) -> Encoded:
    return encoded([solution], letters, letters, separator=separator, max_length=max_length)


FIVE = LabelledSolution("ab", ("one", "two", "three", "four", "five"), (1.0, 0.0, None, 0.5, 0.25))


@pytest.mark.parametrize("max_length", range(6, 40))
def test_labels_stay_with_their_steps_at_every_length(max_length: int) -> None:
    """U01: as many places as labels. U03: cut at each length; every pair of text and label stays true, and what is lost is counted."""
    known = {step: label for step, label in zip(FIVE.steps, FIVE.labels, strict=True) if label is not None}
    made = encode(FIVE, max_length=max_length)
    (reading, targets) = made.lessons[0]
    text = "".join(map(chr, reading.ids))
    assert len(text) <= max_length and len(reading.ends) == len(targets)
    pairs = {text[: end - 1].replace(";", " ").split()[-1]: t for end, t in zip(reading.ends.tolist(), targets.tolist(), strict=True)}
    assert {step.removeprefix("ab"): label for step, label in pairs.items()} == {s: known[s] for s in known if s in text}
    assert all(text[end - 1] == ";" for end in reading.ends)
    assert made.dropped_steps == len(known) - len(pairs) and made.dropped_solutions == 0


def test_what_does_not_fit_is_counted_or_said() -> None:
    short = LabelledSolution("a", ("b",), (1.0,))
    made = encoded([FIVE, short], letters, letters, separator=";", max_length=4)
    assert len(made.lessons) == 1 and made.dropped_solutions == 1 and made.dropped_steps == 4
    with pytest.raises(ConfigError, match="No labelled step fits into 5 tokens"):
        encode(FIVE, max_length=5)
    with pytest.raises(ConfigError, match=r"reward\.separator is '', which is no token"):
        encode(FIVE, separator="")


@given(st.lists(st.text("abc", max_size=4), min_size=1, max_size=5), st.sampled_from(["c", "bc", "a"]))
def test_separators_never_merge_across_a_step(steps: list[str], separator: str) -> None:
    """With a tokenizer that merges a with b and b with c: what stands between two places decodes to the step and its separator (U02)."""
    tokenizer = MERGING
    solution = LabelledSolution("a", tuple(steps), tuple(1.0 for _ in steps))

    def text(words: str) -> Ids:
        return np.array(tokenizer.encode(words, add_special_tokens=False), np.int64)

    (lesson,) = encoded([solution], text, text, separator=separator, max_length=1000).lessons
    bounds = [1, *lesson.reading.ends.tolist()]
    pieces = [tokenizer.decode(lesson.reading.ids[a:b]) for a, b in pairwise(bounds)]
    assert pieces == [step + separator for step in steps]
    own = text(separator).tolist()
    assert all(lesson.reading.ids[end - len(own) : end].tolist() == own for end in bounds[1:]), "always the separator's own tokens"


MERGING = merging_tokenizer()


@pytest.mark.parametrize("separator", ["\n", " \n\n", " M", "M"])
def test_a_space_before_the_separator_loses_no_place(separator: str) -> None:
    """U02: with or without a space or newline before it, where those are different tokens."""
    tokenizer = chatml_tokenizer(["one two three M M M", "one\n two\n\n M"], 400)
    solution = LabelledSolution("p", ("one ", "two", "three\n"), (1.0, 0.0, 1.0))

    def text(words: str) -> Ids:
        return np.array(tokenizer.encode(words, add_special_tokens=False), np.int64)

    (lesson,) = encoded([solution], text, text, separator=separator, max_length=1000).lessons
    assert len(lesson.reading.ends) == 3
    ends = [tokenizer.decode(lesson.reading.ids[:end]).endswith(separator) for end in lesson.reading.ends]
    assert ends == [True] * 3


# -- the judge -------------------------------------------------------------------------------------------------------------------


def lessons(n: int = 20) -> Encoded:
    """The word of a step says how good it is."""
    rng = np.random.default_rng(0)
    made: list[LabelledSolution] = []
    for _ in range(n):
        words = rng.choice([10, 20, 40, 50], 4)
        made.append(LabelledSolution(chr(2), tuple(chr(w) for w in words), tuple(float(w >= 30) for w in words)))
    return encoded(made, letters, letters, separator=chr(1), max_length=1000)


def judge(*, trunk: str = "own", data: Encoded | None = None, **settings: object) -> LabelledReward:
    made = engine()
    made.model("policy", ModelSpec())
    head = made.model("judge", ModelSpec(kind="head", of="policy", trunk=trunk))  # type: ignore[arg-type]
    chosen = LabelledSettings(**{"lr": 0.01, "warm": 60, "batch": 8, **settings})  # type: ignore[arg-type]
    return LabelledReward(HeadReader(head), data or lessons(), chosen)


def group(*lengths: Sequence[int]) -> Group[Episode]:
    return Group(make_task(), tuple(make_episode(one, member=n, score=float(n == 0)) for n, one in enumerate(lengths)))


def test_it_learns_the_labels_before_it_scores() -> None:
    reward = judge(held_out=0.25)
    (scored,) = reward.score([group([2, 3], [1])])
    assert all(m.scored_S.all() and ((m.rewards["judge"] >= 0) & (m.rewards["judge"] <= 1)).all() for m in scored.members)
    metrics = reward.learn([scored])
    assert metrics["judge/label_accuracy"] > 0.85 and metrics["judge/fresh_error"] < 0.25
    assert metrics["judge/labels"] == 15 * 4 and metrics["judge/dropped_labels"] == 0 and "judge/confidence" in metrics
    untrained = judge(held_out=0.25, warm=0, updates=1)
    untrained.score([group([2])])
    before = untrained.learn([scored])
    assert before["judge/fresh_error"] == 0.5 and before["judge/label_accuracy"] == 0.0, "U01: an untrained judge is at chance, or silent"
    check_reward(reward, [group([2, 0, 3], [1])])
    assert isinstance(reward, RewardLearner) and set(reward.models()) == {"judge"}


def test_a_share_of_few_problems_is_one_of_them() -> None:
    """The least that can be measured on; and what cannot be shared out is said."""
    num_labels = [judge(data=lessons(n), held_out=0.1).measured()["judge/labels"] for n in (2, 9, 10, 19, 20)]
    assert num_labels == [4 * n for n in (1, 8, 9, 18, 18)]
    assert judge(data=lessons(2), held_out=0.0).measured()["judge/labels"] == 8
    assert judge(data=lessons(1), held_out=0.0).measured()["judge/labels"] == 4
    with pytest.raises(ConfigError, match=r"reward\.held_out is 0\.1, and there is one labelled solution"):
        judge(data=lessons(1), held_out=0.1)


def test_progress_is_what_a_step_changed() -> None:
    value, progress = (judge(form=form).score([group([2, 3])])[0].members[0].rewards["judge"] for form in ("value", "progress"))
    assert np.diff(value) == pytest.approx(progress[1:], abs=1e-6)


def test_every_solution_is_shown_once_in_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an order of its own, and from where it was after a resume."""
    shown: list[int] = []

    class Seen(HeadReader):
        def teach(self, given: Sequence[object], lr: float) -> dict[str, float]:
            shown.extend(numbers[id(lesson)] for lesson in given)
            return {}

    data = lessons(8)
    numbers = {id(lesson): n for n, lesson in enumerate(data.lessons)}
    reward = judge(data=data, held_out=0.0, warm=8, batch=2)
    model = reward.models()["judge"]
    settings = LabelledSettings(lr=0.01, warm=8, batch=2, held_out=0.0)
    whole = LabelledReward(Seen(model), data, settings)  # type: ignore[arg-type]
    whole.score([])
    first, second = shown[:8], shown[8:]
    assert sorted(first) == sorted(second) == list(range(8)) and first != second
    assert whole.state() == {"done": 8, "confidence": None}
    resumed = LabelledReward(Seen(model), data, settings)  # type: ignore[arg-type]
    resumed.restore({"done": 5, "confidence": 0.75})
    shown.clear()
    assert resumed.score([group([1])])[0].members[0].confidence == 0.75
    assert shown == second[2:], "three updates were left"
    shown.clear()
    uneven = LabelledReward(Seen(model), data, LabelledSettings(lr=0.01, warm=6, batch=3, held_out=0.0))  # type: ignore[arg-type]
    uneven.score([])
    assert sorted(shown[:8]) == sorted(shown[8:]) == list(range(8)), "3, 3 and the 2 that are left"


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"lr": 0.0}, "lr is 0.0"),
        ({"batch": 0}, "batch 0"),
        ({"warm": -1}, "warm -1"),
        ({"warm": 0}, r"reward\.warm and reward\.updates are both 0"),
        ({"held_out": 1.0}, r"reward\.held_out is 1\.0"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, float], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        LabelledSettings(**settings)  # type: ignore[arg-type]
