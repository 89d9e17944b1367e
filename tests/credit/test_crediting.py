"""From settings to a rule: each kind makes what it says, what cannot work is refused before a token is sampled, and replays are exact."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from stepwell.build import build
from stepwell.config import Config, CreditConfig
from stepwell.configure import load
from stepwell.credit import (
    GAE,
    Adaptive,
    Centred,
    Counterfactual,
    GiGPO,
    IStar,
    LeaveOneOut,
    MinForm,
    OutcomeOnly,
    Prime,
    ProcessSupervision,
    ProcessToGo,
    Raw,
    ReinforcePlusPlus,
    RePIRL,
    Standardised,
    SuffixLogRatio,
    Whitened,
    needs_of,
)
from stepwell.crediting import replayer, rule_of
from stepwell.envs.cave import Cave, CaveDomain
from stepwell.errors import ConfigError
from stepwell.protocols import Domain, Environment, Saveable
from stepwell.rewards.outcome import OutcomeReward
from stepwell.seeding import derive
from stepwell.trainer import Trainer
from stepwell.types import (
    Action,
    Credited,
    Ending,
    EndingKind,
    Episode,
    Group,
    Invalid,
    Observation,
    Reply,
    Scored,
    Stop,
    Task,
    Tool,
    Turn,
    Verdict,
)

SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "layers=1", "corpus_tasks=6", "max_length=96", "vocabulary=256")),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=3", "turns=3", "max_tokens=6")),
    *("domain.kind=test_crediting:Chance", "cloning.steps=0", "evaluation.every=0", "steps=2"),
)
ENVIRONMENT = ("reward.kind=environment", "reward.pay=score")


class Roulette:
    """Whatever is said is a move; what it is worth, and whether it is the last, lies in the text. States are numbers of moves."""

    tools: tuple[Tool, ...] = (Tool("say", "Say a word.", {"type": "object", "properties": {"word": {"type": "string"}}}),)

    def __init__(self) -> None:
        self.said: list[str] = []

    def start(self) -> Observation:
        return Observation("say a word", "0")

    def step(self, action: Action | Invalid) -> Reply:
        self.said.append(action.text if isinstance(action, Invalid) else action.name)
        luck = derive(*self.said) % 8
        return Reply(Observation("say more", str(len(self.said))), reward=luck / 8, done=luck == 0)


class Chance:
    """A domain in which even a policy that knows nothing has better and worse episodes."""

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        return Task(f"{split}/{seed}", "say words", difficulty, split)

    def tasks(self, split: str) -> Sequence[Task]:
        return [] if split == "train" else [self.task(0.5, seed, split) for seed in range(4)]

    def environment(self, task: Task, member: int) -> Environment:
        return Roulette()

    def grade(self, episode: Episode) -> Verdict:
        return Verdict.of(float(derive(*(turn.text for turn in episode.turns)) % 2))

    def expert(self, task: Task) -> Sequence[Action]:
        return [Action("say", {"word": "word"})]


class Blind(Chance):
    """The same without states."""

    def environment(self, task: Task, member: int) -> Environment:
        return Blindfolded()


class Blindfolded(Roulette):
    """One whose observations have no state_key."""

    def start(self) -> Observation:
        return Observation("say a word")


def config(*settings: str) -> Config:
    return load("smoke", [*SMALL, *settings])


SETTINGS: dict[str, object] = {
    "credit.kind=grpo": OutcomeOnly(Standardised()),
    "credit.kind=drgrpo": OutcomeOnly(Centred()),
    "credit.kind=rloo": OutcomeOnly(LeaveOneOut()),
    "credit.kind=rloo credit.scale=batch": OutcomeOnly(LeaveOneOut(), "batch"),
    "credit.kind=reinforce_pp credit.discount=0.9 credit.alpha=0.5": ReinforcePlusPlus(0.5, 0.9),
    "credit.kind=reinforce_pp_baseline": Whitened(OutcomeOnly(Centred())),
    "credit.kind=istar credit.alpha=0.2 credit.baseline=raw credit.noise_floor=0.01 credit.only_mixed=false": IStar(
        Raw(), 0.2, Standardised(noise_floor=0.01), False
    ),
    "credit.kind=process_to_go credit.discount=0.5": ProcessToGo(LeaveOneOut(), 1.0, discount=0.5),
    "credit.kind=process_to_go credit.baseline=none": ProcessToGo(None),
    "credit.kind=process_supervision": ProcessSupervision(None, 1.0, Standardised(noise_floor=1e-4)),
    "credit.kind=prime": Whitened(Prime()),
    "credit.kind=prime credit.whiten=false credit.form=released credit.unit=largest_return": Prime(form="released", unit="largest_return"),
    "credit.kind=repirl": Whitened(RePIRL(0.05)),
    "credit.kind=repirl credit.whiten=false credit.alone=raw credit.alpha=0.1": RePIRL(0.1, alone="raw"),
    "credit.kind=gigpo credit.step_baseline=rloo credit.pays=both": GiGPO(Standardised(), 1.0, LeaveOneOut(), 0.95, "both"),
    "credit.kind=min_form credit.temperature=0": MinForm(LeaveOneOut(), 1.0, 0.0),
    "credit.kind=min_form credit.baseline=none": MinForm(None),
    "credit.kind=suffix credit.beta=0.02 credit.since=last": SuffixLogRatio(Standardised(), 0.02, "last"),
    "credit.kind=gae": Whitened(GAE()),
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_make_the_rule_that_they_name(settings: str) -> None:
    assert rule_of(config(*ENVIRONMENT, *settings.split()), CaveDomain()) == SETTINGS[settings]


@pytest.mark.parametrize("kind", ["istar", "process_to_go", "process_supervision", "prime", "repirl", "min_form"])
def test_trust_is_one_setting_of_every_judged_rule(kind: str) -> None:
    fixed = rule_of(config(f"credit.kind={kind}"), CaveDomain())
    mixed = rule_of(config(f"credit.kind={kind}", "credit.mix=adaptive"), CaveDomain())
    if isinstance(fixed, Whitened):
        assert mixed == Whitened(Adaptive(fixed.rule))
    else:
        assert isinstance(fixed, IStar | ProcessToGo | ProcessSupervision | MinForm)
        assert mixed == Adaptive(fixed)
    assert "confidence" in needs_of(mixed)


KINDS = sorted(
    {kind for model in get_args(get_args(CreditConfig)[0]) for kind in get_args(get_args(model)[0].model_fields["kind"].annotation)}
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_trains(kind: str) -> None:
    """Its advantages reach the gradient."""
    made = build(config(*ENVIRONMENT, f"credit.kind={kind}"))
    results = list(made.trainer.run())
    assert max(result.metrics["credit/advantage_abs"] for result in results) > 0
    assert max(result.metrics["policy/grad_norm"] for result in results) > 0


def test_the_suffix_has_its_reference_and_the_policy_is_it_at_the_start() -> None:
    made = build(config(*ENVIRONMENT, "credit.kind=suffix", "credit.beta=1", "optimizer.lr=0.05"))
    first, second = made.trainer.run()
    assert {"policy", "reference"} <= set(made.trainer.models())
    assert _process(first.groups) == pytest.approx(0.0, abs=1e-6)
    assert _process(second.groups) > 1e-4


def _process(groups: Sequence[Group[Credited]]) -> float:
    return max(float(np.abs(member.parts["process"]).max(initial=0.0)) for group in groups for member in group.members)


def test_steps_are_tokens_where_the_credit_says_so() -> None:
    made = build(config(*ENVIRONMENT, "credit.kind=prime", "credit.level=token"))
    members = [member for group in next(iter(made.trainer.run())).groups for member in group.members]
    assert all(len(member.advantages_S) == member.scored.episode.num_tokens for member in members)


REFUSED = {
    "credit.kind=prime reward.kind=outcome": "credit.kind is 'prime', which reads step rewards, and reward 'outcome' gives none",
    "credit.kind=process_to_go reward.kind=outcome": "credit.kind is 'process_to_go', which reads step rewards",
    "credit.kind=gigpo credit.pays=both reward.kind=outcome": "credit.kind is 'gigpo', which reads step rewards",
    "credit.kind=istar credit.mix=adaptive reward.kind=environment": "credit.mix is 'adaptive', and reward 'environment' does not say",
    "credit.kind=repirl rollout.group_size=1": "rollout.group_size is 1; credit 'repirl' leaves one out and needs at least 2",
    "credit.kind=gigpo rollout.group_size=1": "rollout.group_size is 1; a group of one has nothing to be compared with",
    "credit.kind=gae credit.outcome_weight=0 reward.kind=outcome": "reward 'outcome' gives no step rewards: nothing would be paid",
    "credit.kind=counterfactual reward.kind=test_crediting:Mute": "is your own: what the end of a replay is paid",
    "credit.kind=prime credit.level=token reward.kind=test_crediting:Mute": "credit.level is 'token', but reward",
    "credit.kind=counterfactual loss.overlong_limit=10 loss.overlong_buffer=5": "whose replays are not charged",
    "credit.kind=grpo credit.scale=batch": "credit.scale is 'batch' and credit.kind 'grpo', which divides by the group's deviation",
    "credit.kind=suffix credit.mix=adaptive": "mix",
    "credit.kind=min_form credit.temperature=-1": "credit.temperature",
    "credit.kind=gigpo credit.pays=outcomes": "credit.pays",
}


@pytest.mark.parametrize("settings", REFUSED)
def test_what_cannot_work_is_said_by_the_config(settings: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(*settings.split())
    assert REFUSED[settings] in str(refused.value)


def test_the_measurement_of_speed_knows_every_rule() -> None:
    """bench/credit.py, on a few episodes."""
    script = Path(__file__).parents[2] / "bench" / "credit.py"
    said = subprocess.run(
        [sys.executable, script, "--episodes", "16", "--rows", "2", "--repeats", "1", "--json"], capture_output=True, text=True, check=True
    )
    found = json.loads(said.stdout)
    assert set(KINDS) <= set(found["credit_s"])
    assert found["rows_s"] > 0 and all(seconds > 0 for seconds in found["credit_s"].values())


@pytest.mark.parametrize(
    "settings",
    ["credit.kind=istar credit.mix=adaptive credit.only_mixed=false", "credit.kind=suffix credit.beta=1"],
    ids=["trust", "reference"],
)
def test_a_resumed_run_credits_as_the_uninterrupted_one(settings: str, tmp_path: Path) -> None:
    """What a rule needs over steps is in the checkpoint: the judge's confidence, the reference."""
    asked = config(
        "reward.kind=implicit", "reward.judged=all", "reward.lr=0.01", "optimizer.lr=0.01", "steps=4", "seed=1", *settings.split()
    )
    whole = [result.metrics for result in build(asked).trainer.run()]
    first = build(asked).trainer
    running = first.run()
    next(running), next(running)
    for name, model in first.models().items():
        model.save(tmp_path / name)
    second = build(asked).trainer

    def loaded(models: Mapping[str, Saveable]) -> None:
        for name, model in models.items():
            model.load(tmp_path / name)

    second.restore(first.state(), loaded)
    for resumed, uninterrupted in zip((result.metrics for result in second.run()), whole[2:], strict=True):
        names = [name for name in uninterrupted if not name.startswith("time/")]
        assert {name: repr(resumed[name]) for name in names} == {name: repr(uninterrupted[name]) for name in names}
    assert any(metrics["credit/process_abs"] > 0 for metrics in whole[2:])


