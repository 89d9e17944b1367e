"""`stepwell score`: anyone's steps get the judge's own numbers; what has none is null, counted and explained; bad input is a sentence."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import make_task
from commands import stepwell

from stepwell import checkpoint
from stepwell.build import build
from stepwell.configure import load
from stepwell.engine.chat import Chat, Message
from stepwell.engine.local import LocalModel
from stepwell.rewards.labelled import encoded
from stepwell.run import train
from stepwell.scoring import open_judge
from stepwell.solutions import Solution
from stepwell.step_labels import LabelledSolution
from stepwell.types import Ending, EndingKind, Episode, Floats, Group, Invalid, Observation, Reply, Row, Scored, Stop, Turn, Verdict

PROMPT, STEPS = "go to the exit", ["go north and look", "go west", "the exit"]
SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "feedforward=16", "layers=1", "corpus_tasks=4", "max_length=200")),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=4", "turns=2", "max_tokens=4")),
    *("domain.kind=luck:Luck", "evaluation.every=0", "evaluation.episodes=2", "evaluation.during=2"),
    *("cloning.steps=1", "cloning.batch=2", "steps=2", "credit.kind=process_to_go", "optimizer.lr=0.01"),
)
LABELLED = ("reward.kind=labelled", "reward.data=labels.jsonl", "reward.separator=;", "reward.batch=2", "reward.lr=0.1")
JUDGES: dict[str, tuple[list[str], list[str]]] = {
    "labelled": ([*LABELLED, "reward.warm=3"], []),
    "labelled label": ([*LABELLED, "reward.warm=2", "reward.judge=label", "reward.label_tokens=[a,b]", "reward.form=progress"], []),
    "montecarlo": (["reward.kind=montecarlo", "reward.judge=head", "reward.continuations=1", "reward.lr=0.01", "reward.trunk=shared"], []),
    "temporal": (["reward.kind=temporal", "reward.lr=0.01"], []),
    "soft_q": (["reward.kind=soft_q", "reward.lr=0.01", "reward.beta=0.5", "reward.warm=1", "reward.batch=2"], []),
    "implicit": (["reward.kind=implicit", "reward.lr=0.01", "reward.judged=mixed", "credit.level=token"], ["reward.judged=all"]),
    "implicit frozen": (
        ["reward.kind=implicit", "reward.lr=0.01", "reward.reference=frozen", "reward.objective=cross_entropy"],
        ["reward.judged=all"],
    ),
    "inverse": (["reward.kind=inverse", "reward.lr=0.01", "reward.demonstrations=expert", "reward.batch=2"], []),
    "inverse full": (["reward.kind=inverse", "reward.model=full", "reward.lr=0.01", "reward.demonstrations=expert", "reward.batch=2"], []),
    "entropy": (["reward.kind=entropy", "reward.beta=0.5", "reward.split=progress"], ["reward.split=none"]),
    "intrinsic": (["reward.kind=intrinsic"], []),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where runs that are needed again lie, by name."""
    return {"": tmp_path_factory.mktemp("runs")}


def run_of(name: str, runs: dict[str, Path]) -> Path:
    """A trained judge; what it was taught with is gone."""
    if name not in runs:
        folder = runs[""]
        labels = folder / "labels.jsonl"
        lines = [{"prompt": "go to the exit", "steps": ["go north", "go west"], "labels": [True, n % 2 == 0]} for n in range(6)]
        labels.write_text("\n".join(map(json.dumps, lines)))
        settings = [one.replace("labels.jsonl", str(labels)) for one in JUDGES[name][0]]
        for _ in train(load("smoke", [*SMALL, *settings]), folder / name):
            pass
        labels.unlink()
        runs[name] = folder / name
    return runs[name]


@pytest.fixture
def judge(runs: dict[str, Path]) -> Path:
    """A run with a labelled judge; read it, do not change it."""
    return run_of("labelled", runs)


