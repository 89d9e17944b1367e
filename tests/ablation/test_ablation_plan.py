from __future__ import annotations

from pathlib import Path

import pytest
from ablation_results import mini_plan

from stepwell.ablation.plan import changes_of, make_plan, read_variant, seeds_of
from stepwell.ablation.results import check_baseline
from stepwell.ablation.running import run_all
from stepwell.ablation.variants import BUILT_IN, clean, full, perturbed, variants_of
from stepwell.config import Config
from stepwell.configure import load, parse
from stepwell.errors import ConfigError, RunError


@pytest.fixture
def base() -> Config:
    return load("smoke")


def test_the_table_of_the_six(base: Config) -> None:
    """Step rewards, curriculum, interruptions: as the brief has them."""
    made = {
        variant.name: (
            variant.config.reward.kind != "outcome",
            variant.config.curriculum.kind != "uniform",
            bool(variant.config.domain.interruptions.kinds),  # type: ignore[union-attr]
        )
        for variant in variants_of(base, {}, ())
    }
    assert made == {
        "full": (True, True, True),
        "no_curriculum": (True, False, True),
        "no_step_rewards": (False, True, True),
        "no_interruptions": (True, True, False),
        "static_judge": (True, True, True),
        "vanilla_grpo": (False, False, False),
    }


def test_variants_share_everything_else(base: Config) -> None:
    variants = {variant.name: variant.config for variant in variants_of(base, {}, ())}
    for config in variants.values():
        assert config.optimizer == base.optimizer and config.rollout == base.rollout and config.cloning == base.cloning
        assert config.steps == base.steps and config.evaluation.episodes == base.evaluation.episodes
        assert config.reward.pay == "score"  # type: ignore[union-attr]
    vanilla = variants["vanilla_grpo"]
    assert (vanilla.credit.kind, vanilla.curriculum.difficulty) == ("grpo", base.curriculum.difficulty)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ("credit.kind=istar credit.baseline=rloo", {"kind": "rloo"}),
        ("credit.kind=istar credit.baseline=raw", {"kind": "grpo"}),
        ("credit.kind=process_to_go", {"kind": "rloo"}),
        ("credit.kind=process_supervision", {"kind": "grpo"}),
        ("credit.kind=prime", {"kind": "rloo"}),
        ("credit.kind=repirl", {"kind": "rloo"}),
        ("credit.kind=gigpo credit.discount=0.9", {"kind": "gigpo", "discount": 0.9}),
        ("credit.kind=gae credit.outcome_weight=0 credit.lam=0.9", {"kind": "gae", "outcome_weight": 1.0, "lam": 0.9}),
        ("credit.kind=drgrpo", {"kind": "drgrpo"}),
    ],
)
def test_without_step_rewards_outcomes_are_compared_as_before(settings: str, left: dict[str, object]) -> None:
    """So that `full` and `no_step_rewards` differ in the step rewards alone; vanilla GRPO is GRPO whatever the full system compares by."""
    base = load("smoke", settings.split())
    bare, vanilla = variants_of(base, {}, ["no_step_rewards", "vanilla_grpo"])
    assert left.items() <= bare.config.credit.model_dump().items()  # type: ignore[union-attr]
    assert vanilla.config.credit.kind == "grpo"  # type: ignore[union-attr]


def test_credit_around_interruptions_goes_with_them() -> None:
    base = load("smoke", ["interrupted_credit.kind=decay", "interruptions.kinds=[tool_error]", "curriculum.kind=entropy"])
    made = {variant.name: variant.config.interrupted_credit.kind for variant in variants_of(base, {}, ())}
    assert made == dict.fromkeys(BUILT_IN, "decay") | {"no_interruptions": "none", "vanilla_grpo": "none"}
    assert clean(base).interrupted_credit.kind == "none"


@pytest.mark.parametrize("settings", ["reward.kind=environment", "reward.kind=montecarlo"])
def test_a_judge_that_reads_no_text_cannot_be_made_static(settings: str) -> None:
    base = load("smoke", [settings])
    with pytest.raises(ConfigError, match=r"Variant 'static_judge': A run of it cannot score a file: .* leave the variant out \(--only\)"):
        variants_of(base, {}, ())
    assert len(variants_of(base, {}, ["full", "no_step_rewards"])) == 2


def test_what_the_config_names_is_taken_as_it_is(base: Config) -> None:
    mine = load(
        "smoke", ["curriculum.kind=zone", "interruptions.kinds=[restock]", "interruptions.share=0.3", "evaluation.every=5", "steps=90"]
    )
    whole = full(mine)
    assert whole.curriculum == mine.curriculum
    assert whole.domain.interruptions.kinds == ("restock",) and whole.domain.interruptions.share == 0.3  # type: ignore[union-attr]
    assert whole.evaluation.every == 5