def test_groups_of_one_are_welcome_where_nothing_is_compared_within_them() -> None:
    made = build(config(*ENVIRONMENT, "credit.kind=reinforce_pp", "rollout.group_size=1", "rollout.groups=6"))
    assert next(iter(made.trainer.run())).metrics["credit/lone_groups"] == 6.0


class Mute:
    """A reward of the user's without confidence."""

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        return OutcomeReward().score(groups)


class Trusting:
    """A rule of the user's that needs a confidence."""

    needs = frozenset({"confidence"})

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        return OutcomeOnly()(groups)


class Misspelt(Trusting):
    """One that asks for what there is not."""

    needs = frozenset({"refrence"})


class Leaving(Trusting):
    """One that needs a reference."""

    needs = frozenset({"reference", "old_logprobs"})

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        assert all(m.ref_logprobs_T is not None and m.old_logprobs_T is not None for group in groups for m in group.members)
        return OutcomeOnly()(groups)


def test_a_rule_of_ones_own_gets_what_it_says_it_needs_or_is_refused() -> None:
    made = build(config(*ENVIRONMENT, "credit.kind=test_crediting:Leaving"))
    assert len(list(made.trainer.run())) == 2
    with pytest.raises(ConfigError, match=r"needs a judge that says how far to trust it, and reward\.kind 'environment' does not"):
        build(config(*ENVIRONMENT, "credit.kind=test_crediting:Trusting"))
    with pytest.raises(ConfigError, match=r"whose needs name 'refrence'; did you mean 'reference'\? Known: confidence, old_logprobs,"):
        build(config(*ENVIRONMENT, "credit.kind=test_crediting:Misspelt"))