def write(path: Path, *entries: object) -> Path:
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in entries), encoding="utf-8")
    return path


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def scored(here: Path, judge: Path, *entries: object) -> list[list[float | None]]:
    """Scores of these lines."""
    said = stepwell("score", write(here / "in.jsonl", *entries), "--judge", judge, "--out", here / "out.jsonl")
    assert said.code == 0, said.err
    return [one["scores"] for one in read(here / "out.jsonl")]


# -- the judge's own numbers -----------------------------------------------------------------------------------------------------


def own(run: Path, settings: Sequence[str], prompt: str, steps: Sequence[str], separator: str) -> Scored:
    """What the judge says, restored as a resumed training does, about an episode in which each step is a turn."""
    lines = [{"prompt": prompt, "steps": ["go"], "labels": [True]} for prompt in ("go", "walk")]
    labels = write(run.parent / "labels.jsonl", *lines)
    given = [one.replace("labels.jsonl", str(labels)) for one in settings]
    built = build(load("smoke", [*SMALL, *given, "credit.level=turn"]))
    found = checkpoint.latest(run / "checkpoints")
    assert found is not None
    state = found.state["trainer"]
    assert isinstance(state, dict)
    built.trainer.restore(state, found.restore_models)
    context = built.speaker.player.chat.converse(prompt).context()
    turns = []
    for step in steps:
        ids = np.array([i for text in (step, separator) for i in built.speaker.tokenizer.encode(text, add_special_tokens=False)])
        reply = Reply(Observation(""))
        turns.append(Turn(context, ids, np.zeros(len(ids)), step, Invalid(step, ""), reply, Stop.STRING, built.policy.version))
        context = np.concatenate([context, ids])
    task = make_task()
    episode = Episode(task, 0, Observation(prompt), tuple(turns), Ending(EndingKind.TERMINATED), Verdict.unscored("not graded"))
    reward = built.trainer._reward
    assert reward is not None
    return reward.score([Group(task, (episode,))])[0].members[0]


@pytest.mark.parametrize("name", JUDGES)
def test_scores_are_the_judges_own_on_the_same_episode(here: Path, runs: dict[str, Path], name: str) -> None:
    settings, changed = JUDGES[name]
    run = run_of(name, runs)
    expected = own(run, [*settings, *changed], PROMPT, STEPS, ";")
    file = write(here / "in.jsonl", {"id": 7, "prompt": PROMPT, "steps": STEPS})
    said = stepwell("score", file, "--judge", run, "--out", here / "out.jsonl", "--separator", ";", "--json")
    assert said.code == 0, said.err
    (line,) = read(here / "out.jsonl")
    assert expected.scored_S.all() and np.ptp(expected.rewards["judge"]) > 0, "else the test shows nothing"
    assert line == {"id": 7, "scores": pytest.approx(expected.rewards["judge"].tolist(), rel=1e-9, abs=1e-12)}
    counts = {"solutions": 1, "steps": 3, "scored": 3, "empty": 0, "cut": 0, "unsaid": 0}
    origin = f"the judge of {run} (reward.kind={name.split()[0]}), step 3"
    assert said.json == {"out": str(here / "out.jsonl"), "origin": origin, **counts}


def test_the_labelled_judge_ends_steps_as_it_was_taught(here: Path, judge: Path) -> None:
    (found,) = scored(here, judge, {"id": "a", "prompt": PROMPT, "steps": STEPS})
    assert found == pytest.approx(own(judge, JUDGES["labelled"][0], PROMPT, STEPS, ";").rewards["judge"].tolist(), rel=1e-9)
    file = here / "in.jsonl"
    assert stepwell("score", file, "--judge", judge, "--out", here / "other.jsonl", "--separator", ",").code == 0
    assert read(here / "other.jsonl")[0]["scores"] != pytest.approx(found, rel=1e-4)


