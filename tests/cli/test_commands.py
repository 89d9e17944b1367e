"""The commands on a small run: what they answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import SMALL, stepwell

from stepwell.config import Config
from stepwell.configure import dump, load, parse
from stepwell.curriculum import Uniform
from stepwell.protocols import Domain
from stepwell.tracking import read_metrics
from stepwell.types import Episode, Group, Metrics

SHOP = Path(__file__).parents[1] / "data" / "webshop"


class Interrupting(Uniform):
    """Somebody presses Ctrl-C, or sends a signal, in the middle of the second step, once."""

    pressed = False
    sends: signal.Signals | None = None

    def __init__(self, domain: Domain, seed: int) -> None:
        super().__init__(domain, (0.0, 0.3), seed)

    def observe(self, groups: Sequence[Group[Episode]]) -> Metrics:
        metrics = super().observe(groups)
        if metrics["curriculum/drawn"] == 4 and not Interrupting.pressed:
            Interrupting.pressed = True
            if Interrupting.sends is None:
                raise KeyboardInterrupt
            signal.raise_signal(Interrupting.sends)
        return metrics


# -- train --------------------------------------------------------------------------------------------------------------------


def test_train_ends_with_a_table_and_the_reports_path(here: Path) -> None:
    said = stepwell("train", "smoke", *SMALL, "cloning.steps=0", "steps=1")
    assert said.code == 0
    assert "smoke, seed 0" in said.out
    assert "6 held-out tasks; 95 % intervals" in said.out
    assert said.out.splitlines()[-1] == "report: runs/smoke-0/report.md"
    assert (here / "runs" / "smoke-0" / "report.md").exists()
    assert "step 1/1" in said.err, "progress goes to standard error"


def test_train_json_is_the_report_and_nothing_else(run: Path) -> None:
    """The same command again: nothing is left, which is no error."""
    said = stepwell("train", "smoke", *SMALL, "--run", run, "--resume", "--json")
    assert said.code == 0
    assert f"{run} is finished: all 5 steps are done and nothing is left." in said.err
    assert (said.json["run"], said.json["report"]) == (str(run), str(run / "report.md"))
    for name in ("success", "success_greedy"):
        assert set(said.json[name]) == {"before", "after"}
        assert set(said.json[name]["after"]) == {"mean", "low", "high"}
    assert said.json["episodes"] == 2 * 2 * 2
    assert {"train_seconds", "tokens", "peak_memory_bytes"} <= set(said.json)


@pytest.mark.parametrize(("sends", "how", "code"), [(None, "Interrupted", 130), (signal.SIGTERM, "Terminated", 143)])
def test_who_is_told_to_end_says_what_is_kept_and_how_to_go_on(
    here: Path, monkeypatch: pytest.MonkeyPatch, sends: signal.Signals | None, how: str, code: int
) -> None:
    monkeypatch.setattr(Interrupting, "pressed", False)
    monkeypatch.setattr(Interrupting, "sends", sends)
    taken = signal.getsignal(signal.SIGTERM)
    arguments = ["train", "smoke", *SMALL, "curriculum.kind=test_commands:Interrupting", "name=cut short"]
    said = stepwell(*arguments)
    assert said.code == code
    assert said.out == ""
    sentence, command = said.err.strip().splitlines()[-1].split("Go on with: ")
    assert sentence == f"{how}; runs/cut short-0 keeps everything up to step 4. "
    assert command.startswith("stepwell train smoke") and command.endswith("--run 'runs/cut short-0' --resume")
    assert signal.getsignal(signal.SIGTERM) is taken
    assert stepwell(*arguments, "--resume").code == 0
    assert [line.step for line in read_metrics(here / "runs" / "cut short-0")] == [1, 2, 3, 4, 5]


def test_a_run_that_ends_before_its_first_checkpoint_says_that_it_begins_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interrupting, "pressed", False)
    parts = ["cloning.steps=0", "evaluation.every=0", "checkpoint.every=9", "curriculum.kind=test_commands:Interrupting"]
    said = stepwell("train", "smoke", *SMALL, *parts, "--run", "cut")
    assert said.code == 130 and "Interrupted; cut has no checkpoint yet, so the run would begin again. Go on with: " in said.err


# -- eval ---------------------------------------------------------------------------------------------------------------------


def test_eval_of_the_last_checkpoint_is_what_the_run_measured(run: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    sampled, greedy = stepwell("eval", run, "--json"), stepwell("eval", run, "--json", "--greedy")
    assert sampled.json["success"] == report["success"]["after"]
    assert greedy.json["success"] == report["success_greedy"]["after"]
    wanted = {"success", "score", "episodes", "turns", "invalid_rate", "by_difficulty", "failed", "unscored", "truncated"}
    assert wanted <= set(sampled.json)
    assert (sampled.json["episodes"], sampled.json["temperature"], sampled.json["checkpoint"]) == (6, 1.0, "last")
    assert (sampled.json["step"], greedy.json["temperature"]) == (5, 0.0)
    assert "Playing 6 tasks of split test" in sampled.err


def test_eval_takes_settings_of_domain_and_limits(run: Path) -> None:
    said = stepwell("eval", run, "difficulty=[0.9,1.0]", "rollout.turns=2", "--episodes", 3, "--split", "validation", "--json")
    assert list(said.json["by_difficulty"]) == ["0.8-1.0"]
    assert (said.json["turns"], said.json["episodes"], said.json["split"]) == (2.0, 3, "validation")


def test_eval_in_another_domain_keeps_the_vocabulary(run: Path) -> None:
    said = stepwell("eval", run, f"data={SHOP}", "variant=compat", "--domain", "webshop", "--episodes", 2, "--json")
    assert said.code == 0, said.err
    assert (said.json["domain"], said.json["episodes"]) == ("webshop", 2)


def test_eval_pass_at_k_and_the_best_checkpoint(run: Path) -> None:
    said = stepwell("eval", run, "--k", "1,3", "--episodes", 2, "--checkpoint", "best", "--json")
    assert set(said.json["pass_at"]) == {"1", "3"}
    assert said.json["pass_at"]["1"] <= said.json["pass_at"]["3"]
    assert said.json["pass_hat"]["1"] == said.json["pass_at"]["1"] >= said.json["pass_hat"]["3"]
    assert (said.json["episodes"], said.json["samples"], said.json["tasks"], said.json["checkpoint"]) == (6, 3, 2, "best")
    table = stepwell("eval", run, "--k", "1,3", "--episodes", 2, "--samples", 4)
    assert "pass@3" in table.out and "8 episodes in shop; 95 % intervals" in table.out


def test_eval_plays_the_same_tasks_undisturbed_and_interrupted(run: Path) -> None:
    alone = stepwell("eval", run, "--episodes", 6, "--json")
    both = ["eval", run, "--episodes", 6, "--perturbed", "interruptions.kinds=[tool_error]", "interruptions.at=[1]"]
    said = stepwell(*both, "--json")
    assert said.code == 0, said.err
    rough = said.json["perturbed"]
    assert said.json["success"] == alone.json["success"]
    assert (rough["episodes"], rough["interrupted"]) == (6, 6)
    assert set(rough["recovery_by_kind"]) == {"tool_error"}
    assert rough["difference"]["mean"] == pytest.approx(rough["success"]["mean"] - said.json["success"]["mean"])
    table = stepwell(*both)
    assert "the same tasks, interrupted" in table.out and "something happened in 6 of 6 episodes" in table.out


def test_other_seeds_of_sampling_are_other_episodes(run: Path) -> None:
    tokens = {seed: stepwell("eval", run, "--seed", seed, "--episodes", 4, "--json").json["tokens"] for seed in (0, 1, 2)}
    assert len(set(tokens.values())) > 1


# -- show ---------------------------------------------------------------------------------------------------------------------


def test_show_prints_episodes_and_says_how_many_there_are(run: Path) -> None:
    said = stepwell("show", run, "--limit", 1)
    assert "step 5" in said.out and "advantage" in said.out
    assert "1 of 4 episodes; --limit 0 shows all." in said.err
    assert stepwell("show", run, "--limit", 0).err == ""


def test_show_json_selects(run: Path) -> None:
    every = stepwell("show", run, "--step", 4, "--json").json
    assert [episode["step"] for episode in every] == [4] * 4
    key = every[-1]["key"]
    assert [episode["key"] for episode in stepwell("show", run, "--step", 4, "--task", key, "--json").json] == [key] * 2
    assert stepwell("show", run, "--failed", "--json").json == [e for e in stepwell("show", run, "--json").json if not e["success"]]


# -- play ---------------------------------------------------------------------------------------------------------------------


def test_a_person_plays() -> None:
    said = stepwell("play", "shop", "products=100", "--task", 1, typed="search[red shirt]\nclick[p1]\nbuy[]\n")
    assert said.code == 0
    assert "Over after 3 actions, 0 of them invalid." in said.out


def test_a_domain_of_ones_own_lies_in_the_present_folder(here: Path) -> None:
    (here / "own_environment.py").write_bytes((Path(__file__).parents[2] / "examples" / "own_environment.py").read_bytes())
    command = [sys.executable, "-P", "-c", "from stepwell.cli.app import main; main()", "play", "own_environment:Numbers"]
    said = subprocess.run(command, input="guess[1]\n", capture_output=True, text=True, check=True)
    assert "right" in said.stdout and "Over after 1 actions" in said.stdout


def test_replay_of_webshop_is_what_was_recorded(here: Path) -> None:
    recorded = [json.loads(line) for line in (SHOP / "episodes.jsonl").read_text().splitlines()]
    (here / "replay.jsonl").write_text("".join(json.dumps(one["request"]) + "\n" for one in recorded))
    said = stepwell("play", "webshop", f"data={SHOP}", "variant=compat", "seed=0", "--replay", "replay.jsonl", "--json")
    assert [json.loads(line) for line in said.out.splitlines()] == [one["answer"] for one in recorded]


def test_replay_of_the_generated_shop(here: Path) -> None:
    """By index and by seed; the first step is the start; an expert's actions earn 1."""
    from stepwell.engine.codec import BRACKET
    from stepwell.envs.shop import ShopDomain

    shop = ShopDomain(products=100)
    listed, made = shop.tasks("test")[2], shop.task(0.25, 7, "train")
    lines = [
        {"task": 2, "actions": [BRACKET.format(action, shop.environment(listed).tools) for action in shop.expert(listed)]},
        {"task": {"difficulty": 0.25, "seed": 7, "split": "train"}, "actions": ["search[soft]", "dance"]},
    ]
    (here / "replay.jsonl").write_text("\n".join(map(json.dumps, lines)))
    said = stepwell("play", "shop", "products=100", "--replay", "replay.jsonl", "--json")
    won, lost = (json.loads(line) for line in said.out.splitlines())
    assert won["task"] == 2 and lost["task"] == lines[1]["task"]
    assert won["steps"][0]["observation"] == listed.prompt
    assert (won["steps"][-1]["done"], won["steps"][-1]["reward"], won["steps"][-1]["has_search_bar"]) == (True, 1.0, False)
    assert lost["steps"][0]["observation"] == made.prompt
    assert [step["valid"] for step in lost["steps"]] == [True, True, False]
    assert "p1" in lost["steps"][1]["clickables"] and "click[p1]" in lost["steps"][1]["admissible"]
    text = stepwell("play", "shop", "products=100", "--replay", "replay.jsonl")
    assert "reward 1.000, done" in text.out and "without meaning" in text.out