def test_a_trainer_without_the_reference_that_its_rule_needs_is_refused() -> None:
    made = build(config(*ENVIRONMENT, "credit.kind=grpo")).trainer
    with pytest.raises(ConfigError, match=r"The credit rule needs log-probs under a reference, and there is none; set Parts\.reference"):
        Trainer(made.parts._replace(assign=SuffixLogRatio()), seed=0, cloning=None, learning=made.learning)


def test_a_domain_without_states_has_none_to_compare_in() -> None:
    with pytest.raises(ConfigError, match=r"credit\.kind is 'gigpo', .* has no state_key; choose a domain"):
        build(config("credit.kind=gigpo", "domain.kind=test_crediting:Blind"))


# -- replays ------------------------------------------------------------------------------------------------------------------

CAVE = Cave(("hall", "pit", "vault"), ((1, 2), (2, None), (None, None)), (0.0, 0.3, 1.0))


def walk(*actions: str, domain: Domain | None = None) -> Episode:
    """An episode of these actions."""
    domain, task = domain or CaveDomain(), CAVE.task("cave/test")
    environment = domain.environment(task, 0)
    start = environment.start()
    turns: list[Turn] = []
    for name in actions:
        reply = environment.step(Action(name))
        turns.append(Turn(np.array([1]), np.array([2]), np.array([-1.0]), f"{name}[]", Action(name), reply, Stop.EOS, 0))
    ending = Ending(EndingKind.TERMINATED if turns[-1].reply.done else EndingKind.TURN_LIMIT)
    episode = Episode(task, 0, start, tuple(turns), ending, Verdict.unscored("not yet"))
    return replace(episode, verdict=domain.grade(episode))


