"""From a run to a judge of candidates: what its numbers are, who reads tokens and who is told text, and who does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scribes import scribe

import stepwell
from stepwell.configure import load
from stepwell.errors import ConfigError, RunError
from stepwell.rollout import rollout
from stepwell.searching.judge import FITTING, Judge
from stepwell.searching.open import _says, judge_of
from stepwell.searching.settings import SearchSettings
from stepwell.teaching import teach
from stepwell.types import Episode

Run = Callable[..., Path]


def starts(model: stepwell.Trained) -> list[str]:
    return [model.domain.environment(task, 0).start().text for task in model.domain.tasks("test")]


def played(model: stepwell.Trained, n: int = 2) -> list[Episode]:
    groups = rollout(model.domain, model.domain.tasks("test"), model.policy, model.player, group_size=n, seed=(9,))
    return [one for group in groups for one in group.members]


@pytest.mark.parametrize(
    ("settings", "says", "probability"),
    [
        (["reward.kind=implicit"], "change", False),
        (["reward.kind=inverse"], "reward", False),
        (["reward.kind=montecarlo"], "value", True),
        (["reward.kind=montecarlo", "reward.form=progress"], "change", False),
        (["reward.kind=temporal", "reward.form=value"], "value", False),
        (["reward.kind=labelled", "reward.data=x"], "right", True),
        (["reward.kind=labelled", "reward.data=x", "reward.form=progress"], "change", False),
        (["reward.kind=soft_q", "reward.form=value"], "value", False),
        (["reward.kind=entropy"], "reward", False),
    ],
)
def test_what_a_steps_number_is(settings: list[str], says: str, probability: bool) -> None:
    assert _says(load("smoke", [*settings, "credit.kind=process_to_go"]).reward) == (says, probability)


def test_what_fits_each_kind() -> None:
    assert FITTING == {"right": "min", "value": "last", "change": "sum", "reward": "mean"}
    assert Judge(None, "change", False, "x").aggregate("last") == "last"  # type: ignore[arg-type]


def test_a_judge_of_the_same_run_reads_the_tokens_themselves(trained: Run) -> None:
    run = trained("reward.kind=implicit", "reward.objective=cross_entropy", "reward.judged=all", "reward.lr=0.01")
    model = stepwell.open_run(run)
    who = judge_of(run, model, starts(model))
    episodes = played(model)
    said = who.scores(episodes, "sum")
    scored = [group.members[0] for group in who.reward.score([stepwell.Group(one.task, (one,)) for one in episodes])]
    assert said == pytest.approx([float(one.process_S.sum()) for one in scored]) and any(said)
    assert (who.says, who.passes, who.splits) == ("change", 2, True)
    read = sum(len(one.turns[-1].context_ids) + len(one.turns[-1].token_ids) for one in episodes)
    assert who.positions == 2 * read, "asked twice, once by each line above"
    found = stepwell.search(model, run, SearchSettings(n=2, methods=("best_of_n", "beam"), problems=4))
    assert found.aggregate == "sum" and found.curves["beam"][1].cost.judge_tokens > 0
    assert found.curves["best_of_n"][0].cost.judge_tokens == pytest.approx(found.curves["best_of_n"][1].cost.judge_tokens / 2)


def test_the_reference_of_a_log_ratio_is_the_judges_own_policy_whoever_sampled(trained: Run) -> None:
    """Candidates of another checkpoint, or of the same model once it is exported, are of other versions."""
    model = stepwell.open_run(trained("reward.kind=implicit"))
    who = judge_of(trained("reward.kind=implicit"), model, starts(model))
    episodes = played(model)
    elsewhere = [replace(one, turns=tuple(replace(turn, version=turn.version + 5) for turn in one.turns)) for one in episodes]
    assert who.scores(elsewhere, "sum") == who.scores(episodes, "sum")


def test_a_judge_with_other_words_is_told_the_text(trained: Run) -> None:
    """Another vocabulary of the same domain; what it says of a step is what it says of the same text in its own tokens."""
    run = trained("reward.kind=implicit", "engine.corpus_tasks=300", "seed=3")
    model = scribe()
    who = judge_of(run, model, starts(model))
    assert not who.splits and set(model.tokenizer.get_vocab()) != set(stepwell.open_run(run).tokenizer.get_vocab())
    said = who.scores(played(model), "sum")
    assert all(one is not None and np.isfinite(one) for one in said) and who.positions > 0


def test_a_judge_that_does_not_know_the_words_is_refused(trained: Run) -> None:
    run = trained("reward.kind=implicit", "engine.corpus_tasks=300", "seed=3")
    with pytest.raises(ConfigError, match="has a tokenizer without the word 'Ω',"):
        judge_of(run, scribe(), ["calculate 3 + Ω"])


def test_a_judge_of_another_domain_is_refused(trained: Run) -> None:
    run = trained("reward.kind=implicit")
    model = scribe()
    elsewhere = model._replace(config=load("smoke", []))
    with pytest.raises(ConfigError, match=r"^The judge of .* learnt in reasoning \(arithmetic\), and the candidates are of shop"):
        judge_of(run, elsewhere, starts(model))
    other = load("smoke", ["domain.kind=reasoning", "domain.task=words"])
    with pytest.raises(ConfigError, match=r"the candidates are of reasoning \(words\)"):
        judge_of(run, model._replace(config=other), starts(model))
    with pytest.raises(ConfigError, match="shop tasks have no checker of steps"):
        judge_of("oracle", elsewhere._replace(domain=None), [])  # type: ignore[arg-type]


def test_a_run_without_a_judge_is_refused(trained: Run) -> None:
    run = trained("reward.kind=outcome", "credit.kind=rloo")
    with pytest.raises(RunError, match="has no judge"):
        judge_of(run, scribe(), [])


def test_a_judge_that_was_taught_by_a_file_judges_any_domain_that_it_can_read(tmp_path: Path) -> None:
    model = scribe()
    labels = tmp_path / "labels.jsonl"
    solutions = [(start, ["3 + 4 = 7", "answer: 7"]) for start in starts(model)]
    labels.write_text("\n".join(json.dumps({"prompt": start, "steps": steps, "labels": [1, 0]}) for start, steps in solutions))
    settings = [
        "reward.kind=labelled",
        f"reward.data={labels}",
        "reward.warm=2",
        "reward.batch=2",
        "reward.held_out=0",
        "reward.separator=;",
        "engine.threads=1",
    ]
    domain = ["domain.kind=reasoning", "domain.task=arithmetic", "credit.kind=grpo", "checkpoint.every=1"]
    list(teach(load("smoke", [*settings, *domain]), tmp_path / "judge"))
    who = judge_of(tmp_path / "judge", model, starts(model))
    said = who.scores(played(model), who.aggregate(None))
    assert (who.says, who.probability, who.aggregate(None)) == ("right", True, "min")
    assert all(one is not None and 0 < one < 1 for one in said)
