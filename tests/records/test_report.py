from __future__ import annotations

import errno
import io
import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from stepwell.errors import RunError
from stepwell.evaluation.intervals import Interval, wilson
from stepwell.plots import PANELS, running_mean
from stepwell.report import Change, Facts, summary_table, write_report
from stepwell.tracking import Tracker

FACTS = Facts(
    title="quick, seed 0",
    evaluated="200 held-out tasks",
    success=Change(wilson(30, 200), wilson(110, 200)),
    success_greedy=Change(wilson(90, 200), wilson(130, 200)),
    train_seconds=171.6,
    episodes=12928,
    tokens=374_912,
    peak_memory_bytes=3 * 2**30 // 2,
    seed=0,
    config_hash="0123456789abcdef",
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of 60 steps with everything that the plots know."""
    draws = np.random.default_rng(0)
    with Tracker(tmp_path) as tracker:
        for step in range(61):
            level = 0.15 + 0.4 * step / 60
            metrics = {"rollout/success": level + draws.normal(0, 0.05), "credit/outcome": level + 0.1, "policy/entropy": 0.5 - step / 200}
            metrics |= {
                "policy/kl_ref": step / 1e4,
                "sampler/kl": 1e-6,
                "judge/fresh_pair_accuracy": math.nan if step < 5 else 0.5 + step / 200,
            }
            if step % 20 == 0:
                for name, shift in (("eval/success", 0.0), ("eval/success_greedy", 0.15)):
                    interval = wilson(round(200 * (level + shift)), 200)
                    metrics |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
            tracker.log(step, metrics)
    return tmp_path


@pytest.fixture
def small_run(tmp_path: Path) -> Path:
    with Tracker(tmp_path) as tracker:
        tracker.log(1, {"rollout/success": 0.5, "policy/entropy": math.nan})
    return tmp_path


def test_report_json_has_the_keys_and_numbers(small_run: Path) -> None:
    write_report(small_run, FACTS)
    report = json.loads((small_run / "report.json").read_text())
    before = wilson(30, 200)
    assert report["success"]["before"] == {"mean": 0.15, "low": before.low, "high": before.high}
    assert report["success_greedy"]["after"]["mean"] == 0.65
    rest = {key: report[key] for key in ("train_seconds", "episodes", "tokens", "peak_memory_bytes", "seed", "config_hash")}
    assert rest == {
        "train_seconds": 171.6,
        "episodes": 12928,
        "tokens": 374912,
        "peak_memory_bytes": 1610612736,
        "seed": 0,
        "config_hash": "0123456789abcdef",
    }


def test_what_was_not_measured_is_null_and_said(small_run: Path) -> None:
    facts = replace(FACTS, success=Change(None, wilson(0, 0)), success_greedy=Change(None, None))
    text = write_report(small_run, facts).read_text()
    report = json.loads((small_run / "report.json").read_text())
    assert report["success"] == report["success_greedy"] == {"before": None, "after": None}
    assert "| success at temperature 1 | not measured | not measured | - |" in text
    assert "greedy |" not in text
    text = write_report(small_run, replace(FACTS, success=Change(wilson(0, 0), wilson(1, 2)))).read_text()
    assert "| success at temperature 1 | not measured | 50.0 % (9.5 to 90.5) | - |" in text
    text = write_report(small_run, replace(facts, success=Change(None, None))).read_text()
    assert "Nothing was evaluated." in text


def test_report_md_tells_the_numbers_and_shows_the_plots(run: Path) -> None:
    text = write_report(run, replace(FACTS, notes=("The judge did not help here.",))).read_text()
    row = "| success at temperature 1 | 15.0 % (10.7 to 20.6) | 55.0 % (48.1 to 61.7) | +40.0 points (+31.1 to +48.0) |"
    assert row in text
    assert text.startswith("# quick, seed 0\n\n| 200 held-out tasks | before | after | change |\n|---|---|---|---|\n| success at")
    facts = ["2 min 52 s", "12,928", "374,912", "1.50 GiB", "| seed | 0 |", "`0123456789abcdef`", "> The judge did not help here."]
    assert all(fact in text for fact in facts), text
    assert "Not shown" not in text
    assert "\n\nIn brackets: 95 %" in text
    for part in ("| | |\n", "> The judge", "## ", "![", "Share of", "`stepwell show"):  # Markdown wants an empty line before each
        starts = [i for i in range(len(text)) if text.startswith(f"\n{part}", i)]
        assert starts
        assert all(text[i - 1] == "\n" for i in starts), part
    assert "\n\n\n" not in text
    for panel in PANELS:
        assert f"]({'plots/' + panel.file})" in text
        picture = imread(run / "plots" / panel.file)
        assert picture.shape[0] > 400
        assert len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) > 20  # something is drawn


def test_the_same_run_gives_the_same_pictures(small_run: Path) -> None:
    write_report(small_run, FACTS)
    before = {path.name: path.read_bytes() for path in (small_run / "plots").iterdir()}
    write_report(small_run, FACTS)
    assert {path.name: path.read_bytes() for path in (small_run / "plots").iterdir()} == before


def test_panels_without_data_are_named(small_run: Path) -> None:
    text = write_report(small_run, FACTS).read_text()
    assert "Not shown, because the run has no such metrics: Reward, Entropy, KL, Judge." in text
    assert [path.name for path in (small_run / "plots").iterdir()] == ["success.png"]


def test_a_metric_that_was_measured_once_is_seen(tmp_path: Path) -> None:
    with Tracker(tmp_path) as tracker:
        tracker.log(7, {"judge/fresh_pair_accuracy": 0.5})
    write_report(tmp_path, FACTS)
    picture = imread(tmp_path / "plots" / "judge.png")[60:380, 150:500]  # of the axes, the part left of the legend
    blue = (picture[..., 2] > picture[..., 0] + 0.2).sum()
    assert blue > 20


def test_a_run_without_metrics_has_a_report(tmp_path: Path) -> None:
    assert "Not shown" in write_report(tmp_path, FACTS).read_text()


def test_a_full_disk(small_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"The report could not be written to .*: the disk is full"):
        write_report(small_run, FACTS)


def test_the_table_for_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(summary_table(FACTS))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert any("success at temperature 1" in line and "+40.0 points (+31.1 to +48.0)" in line for line in lines), lines
    assert any("success, greedy" in line and "45.0 %" in line and "65.0 %" in line for line in lines)
    assert "200 held-out tasks; 95 % intervals; 2 min 52 s of training" in lines[-1]


@pytest.mark.parametrize(("width", "expected"), [(1, [1.0, 2.0, 6.0]), (3, [1.5, 3.0, 4.0]), (2, [1.5, 3.0, 4.0]), (9, [3.0, 3.0, 3.0])])
def test_running_mean(width: int, expected: list[float]) -> None:
    assert running_mean(np.array([1.0, 2.0, 6.0]), width).tolist() == expected


def test_intervals_are_drawn_from_low_to_high(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches the plotting library, value by value."""
    from matplotlib.axes import Axes

    drawn: list[tuple[list[float], list[float], list[list[float]]]] = []
    real: Callable[..., object] = Axes.errorbar

    def errorbar(self: Axes, x: np.ndarray, y: np.ndarray, *, yerr: tuple[np.ndarray, np.ndarray], **rest: object) -> object:
        drawn.append((x.tolist(), y.tolist(), [side.tolist() for side in yerr]))
        return real(self, x, y, yerr=yerr, **rest)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    with Tracker(tmp_path) as tracker:
        tracker.log(0, {"eval/success": 0.5, "eval/success_low": 0.25, "eval/success_high": 0.625})
        tracker.log(1, {"rollout/success": 0.5})
        tracker.log(2, {"eval/success": 0.75})
    write_report(tmp_path, replace(FACTS, success=Change(None, Interval(0.75, 0.5, 0.875))))
    assert drawn == [([0.0, 2.0], [0.5, 0.75], [[0.25, 0.0], [0.125, 0.0]])]