def test_without_a_turn_the_rest_is_played_from_the_start() -> None:
    """left, left, stop ends in the vault (1). Without either left it is the pit (0.3); without stop nothing is kept."""
    episode = walk("left", "left", "stop")
    replay = replayer(CaveDomain(), "score")
    assert episode.verdict.score == 1.0
    assert [replay(episode, turn) for turn in range(3)] == [0.3, 0.3, 0.0]
    assert [replayer(CaveDomain(), "success")(episode, turn) for turn in range(3)] == [0.0, 0.0, 0.0]


def test_what_follows_an_earlier_end_is_not_played() -> None:
    """right, stop leaves the hall for the vault; without the move, stop ends at once, and without nothing is different."""
    episode = walk("right", "left", "stop")
    assert [replayer(CaveDomain(), "score")(episode, turn) for turn in range(3)] == [0.3, 1.0, 0.0]


class Door(Chance):
    """Opening the door ends it, unless it is locked; nothing may be done behind it."""

    def environment(self, task: Task, member: int) -> Environment:
        return Hall()

    def grade(self, episode: Episode) -> Verdict:
        return Verdict.of(1.0 / len(episode.turns) if episode.turns[-1].reply.done else 0.0)


class Hall(Roulette):
    """In front of the door."""

    def step(self, action: Action | Invalid) -> Reply:
        assert isinstance(action, Action) and "out" not in self.said
        locked = self.said.count("lock") > self.said.count("unlock")
        self.said.append("out" if action.name == "open" and not locked else action.name)
        return Reply(Observation("a hall"), done=self.said[-1] == "out")


def test_an_end_that_comes_earlier_is_the_end() -> None:
    """lock, open, unlock, open: without the lock the first open ends it."""
    episode = walk("lock", "open", "unlock", "open", domain=Door())
    assert [replayer(Door(), "score")(episode, turn) for turn in range(4)] == pytest.approx([1.0, 1 / 3, 0.0, 0.0])


class Patient(Door):
    """Where the turns run out a quarter is paid."""

    def grade(self, episode: Episode) -> Verdict:
        return Verdict.of({EndingKind.TERMINATED: 1.0, EndingKind.TURN_LIMIT: 0.25}[episode.ending.kind])


def test_what_does_not_end_without_the_turn_is_graded_as_out_of_turns() -> None:
    episode = walk("lock", "open", "unlock", "open", domain=Patient())
    assert [replayer(Patient(), "score")(episode, turn) for turn in range(4)] == [1.0, 1.0, 0.25, 0.25]


class Moody(Chance):
    """A domain whose worlds fail."""

    def environment(self, task: Task, member: int) -> Environment:
        raise OSError("the server is gone")


def test_a_world_that_fails_leaves_the_turn_unknown() -> None:
    assert replayer(Moody(), "score")(walk("left", "stop"), 0) is None


def test_counterfactual_credit_of_a_walk() -> None:
    """The detour by the pit is needed by nobody: right alone would have done. As it was walked, each left is worth 0.7."""
    episode = walk("left", "left", "stop")
    scored = OutcomeReward("score").score([Group(episode.task, (episode, walk("stop")))])
    parts = Counterfactual(replayer(CaveDomain(), "score"), Centred())(scored)[0].members
    assert parts[0].parts["process"].tolist() == pytest.approx([0.7, 0.7, 1.0])
    assert parts[1].parts["process"].tolist() == [0.0]