def test_held_out_tasks_are_interrupted_in_one_world_and_not_in_the_other(base: Config) -> None:
    whole = full(base)
    assert whole.domain.interruptions.splits == ("train",)  # type: ignore[union-attr]
    assert clean(whole).domain.interruptions.kinds == ()  # type: ignore[union-attr]
    rough = perturbed(whole).domain.interruptions  # type: ignore[union-attr]
    assert (rough.splits, rough.share, rough.kinds) == (("test",), 1.0, whole.domain.interruptions.kinds)  # type: ignore[union-attr]


def test_the_static_judge_is_taught_by_a_policy_that_stands_still(base: Config) -> None:
    (variant,) = variants_of(base, {}, ["static_judge"], judge_steps=7)
    assert variant.judge is not None
    assert variant.judge.steps == 7 and variant.judge.optimizer.lr < 1e-11
    assert variant.judge.reward == variant.config.reward
    watched = load("smoke", ["alarms.action=rollback", "evaluation.every=1"])
    assert [one.judge.alarms.action for one in variants_of(watched, {}, ["static_judge"]) if one.judge] == ["none"]


def test_a_named_change_is_one_of_the_full_system(base: Config) -> None:
    (variant,) = variants_of(base, {"long": ["rollout.turns=9"]}, ["long"])
    assert variant.config == full(base).model_copy(update={"rollout": base.rollout.model_copy(update={"turns": 9})})


@pytest.mark.parametrize(
    ("named", "only", "said"),
    [
        ({}, ["fulll"], "There is no variant 'fulll'; did you mean 'full'?"),
        ({}, ["full", "full"], "asked for twice"),
        ({"full": ["rollout.turns=5"]}, [], "is built in"),
        ({"mine": ["rollout.turnz=5"]}, [], "Variant 'mine': rollout.turnz is not a setting"),
        ({"mine": ["seed=5"]}, [], "the same for all variants"),
    ],
)
def test_wrong_variants_are_sentences(base: Config, named: dict[str, list[str]], only: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        variants_of(base, named, only)


def test_without_step_rewards_there_is_nothing_to_take_away() -> None:
    with pytest.raises(ConfigError, match="no step rewards to take away"):
        full(load("smoke", ["reward.kind=outcome", "credit.kind=grpo"]))


def test_wrong_seeds_are_sentences(base: Config, tmp_path: Path) -> None:
    for seeds, said in (((), "no seed"), ((3, 4, 3), "The seed 3 is given twice")):
        with pytest.raises(ConfigError, match=said):
            make_plan(base, seeds, tmp_path, named={}, only=[])
    for text in ("0", "-2", "five", ""):
        with pytest.raises(ConfigError, match="--seeds is"):
            seeds_of(text, 0)


def test_wrong_named_changes_are_sentences() -> None:
    for text in ("turns", "mine=turns", "2x=a=1", "a=b=1,c"):
        with pytest.raises(ConfigError, match="write NAME=key=value"):
            changes_of([text])
    with pytest.raises(ConfigError, match="defined twice"):
        changes_of(["a=b=1", "a=b=2"])


def test_wrong_baselines_targets_and_jobs_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'full'"):
        check_baseline(BUILT_IN, "ful", None)
    with pytest.raises(ConfigError, match=r"--target is 1\.5"):
        check_baseline(BUILT_IN, None, 1.5)
    with pytest.raises(ConfigError, match="--jobs is 0"):
        run_all(mini_plan(tmp_path, ["full"]), jobs=0)


def test_a_folder_of_another_config_is_refused(tmp_path: Path) -> None:
    mini_plan(tmp_path, ["full"]).enter()
    other = make_plan(load("smoke", ["steps=5"]), [0], tmp_path, named={}, only=["full"])
    with pytest.raises(RunError, match=r"another config: .*steps is 2 there and 5 here.*another folder \(--out\)"):
        other.enter()


def test_a_name_that_means_something_else_by_now_is_refused(tmp_path: Path) -> None:
    mini_plan(tmp_path, [], named={"mine": ["rollout.turns=5"]}).enter()
    with pytest.raises(RunError, match=r"in the variant 'mine': config\.rollout\.turns is 5 there and 6 here"):
        mini_plan(tmp_path, [], named={"mine": ["rollout.turns=6"]}).enter()


def test_variants_and_seeds_can_be_added(tmp_path: Path) -> None:
    mini_plan(tmp_path, ["full"]).enter()
    mini_plan(tmp_path, ["static_judge"], seeds=(5,)).enter()
    plan = mini_plan(tmp_path, ["full", "static_judge"])
    assert [read_variant(tmp_path, variant.name) for variant in plan.variants] == list(plan.variants)


def test_a_plan_survives_its_file(tmp_path: Path, base: Config) -> None:
    plan = make_plan(base, [0], tmp_path, named={}, only=[])
    plan.enter()
    for variant in plan.variants:
        assert read_variant(tmp_path, variant.name) == variant
    assert parse(base.model_dump(mode="json")) == base