def test_a_labelled_solution_is_shown_as_it_was_taught(judge: Path) -> None:
    """The same tokens, and the same places behind the steps, where a label may be missing."""
    speaker = build(load("smoke", SMALL)).speaker
    labelled = LabelledSolution(PROMPT, tuple(STEPS), (1.0, 0.0, 1.0))
    opening, text = (lambda prompt: speaker.player.chat.converse(prompt).context()), speaker.tokenizer.encode
    (lesson,) = encoded([labelled], opening, lambda t: text(t, add_special_tokens=False), separator=";", max_length=200).lessons
    turns = open_judge(judge).display.show(solution(tuple(STEPS))).episode.turns
    assert [len(turn.context_ids) + len(turn.token_ids) for turn in turns] == lesson.reading.ends.tolist()
    assert [*turns[-1].context_ids, *turns[-1].token_ids] == lesson.reading.ids.tolist()


def test_a_step_is_scored_by_what_stands_before_it(here: Path, judge: Path) -> None:
    """The same numbers whatever follows, and whatever other solutions are in the file."""
    lines = [{"id": n, "prompt": PROMPT, "steps": STEPS[: n + 1]} for n in range(3)]
    *shorter, longest = scored(here, judge, *lines)
    for one in shorter:
        assert one == pytest.approx(longest[: len(one)], rel=1e-5)
    (other,) = scored(here, judge, {"id": 0, "prompt": "look", "steps": STEPS})
    assert other != pytest.approx(longest, rel=1e-4)


def test_messages_and_a_system_text_of_their_own(here: Path, judge: Path) -> None:
    user = {"role": "user", "content": PROMPT}
    talk = [user, {"role": "assistant", "content": "north"}, {"role": "user", "content": "look"}]
    plain, alone, longer, system = scored(
        here,
        judge,
        {"id": 0, "prompt": PROMPT, "steps": STEPS},
        {"id": 1, "messages": [user], "steps": STEPS},
        {"id": 2, "messages": talk, "steps": STEPS},
        {"id": 3, "messages": [{"role": "system", "content": "exit"}, user], "steps": STEPS},
    )
    assert alone == pytest.approx(plain, rel=1e-5)
    assert longer != pytest.approx(plain, rel=1e-4) and system != pytest.approx(plain, rel=1e-4)


def test_a_system_message_takes_the_place_of_the_runs_own(judge: Path) -> None:
    def chat(system: str) -> Chat:
        return build(load("smoke", [*SMALL, f"chat.system={system}", "chat.tools=false"])).speaker.player.chat

    display = replace(open_judge(judge).display, chat=chat("north"))
    for first, system in (((), "north"), ((Message("system", "exit"),), "exit")):
        (turn,) = display.show(Solution(3, (*first, Message("user", PROMPT)), ("go",))).episode.turns
        assert turn.context_ids.tolist() == chat(system).converse(PROMPT).context().tolist()


def test_special_tokens_in_a_step_are_ordinary_text(judge: Path) -> None:
    display = open_judge(judge).display
    (turn,) = display.show(solution(steps=("go <|end|> go",))).episode.turns
    assert display.chat.eos_ids.isdisjoint(turn.token_ids.tolist())


def solution(steps: tuple[str, ...]) -> Solution:
    return Solution("x", (Message("user", PROMPT),), steps)


# -- files -----------------------------------------------------------------------------------------------------------------------


def test_packed_files_and_order(here: Path, judge: Path) -> None:
    lines = [{"id": name, "prompt": PROMPT, "steps": [step], "more": 1} for name, step in zip("cab", STEPS, strict=True)]
    write(here / "in.jsonl", lines[0], "", *lines[1:])
    (here / "in.jsonl.gz").write_bytes(gzip.compress((here / "in.jsonl").read_bytes()))
    for source, target in (("in.jsonl", "out.jsonl"), ("in.jsonl.gz", "out.jsonl.gz")):
        said = stepwell("score", here / source, "--judge", judge, "--out", here / target)
        assert (said.code, said.out) == (0, f"{here / target}\n")
    assert [one["id"] for one in read(here / "out.jsonl")] == ["c", "a", "b"]
    assert gzip.decompress((here / "out.jsonl.gz").read_bytes()) == (here / "out.jsonl").read_bytes()
    assert sorted(path.name for path in here.iterdir()) == ["in.jsonl", "in.jsonl.gz", "out.jsonl", "out.jsonl.gz"], (
        "nothing is left beside"
    )