# -- config and lists ---------------------------------------------------------------------------------------------------------


def test_config_prints_what_train_reads(here: Path) -> None:
    said = stepwell("config", "smoke", "reward.kind=outcome", "credit.kind=rloo", "seed=3")
    (here / "mine.yaml").write_text(said.out)
    config = load("mine.yaml")
    assert (config.seed, config.reward.kind, config.credit.kind) == (3, "outcome", "rloo")
    assert parse(yaml.safe_load(said.out)) == config == load("smoke", ["reward.kind=outcome", "credit.kind=rloo", "seed=3"])
    assert set(yaml.safe_load(said.out)) == set(dump(config)) == set(Config.model_fields)


@pytest.mark.parametrize("command", ["presets", "domains", "methods", "doctor"])
def test_lists_in_words_and_in_json(command: str) -> None:
    words, found = stepwell(command), stepwell(command, "--json").json
    assert words.code == 0
    names: dict[str, Any] = {
        "presets": lambda: [entry["preset"] for entry in found],
        "domains": lambda: [entry["domain"] for entry in found],
        "methods": lambda: [entry["setting"].split()[0] for entry in found],
        "doctor": lambda: [*found["extras"]],
    }
    assert names[command]() and all(name in words.out for name in names[command]())


def test_help_and_version_need_no_torch() -> None:
    code = """
import sys
from stepwell.cli import main
for arguments in (["--version"], ["config", "smoke"], ["train", "--help"], ["presets"]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as done:
        assert not done.code, arguments
    assert "torch" not in sys.modules, arguments
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("0.1.0\n")
