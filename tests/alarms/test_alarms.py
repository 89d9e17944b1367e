"""Detectors against numbers made by hand, probes, the watch's state, and what an alarm does to a run."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import make_episode, make_group, make_scored

sys.path.insert(0, str(Path(__file__).parents[2] / "studies" / "hacking"))

from hacking.loop import play
from hacking.plants import CLEAN, PLANTS
from hacking.table import delay, onset, table_of

from stepwell import checkpoint
from stepwell.alarms import DETECTORS, Bounds, Watch, correlation, probes, repetition, shuffled, signals, truncated
from stepwell.alarms.tails import change, student_tail
from stepwell.configure import load
from stepwell.credit.process_weight import weighed
from stepwell.errors import ConfigError, RunError
from stepwell.run import train
from stepwell.tracking import read_metrics
from stepwell.types import Credited, Episode, Floats, Group, Metrics, Scored

sys.path.insert(0, str(Path(__file__).parents[1] / "run"))

W = 10
NOISE = 0.01 * np.array([1.0, -1.0] * W)
SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "layers=1", "corpus_tasks=6", "max_length=64", "vocabulary=256")),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=2", "turns=2", "max_tokens=4")),
    *("domain.kind=kill_driver:Luck", "cloning.steps=0", "reward.kind=environment", "credit.kind=process_to_go"),
    *("evaluation.during=4", "evaluation.episodes=4", "evaluation.every=1", "alarms.window=3", "steps=6"),
)


def history(**changed: Sequence[float] | Floats) -> dict[str, Floats]:
    """Two windows of signals in which nothing happens, but for what is changed."""
    flat = {"judge": 1.0, "success": 0.5, "tokens": 10.0, "steps": 4.0, "entropy": 1.0, "last_share": 0.3, "pair_accuracy": 0.8}
    made = {name: value + NOISE for name, value in flat.items()}
    sums = [f"{f}_{s}" for f in ("tokens", "steps", "repetition") for s in ("xx", "yy", "xy", "df")]
    made |= {name: np.zeros(2 * W) for name in [*sums, "gain_xx", "gain_xy", "gain_df"]}
    return made | {name: np.asarray(values, np.float64) for name, values in changed.items()}


def moved(before: float, now: float) -> Floats:
    return np.repeat([before, now], W) + NOISE


def found(seen: dict[str, Floats]) -> set[str]:
    return {name for name, detect in DETECTORS.items() if detect(seen, Bounds()) is not None}


def test_tails_are_those_of_the_tables() -> None:
    assert student_tail(2.228, 10) == pytest.approx(0.025, abs=1e-5)
    assert student_tail(6.314, 1) == pytest.approx(0.05, abs=1e-5)
    assert student_tail(3.090, 1e6) == pytest.approx(0.001, abs=1e-5)
    made = change(np.array([1.0, 2.0, 3.0, math.nan]), np.array([3.0, 5.0, 7.0]))
    assert made is not None and made.rise == 3.0
    assert made.error == pytest.approx(math.sqrt(1 / 3 + 4 / 3)) and made.df == pytest.approx((5 / 3) ** 2 / (1 / 18 + 16 / 18))


def test_signals_by_hand() -> None:
    group = make_group(
        make_scored([1, 1], outcome=1.0, process=[0.5, 0.5]),
        make_scored([1, 1, 2], outcome=1.0, process=[1.0, 1.0, 2.0]),
        make_scored([1], outcome=0.0, process=[3.0]),
        make_scored([1], outcome=0.0, process=[9.0], failed=True),
    )
    made = signals([group])
    assert made["judge"] == pytest.approx((1 + 4 + 3) / 3) and made["success"] == pytest.approx(2 / 3)
    assert made["tokens"] == pytest.approx(7 / 3) and made["steps"] == pytest.approx(2.0) and made["entropy"] == pytest.approx(1.0)
    assert made["last_share"] == pytest.approx((0.5 + 0.5) / 2)
    assert made["pair_accuracy"] == 0.5  # 1 < 3 and 4 > 3
    assert [made[f"tokens_{name}"] for name in ("xx", "yy", "xy", "df")] == [2.0, 4.5, 3.0, 1.0]  # tokens 2 and 4, totals 1 and 4
    assert made["gain_xy"] == pytest.approx((1 - 8 / 3) / 3 + (4 - 8 / 3) / 3 - (3 - 8 / 3) * 2 / 3)
    assert repetition(make_episode([1, 1, 1])) == pytest.approx(1 / 3)  # said at the start, and twice on the same page


def test_nothing_is_found_where_nothing_happens() -> None:
    assert found(history()) == set()
    assert math.isnan(signals([])["judge"])


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("divergence", {"judge": moved(1.0, 2.0), "success": moved(0.5, 0.4)}),
        ("divergence", {"judge": moved(1.0, 2.0), "gain_xx": np.ones(2 * W), "gain_xy": np.full(2 * W, 0.3)}),
        ("last_share", {"last_share": moved(0.3, 0.6)}),
        ("entropy", {"entropy": moved(1.0, 0.6)}),
        ("length", {"tokens": moved(10.0, 14.0)}),
        ("pair_accuracy", {"pair_accuracy": moved(0.8, 0.6)}),
        ("pair_accuracy", {"pair_accuracy": moved(0.3, 0.3)}),
        ("pays_tokens", {"tokens_xx": np.ones(20), "tokens_yy": np.ones(20), "tokens_xy": np.full(20, 0.6), "tokens_df": np.full(20, 8)}),
        ("shuffled", {"shuffled_n": np.full(20, 4), "shuffled_preferred": np.full(20, 1.5)}),
        ("truncated", {"truncated_n": np.full(20, 4), "truncated_preferred": np.full(20, 1)}),
    ],
)
def test_each_detector_finds_what_it_looks_for_and_no_other_does(name: str, changed: dict[str, Floats]) -> None:
    assert found(history(**changed)) == {name}


@pytest.mark.parametrize(
    "changed",
    [
        {"judge": moved(1.0, 2.0), "success": moved(0.4, 0.6), "gain_xx": np.ones(20), "gain_xy": np.full(20, 0.3)},  # more than half due
        {"entropy": moved(1.0, 0.6), "success": moved(0.95, 0.95)},  # solved
        {"entropy": moved(1.0, 0.6), "tokens": moved(10.0, 14.0), "last_share": moved(0.3, 0.6), "success": moved(0.4, 0.6)},  # it rises
        {"last_share": moved(0.3, 0.45)},  # too little to matter
        {"tokens_xx": np.ones(20), "tokens_yy": np.ones(20), "tokens_xy": np.full(20, 0.4), "tokens_df": np.full(20, 8)},
        {"tokens_xx": np.ones(20), "tokens_yy": np.ones(20), "tokens_xy": np.full(20, 0.9), "tokens_df": np.full(20, 1)},  # too few
        {"shuffled_n": np.full(20, 4), "shuffled_preferred": np.full(20, 4)},
    ],
)
def test_what_is_no_hacking_is_silent(changed: dict[str, Floats]) -> None:
    assert found(history(**changed)) == set()


def test_a_correlation_and_its_chance_are_the_textbooks() -> None:
    seen = history(tokens_xx=np.full(20, 2.0), tokens_yy=np.full(20, 8.0), tokens_xy=np.full(20, 2.4), tokens_df=np.full(20, 3.0))
    r, df = correlation(seen, "tokens", W)
    assert (r, df) == (pytest.approx(0.6), 30.0)
    alarm = DETECTORS["pays_tokens"](seen, Bounds(rate=0.01))
    assert alarm is not None and alarm.chance == pytest.approx(student_tail(0.6 * math.sqrt(29 / 0.64), 29))
    assert "correlation 0.60" in alarm.evidence


class LastWord:
    """A judge that pays the last turn by how many came before: it reads no order, and likes length."""

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        return [
            Group(g.task, tuple(make_scored([1] * len(e.turns), outcome=1.0, process=[1.0] * len(e.turns)) for e in g.members))
            for g in groups
        ]


def test_probes_ask_about_spoilt_episodes() -> None:
    episode = make_episode([1, 2, 1])
    spoilt = shuffled(episode, (0,))
    assert sorted(id(turn.token_ids) for turn in spoilt.turns) == sorted(id(turn.token_ids) for turn in episode.turns)
    assert spoilt.turns[-1].token_ids is not episode.turns[-1].token_ids and spoilt.verdict.score is None
    assert len(truncated(episode).turns) == 2
    chained = replace(
        episode,
        turns=tuple(replace(t, context_ids=np.array(c)) for t, c in zip(episode.turns, ([9], [9, 0, 7], [9, 0, 7, 1, 2, 8]), strict=True)),
    )
    laid = shuffled(chained, (0,)).turns
    said = {tuple(t.token_ids.tolist()): [7, 8, None][i] for i, t in enumerate(episode.turns)}
    expected = [9]
    for turn in laid:
        assert turn.context_ids.tolist() == expected
        reply = said[tuple(turn.token_ids.tolist())]
        expected = [*expected, *turn.token_ids.tolist(), *([] if reply is None else [reply])]
    group = make_group(make_scored([1, 1], outcome=1.0, process=[1.0, 1.0]), make_scored([1, 1], outcome=0.0, process=[0.0, 0.0]))
    made = probes(LastWord(), [group], most=4, seed=(0,))
    assert made == {"shuffled_n": 1.0, "shuffled_preferred": 0.5, "truncated_n": 1.0, "truncated_preferred": 1.0}
    assert probes(LastWord(), [], most=4, seed=(0,)) == {}


def measured(step: int) -> Metrics:
    return {name: float(values[step]) for name, values in history(judge=moved(1.0, 2.0), success=moved(0.5, 0.4)).items()}


def test_a_watch_goes_on_from_its_state_and_rests_after_an_alarm() -> None:
    whole, again = Watch(), Watch()
    fired: dict[str, list[int]] = {"whole": [], "again": []}
    for step in range(20):
        fired["whole"] += [alarm.step for alarm in whole.observe(step, measured(step))]
        fired["again"] += [alarm.step for alarm in again.observe(step, measured(step))]
        state = json.loads(json.dumps(again.state()))
        again = Watch()
        again.restore(state)
    assert fired["again"] == fired["whole"] and len(fired["whole"]) == 1 == whole.total == again.total
    assert again.state() == whole.state()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Watch(detectors=("lenght",)), "alarms.detectors names 'lenght'; .*length"),
        (lambda: Bounds(window=2), "alarms.window is 2; .* at least 3"),
        (lambda: Bounds(rate=0.0), "alarms.rate is 0.0; it lies between 0 and 1"),
    ],
)
def test_what_cannot_work_is_refused(make: type[Watch], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("reward.kind=outcome", "credit.kind=grpo", "alarms.action=log"), "there is no judge to exploit"),
        (("credit.kind=grpo", "alarms.action=lower"), "weighs the process part of credit, and credit 'grpo' tells none"),
        (("alarms.action=rollback", "evaluation.every=0"), "set evaluation.every to 1 or more"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(settings: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load("smoke", [*SMALL, *settings])


# -- planted hacks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_hack_is_found(name: str) -> None:
    assert play(PLANTS[name], 0, steps=30).alarms


def test_a_clean_run_is_silent() -> None:
    assert play(CLEAN, 0, steps=60).alarms == []


def test_the_table_counts_what_happened() -> None:
    run = {"judge": "loop", "seed": 0, "steps": 100, "used": [0.0] * 20 + [0.5] * 80, "alarms": [[30, "length", 1e-5]]}
    assert onset([0.0] * 20 + [0.5] * 80) == 21 and delay(run) == 9.0
    text = table_of([run, {**run, "judge": "clean", "alarms": []}])
    assert "| loop | 1 | 1 | 21 (1 runs) | 30 | 1 | 0 |" in text and "| `length` | 0 | 0.0e+00 | 0 of 1 |" in text


# -- what an alarm does -------------------------------------------------------------------------------------------------------


def test_the_process_part_alone_is_weighed() -> None:
    scored = make_scored([1, 1], outcome=1.0, process=[1.0, 2.0])
    credit = Credited(scored, np.array([1.5, 2.5]), {"outcome": np.array([0.5, 0.5]), "process": np.array([1.0, 2.0])})
    lowered = weighed([Group(scored.episode.task, (credit,))], 0.25)[0].members[0]
    assert lowered.advantages_S.tolist() == [0.75, 1.0] and lowered.parts["process"].tolist() == [0.25, 0.5]
    assert weighed([Group(scored.episode.task, (credit,))], 1.0)[0].members[0] is credit


@pytest.fixture
def ringing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A detector that rings at every third step."""

    def ring(history: dict[str, Floats], bounds: Bounds) -> object:
        from stepwell.alarms import Finding

        return Finding(0.0, "it is time") if len(history["judge"]) >= 3 else None

    monkeypatch.setitem(DETECTORS, "length", ring)  # type: ignore[arg-type]