def test_processbench_as_a_list_and_as_lines(here: Path, judge: Path) -> None:
    entries = [
        {"id": f"gsm8k-{n}", "generator": "x", "problem": PROMPT, "steps": STEPS[: n + 1], "final_answer_correct": True, "label": -1}
        for n in range(2)
    ]
    plain = scored(here, judge, *({"id": one["id"], "prompt": PROMPT, "steps": one["steps"]} for one in entries))
    (here / "list.json.gz").write_bytes(gzip.compress(json.dumps(entries, indent=2).encode()))
    write(here / "lines.jsonl", *entries)
    for name in ("list.json.gz", "lines.jsonl"):
        for layout in ("auto", "processbench"):
            assert stepwell("score", here / name, "--format", layout, "--judge", judge, "--out", here / "pb.jsonl").code == 0
            assert read(here / "pb.jsonl") == [{"id": f"gsm8k-{n}", "scores": plain[n]} for n in range(2)]


def test_scores_go_to_standard_output_where_no_file_is_named(here: Path, judge: Path) -> None:
    file = write(here / "in.jsonl", {"id": 7, "prompt": PROMPT, "steps": STEPS})
    assert stepwell("score", file, "--judge", judge, "--out", here / "out.jsonl").code == 0
    said = stepwell("score", file, "--judge", judge)
    assert (said.code, said.out) == (0, (here / "out.jsonl").read_text())
    assert "say where they go with --out FILE" in refused(file, "--judge", judge, "--json")


# -- what has no number ----------------------------------------------------------------------------------------------------------


def test_an_empty_step_has_no_score_and_leaves_no_trace(here: Path, judge: Path) -> None:
    with_gap = {"id": 0, "prompt": PROMPT, "steps": [STEPS[0], " \n", STEPS[1], ""]}
    without = {"id": 1, "prompt": PROMPT, "steps": STEPS[:2]}
    nothing = {"id": 2, "prompt": PROMPT, "steps": [""]}
    gap, full, none = scored(here, judge, with_gap, without, nothing)
    assert (gap[1], gap[3], none) == (None, None, [None])
    assert [gap[0], gap[2]] == pytest.approx(full, rel=1e-5)
    said = stepwell("score", here / "in.jsonl", "--judge", judge, "--out", here / "out.jsonl", "--json")
    assert "3 of 7 steps have no score (null): they have no text." in said.err
    assert {name: said.json[name] for name in ("steps", "scored", "empty", "cut", "unsaid")} == {
        **{"steps": 7, "scored": 4, "empty": 3},
        **{"cut": 0, "unsaid": 0},
    }


def test_what_does_not_fit_into_the_context_has_no_score(here: Path, judge: Path) -> None:
    """A long step takes all after it along; a long prompt takes all steps; the rest of the file is scored."""
    many = " ".join(["go"] * 300)
    short, late, long = scored(
        here,
        judge,
        {"id": 0, "prompt": PROMPT, "steps": STEPS},
        {"id": 1, "prompt": PROMPT, "steps": [STEPS[0], many, "", STEPS[1]]},
        {"id": 2, "prompt": many, "steps": STEPS},
    )
    assert None not in short
    assert late == [pytest.approx(short[0], rel=1e-5), None, None, None] and long == [None] * 3
    said = stepwell("score", here / "in.jsonl", "--judge", judge, "--out", here / "out.jsonl")
    assert "5 of 10 steps have no score (null): they do not fit into the context of the judge." in said.err
    assert "1 of 10 steps have no score (null): they have no text." in said.err


