"""A tiny model trains on questions, and `stepwell eval --domain BENCHMARK` measures it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import SMALL, stepwell


@pytest.mark.slow
def test_a_tiny_model_trains_on_questions_and_is_measured_by_pass_at_k(tmp_path: Path) -> None:
    for name, numbers in (("train", range(2, 8)), ("test", range(2, 6))):
        lines = [{"question": f"what is {n} + 1 ?", "answer": f"it is {n + 1} .\n#### {n + 1}"} for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    files = [f"domain.data={tmp_path / 'test.jsonl'}", f"domain.train_data={tmp_path / 'train.jsonl'}"]
    small = [setting for setting in SMALL if not setting.startswith(("domain.", "rollout.turns"))]
    asked = ["domain.kind=questions", "domain.problems=gsm8k", "domain.train=gsm8k-train", *files, "chat.codec=text", "rollout.turns=1"]
    trained = stepwell("train", "smoke", *asked, *small, "evaluation.episodes=4", "evaluation.during=2", "--run", tmp_path / "run")
    assert trained.code == 0, trained.err
    said = stepwell("eval", tmp_path / "run", "--domain", "gsm8k", files[0], "domain.reads=any", "--k", "1,2", "--json")
    assert said.code == 0, said.err
    assert (said.json["tasks"], said.json["samples"], said.json["turns"]) == (4, 2, 1.0)
    assert 0 <= said.json["pass_at"]["1"] <= said.json["pass_at"]["2"] <= 1
    refused = stepwell("eval", tmp_path / "run", "--domain", "math500", files[0])
    assert refused.code == 2 and "expected problem, answer" in refused.err