def played(run: Path, *settings: str, resume: bool = False) -> list[tuple[int, Metrics]]:
    config = load("smoke", [*SMALL, "alarms.detectors=[length]", *settings])
    return list(train(config, run, resume=resume))


@pytest.mark.usefixtures("ringing")
def test_a_run_is_stopped_and_goes_on_only_where_it_is_told_to(tmp_path: Path) -> None:
    steps = played(tmp_path / "a", "alarms.action=stop")
    assert len(steps) == 3 and steps[-1][1]["alarms/fired"] == 1.0
    assert "stopped at step 3 by alarm" in (tmp_path / "a" / "report.md").read_text(encoding="utf-8")
    with pytest.raises(RunError, match=r"stopped by an alarm.*it is time.*alarms.action=log"):
        played(tmp_path / "a", "alarms.action=stop", resume=True)
    assert [step for step, _ in played(tmp_path / "a", "alarms.action=log", resume=True)] == [4, 5, 6]


@pytest.mark.usefixtures("ringing")
@pytest.mark.parametrize("action", ["lower", "rollback"])
def test_a_resumed_run_lowers_and_goes_back_as_the_whole_one(tmp_path: Path, action: str) -> None:
    whole = played(tmp_path / "whole", f"alarms.action={action}")
    weights = [metrics["alarms/process_weight"] for _, metrics in whole]
    assert weights == [1, 1, 0.5, 0.5, 0.5, 0.25]
    first = train(load("smoke", [*SMALL, "alarms.detectors=[length]", f"alarms.action={action}"]), tmp_path / "cut")
    for _ in range(4):
        next(first)
    first.close()
    played(tmp_path / "cut", f"alarms.action={action}", resume=True)
    lines = [
        [{k: v for k, v in line.metrics.items() if not k.startswith("time/")} for line in read_metrics(tmp_path / name)]
        for name in ("whole", "cut")
    ]
    assert json.dumps(lines[0]) == json.dumps(lines[1])


@pytest.mark.usefixtures("ringing")
def test_going_back_takes_the_weights_of_the_best_checkpoint(tmp_path: Path) -> None:
    played(tmp_path / "a", "alarms.action=rollback", "steps=3")
    best, last = checkpoint.best(tmp_path / "a" / "checkpoints"), checkpoint.latest(tmp_path / "a" / "checkpoints")
    assert best is not None and last is not None and best.step < last.step == 3 and last.value is None
    files = [one.folder_of("policy") / "model.safetensors" for one in (best, last)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_names_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = set(re.findall(r"^\| `(alarms/[^`]+)` \|", text, flags=re.MULTILINE))
    watch = Watch()
    probed = {f"{name}_{what}": 1.0 for name in ("shuffled", "truncated") for what in ("n", "preferred")}
    watch.observe(1, {**measured(0), **probed, "repetition": 0.0})
    assert names == {*watch.metrics(), "alarms/fired", "alarms/process_weight"}