def test_the_context_is_used_to_its_last_token(judge: Path) -> None:
    display = open_judge(judge).display
    turns = display.show(solution(tuple(STEPS))).episode.turns
    whole = len(turns[-1].context_ids) + len(turns[-1].token_ids)
    for context, cut in ((whole, 0), (whole - 1, 1), (len(turns[0].context_ids), 3)):
        shown = replace(display, context=context).show(solution(tuple(STEPS)))
        assert (shown.cut, shown.episode.ending.kind) == (cut, EndingKind.TRUNCATED if cut else EndingKind.TERMINATED)
    assert open_judge(judge, ["rollout.context=150"]).display.context == 150


# -- bad input -------------------------------------------------------------------------------------------------------------------

LINES: dict[str, tuple[object, str]] = {
    "no json": ("{", "line 1: not JSON"),
    "no object": ([1], "line 1 is a list; a line is"),
    "no steps": ({"id": 1, "prompt": "p"}, "line 1 has the keys 'id', 'prompt'; a line is"),
    "steps are none": ({"id": 1, "prompt": "p", "steps": []}, "line 1: steps is []; it must be a list of at least one text."),
    "steps are a text": ({"id": 1, "prompt": "p", "steps": "a"}, "line 1: steps is 'a'; it must be a list"),
    "a step is null": ({"id": 1, "prompt": "p", "steps": ["a", None]}, "line 1, step 2 is None; it must be a text."),
    "half a character": ({"id": 1, "prompt": "p", "steps": ["\ud800"]}, "line 1 holds half a character"),
    "no id": ({"prompt": "p", "steps": ["a"]}, "line 1 has the keys 'prompt', 'steps'"),
    "a strange id": ({"id": None, "prompt": "p", "steps": ["a"]}, "line 1: id is None; it must be a text or a whole number."),
    "no prompt": ({"id": 1, "steps": ["a"]}, "line 1 has the keys 'id', 'steps'"),
    "both": ({"id": 1, "prompt": "p", "messages": [], "steps": ["a"]}, "line 1 has the keys 'id', 'prompt', 'messages', 'steps'"),
    "an empty prompt": ({"id": 1, "prompt": " ", "steps": ["a"]}, "line 1, prompt is empty"),
    "no messages": ({"id": 1, "messages": [], "steps": ["a"]}, "line 1: messages is []; it must be a list of at least one"),
    "a strange message": ({"id": 1, "messages": ["hi"], "steps": ["a"]}, "line 1, message 1 is 'hi'; it must be"),
    "a strange role": (
        {"id": 1, "messages": [{"role": "tool", "content": "x"}], "steps": ["a"]},
        "role is 'tool'; allowed is one of system, ",
    ),
    "the last word": (
        {"id": 1, "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "steps": ["a"]},
        "line 1: the last message is of role 'assistant'; it must be of 'user'",
    ),
    "a late system": (
        {"id": 1, "messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}], "steps": ["a"]},
        "line 1, message 2: role is 'system'; only the first message may be.",
    ),
}


def refused(*arguments: object) -> str:
    """The sentence that the command refuses with."""
    said = stepwell("score", *arguments)
    assert (said.code, said.out) == (2, ""), said
    sentence = said.err.strip().splitlines()[-1]
    assert sentence.startswith("error: "), said.err
    return sentence


@pytest.mark.parametrize("name", LINES)
def test_lines_that_are_refused(here: Path, tmp_path: Path, name: str) -> None:
    """Before the judge is opened: there is none here."""
    line, sentence = LINES[name]
    file = write(here / "in.jsonl", line)
    assert sentence in refused(file, "--judge", tmp_path / "none", "--out", here / "out.jsonl")
    assert [path.name for path in here.iterdir()] == ["in.jsonl"]


def test_files_that_are_refused(here: Path) -> None:
    """No lines, no file, no text, no folder for the scores, and the file itself in their place."""
    rest = ("--judge", here / "none", "--out", here / "out.jsonl")
    assert "empty.jsonl holds no solution; a line is" in refused(write(here / "empty.jsonl", ""), *rest)
    assert "holds no solution; an entry of ProcessBench is" in refused(write(here / "list.json", []), "--format", "processbench", *rest)
    assert "entry 2 has the keys 'id'" in refused(
        write(here / "list.json", [{"id": 1, "problem": "p", "steps": ["a"]}, {"id": 2}]), "--format", "processbench", *rest
    )
    assert "Solutions cannot be read from" in refused(here / "nowhere.jsonl", *rest)
    (here / "broken.gz").write_bytes(gzip.compress(b"words words words")[:-9])
    assert "Solutions cannot be read from" in refused(here / "broken.gz", *rest)
    (here / "latin.jsonl").write_bytes(b"\xff")
    assert "text in UTF-8" in refused(here / "latin.jsonl", *rest)
    good = write(here / "in.jsonl", {"id": 1, "prompt": "p", "steps": ["a"]})
    before = good.read_bytes()
    assert "there is no folder" in refused(good, "--judge", here / "none", "--out", here / "no" / "out.jsonl")
    assert "which is a folder" in refused(good, "--judge", here / "none", "--out", here)
    assert "the file that is read" in refused(good, "--judge", here / "none", "--out", good)
    assert "none holds no run" in refused(good, *rest)
    assert good.read_bytes() == before and not (here / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        ({"kind": "outcome"}, "which has no judge: it pays what the environment and its verdict say, which a file does not hold."),
        ({"kind": "environment"}, "which has no judge: it pays what the environment and its verdict say"),
        ({"kind": "montecarlo"}, "which has no judge that reads text: its estimates are played in the environment."),
        ({"kind": "some.module:Judge"}, "which is a class of yours; ask it from Python"),
    ],
)
def test_a_run_without_a_judge_that_reads(here: Path, reward: dict[str, str], why: str) -> None:
    run = here / "run"
    run.mkdir()
    (run / "config.yaml").write_text(json.dumps({"reward": reward, "credit": {"kind": "grpo"}}))
    file = write(here / "in.jsonl", {"id": 1, "prompt": "p", "steps": ["a"]})
    found = refused(file, "--judge", run, "--out", here / "out.jsonl")
    assert f"{run} cannot score a file: reward.kind is {reward['kind']!r}, {why}" in found
    assert not (here / "out.jsonl").exists()


def test_a_run_that_is_still_warming_up_has_no_judge(here: Path, tmp_path: Path) -> None:
    settings = ["cloning.steps=2", "checkpoint.every=1", *JUDGES["temporal"][0]]
    going = train(load("smoke", [*SMALL, *settings]), tmp_path / "run")
    next(iter(going))
    del going
    file = write(here / "in.jsonl", {"id": 1, "prompt": "p", "steps": ["a"]})
    found = refused(file, "--judge", tmp_path / "run", "--out", here / "out.jsonl")
    assert "has no judge yet: its checkpoint of step 1 holds policy, and not judge." in found


def test_settings_that_cannot_be_changed(here: Path, judge: Path) -> None:
    file = write(here / "in.jsonl", {"id": 1, "prompt": "p", "steps": ["a"]})
    rest = ("--judge", judge, "--out", here / "out.jsonl")
    assert "reward.form cannot be changed here" in refused(file, "reward.form=progress", *rest)
    assert stepwell("score", file, "engine.micro_rows=1", *rest).code == 0


def test_a_judge_that_says_nan(here: Path, judge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(model: LocalModel, rows: Sequence[Row], want: frozenset[str]) -> list[dict[str, Floats]]:
        return [{"values": np.full(len(row.targets), np.nan)} for row in rows]

    monkeypatch.setattr(LocalModel, "forward", forward)
    file = write(here / "in.jsonl", {"id": 1, "prompt": "p", "steps": ["a"]})
    sentence = refused(file, "--judge", judge, "--out", here / "out.jsonl")
    assert "The judge said nan: its weights hold NaN or infinity." in sentence
    assert not (here / "out.jsonl").exists()


def test_help_needs_no_torch() -> None:
    code = "import sys, stepwell.cli; assert not {'torch', 'transformers'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
