"""The critic: asked where decisions are made, taught what came of them, and right in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from builders import make_task
from exact_expectations import World, cave_world
from speakers import Script, Scripted, ids, toy_speaker

from stepwell.credit import Segment, by_token, by_turn
from stepwell.credit.gae import GAE
from stepwell.engine.local import Text
from stepwell.engine.table import TableEngine, TableModel
from stepwell.errors import CapabilityError, ConfigError
from stepwell.protocols import Capabilities, Loss, ModelSpec, OptimizerSpec, RewardLearner, Saveable
from stepwell.rewards.critic import Critic, CriticSettings, check_values
from stepwell.rewards.outcome import EnvironmentReward, OutcomeReward
from stepwell.rollout import rollout
from stepwell.seeding import derive
from stepwell.testing import check_reward
from stepwell.types import (
    JSON,
    Action,
    Ending,
    EndingKind,
    Episode,
    Group,
    Ids,
    Metrics,
    Observation,
    Reply,
    Row,
    Scored,
    Stop,
    Turn,
    Verdict,
)

PLAIN = GAE()
DESCENT = OptimizerSpec(kind="sgd", max_grad_norm=1e9)
SETTINGS = CriticSettings(lr=1.0, updates=1, clip=None)


def table_critic(optimizer: OptimizerSpec = DESCENT) -> TableModel:
    engine = TableEngine(3, Text(str, frozenset({2})))
    engine.model("policy", ModelSpec())
    return engine.model("critic", ModelSpec(kind="head", of="policy", optimizer=optimizer))


def value(critic: TableModel, context: Ids) -> float:
    """What the table holds for exactly this context."""
    return float(critic.logits([np.asarray(context, np.int64).tobytes()])[0, 0].detach())


def episode(
    *turns: tuple[Ids, Ids, float], kind: EndingKind = EndingKind.TERMINATED, score: float | None = 1.0, member: int = 0
) -> Episode:
    """Turns by hand: context, sampled tokens, the environment's reward."""
    made = [Turn(c, t, np.zeros(len(t)), "a", Action("a"), Reply(Observation(""), reward), Stop.EOS, 0) for c, t, reward in turns]
    verdict = Verdict.unscored("as the test says") if score is None or kind is EndingKind.FAILED else Verdict.of(score)
    return Episode(make_task(), member, Observation(""), tuple(made), Ending(kind, "as the test says"), verdict)


TWO = ((ids(1, 1), ids(0, 2), 0.25), (ids(1, 1, 0, 2, 7, 8), ids(1, 2), 0.5))
STATES = (ids(1, 1), ids(1, 1, 0, 2), ids(1, 1, 0, 2, 7, 8), ids(1, 1, 0, 2, 7, 8, 1, 2))
"""Before and after each of the two turns."""


def group(*members: Episode) -> Group[Episode]:
    return Group(make_task(), members)


def taught(reward: Critic, groups: Sequence[Group[Episode]], times: int) -> list[Group[Scored]]:
    for _ in range(times):
        reward.learn(reward.score(groups))
    return reward.score(groups)


# -- where it is asked, and what it is taught -----------------------------------------------------------------------------------


def test_states_by_hand() -> None:
    """Rewards .25 and .5, outcome 1: worth 1.75 before the first turn, 1.5 between the turns (asked on both sides of what the
    environment says), and 0 when all is paid."""
    critic = table_critic()
    reward = Critic(EnvironmentReward("score"), critic, PLAIN, SETTINGS)
    (scored,) = taught(reward, [group(episode(*TWO))], 60)[0].members
    expected = [1.75, 1.5, 1.5, 0.0]
    assert [value(critic, context) for context in STATES] == pytest.approx(expected, abs=1e-6)
    assert scored.values_S == pytest.approx(np.array([1.75, 1.5]), abs=1e-6)
    assert scored.final_value == pytest.approx(0.0, abs=1e-6)
    (credited,) = PLAIN([Group(make_task(), (scored,))])[0].members
    assert credited.advantages_S == pytest.approx(np.zeros(2), abs=1e-5)


def test_tokens_as_steps_by_hand() -> None:
    """Inside a turn every state is asked once."""
    critic = table_critic()
    reward = Critic(EnvironmentReward("score", by_token), critic, GAE(discount=0.5), SETTINGS)
    (scored,) = taught(reward, [group(episode(*TWO))], 110)[0].members
    returns = np.array([0.5 * (0.25 + 0.5 * 0.75), 0.25 + 0.5 * 0.75, 0.5 * 1.5, 1.5])
    assert scored.values_S == pytest.approx(returns, abs=1e-6)
    assert value(critic, ids(1, 1, 0)) == pytest.approx(returns[1], abs=1e-6)
    assert value(critic, STATES[1]) == pytest.approx(returns[2], abs=1e-6), "what is still to come, not discounted by anything said since"


def test_a_cut_episode_bootstraps_from_what_others_got_there() -> None:
    """What comes after a cut is no target; the state there learns from those that went on."""
    whole, cut = episode(*TWO), episode(TWO[0], kind=EndingKind.TRUNCATED, score=0.0, member=1)
    critic = table_critic()
    reward = Critic(EnvironmentReward("score"), critic, PLAIN, SETTINGS)
    found = taught(reward, [group(whole, cut)], 100)[0].members
    assert found[1].final_value == pytest.approx(1.5, abs=1e-6)
    assert value(critic, STATES[0]) == pytest.approx(1.75, abs=1e-6), "the outcome of the cut one, 0, is not held against it"
    graded = Critic(EnvironmentReward("score"), table_critic(), GAE(truncated="graded"), SETTINGS)
    found = taught(graded, [group(whole, cut)], 100)[0].members
    assert found[1].values_S == pytest.approx(np.array([(1.75 + 0.25) / 2]), abs=1e-6)
    assert found[1].final_value == pytest.approx((1.5 + 0.0) / 2, abs=1e-6)
    alone = Critic(EnvironmentReward("score"), table_critic(), PLAIN, SETTINGS)
    metrics = alone.learn(alone.score([group(cut)]))
    assert metrics["critic/return"] == 0.25, "what was paid before the cut, and 0 for what a fresh critic expects"


@dataclass
class Recorded:
    """Rows of each `backward`."""

    rows: list[list[Row]] = field(default_factory=list)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    found, real = Recorded(), TableModel.backward

    def backward(self: TableModel, rows: Sequence[Row], loss: Loss) -> Metrics:
        found.rows.append(list(rows))
        return real(self, rows, loss)

    monkeypatch.setattr(TableModel, "backward", backward)
    yield found


def test_targets_are_made_with_the_values_that_credit_saw(recorded: Recorded) -> None:
    """Old values and returns stay those of the scoring over all updates; every known state has the same weight."""
    whole = episode(*TWO)
    cut = episode(TWO[0], kind=EndingKind.TRUNCATED, score=0.0, member=1)
    reward = Critic(OutcomeReward(), table_critic(), GAE(lam=0.5), replace(SETTINGS, lr=0.1, updates=3))
    reward.learn(reward.score([group(whole)]))
    scored = reward.score([group(whole, cut)])
    v = [member.values_S for member in scored[0].members]
    assert v[0] is not None and v[1] is not None and v[0].all()
    recorded.rows.clear()
    reward.learn(scored)
    assert len(recorded.rows) == 3
    final = scored[0].members[1].final_value
    assert final is not None
    last = 1.0
    first = 0.5 * v[0][1] + 0.5 * last
    for one, two in recorded.rows:
        assert one.returns == pytest.approx(np.array([first, last, last, 0.0]))
        assert one.old_values[[0, 2]] == pytest.approx(v[0])
        assert two.returns[0] == pytest.approx(final)
        assert two.old_values[1] == pytest.approx(final)
        assert one.weight == pytest.approx(np.full(4, 1 / 5)) and two.weight == pytest.approx(np.array([1 / 5, 0.0]))


def test_values_move_no_further_than_the_clip_on_one_batch() -> None:
    critic = table_critic()
    reward = Critic(OutcomeReward(), critic, PLAIN, CriticSettings(lr=0.1, updates=100, clip=0.2))
    metrics = reward.learn(reward.score([group(episode(*TWO))]))
    moved = [value(critic, context) for context in STATES[:3]]
    assert all(0.2 < v < 0.2 + 0.1 for v in moved), "held once they are beyond it"
    assert metrics["critic/clip_share"] == 0.75
    reward.learn(reward.score([group(episode(*TWO))]))
    assert all(v > 0.39 for v in (value(critic, context) for context in STATES[:3])), "the next batch starts from the new values"


def test_what_counts_nowhere_teaches_nothing() -> None:
    lost = [
        episode(*TWO, kind=EndingKind.FAILED),
        episode(*TWO, score=None, member=1),
        replace(episode(*TWO, member=2), turns=()),
    ]
    critic = table_critic()
    reward = Critic(EnvironmentReward("score"), critic, PLAIN, SETTINGS)
    scored = reward.score([group(*lost)])
    assert [member.values_S is None for member in scored[0].members] == [True, False, False]
    assert scored[0].members[2].final_value is None
    metrics = reward.learn(scored)
    assert critic.version == 0
    assert not any(name.startswith("critic/") for name in metrics)
    mixed = [group(*lost, episode(*TWO, member=3))]
    reward.learn(reward.score(mixed))
    alone = Critic(EnvironmentReward("score"), table_critic(), PLAIN, SETTINGS)
    alone.learn(alone.score([group(episode(*TWO))]))
    assert [value(critic, c) for c in STATES] == [value(alone._model, c) for c in STATES]  # type: ignore[arg-type]


def test_what_is_reported_was_measured_before_learning() -> None:
    won, lost = episode(*TWO), episode((ids(5), ids(0, 2), 0.0), score=0.0, member=1)
    reward = Critic(OutcomeReward(), table_critic(), PLAIN, SETTINGS)
    first = reward.learn(reward.score([group(won, lost)]))
    assert first["critic/explained_variance"] == 0.0, "a fresh critic says 0 everywhere"
    assert first["critic/value"] == 0.0 and first["critic/return"] == pytest.approx(2 / 3)
    scored = reward.score([group(won, lost)])
    values = np.concatenate([m.values_S for m in scored[0].members if m.values_S is not None])
    second = reward.learn(scored)
    returns = np.array([1.0, 1.0, 0.0])
    assert second["critic/explained_variance"] == pytest.approx(1 - (returns - values).var() / returns.var())
    assert second["critic/value"] == pytest.approx(values.mean())
    assert second["critic/loss"] < first["critic/loss"]
    flat = reward.learn(reward.score([group(won)]))
    assert "critic/explained_variance" not in flat, "nothing varies"


# -- right in the end -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cave() -> World:
    return cave_world(turns=2, spread=1.5, seed=2)


def true_values(here: World, counts: Sequence[int]) -> dict[bytes, float]:
    """What a policy that acts in these proportions can expect where it has seen this context, from the list of all that can happen."""
    paid: dict[bytes, list[float]] = {}
    for made, n in zip(here.episodes, counts, strict=True):
        for turn in made.turns:
            total = paid.setdefault(turn.context_ids.tobytes(), [0.0, 0.0])
            total[0] += n * float(made.verdict.score or 0.0)
            total[1] += n
    return {context: worth / n for context, (worth, n) in paid.items()}


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_values_of_a_fixed_policy_are_found(cave: World, lam: float) -> None:
    """Whatever lambda, they approach the true ones: of a policy that has every episode that can happen as often as 100 x its
    probability says, and at least once."""
    counts = [max(round(100 * p), 1) for p in cave.probabilities]
    groups = [Group(cave.task, tuple(episode for episode, n in zip(cave.episodes, counts, strict=True) for _ in range(n)))]
    critic = table_critic(OptimizerSpec(max_grad_norm=1e9))
    reward = Critic(OutcomeReward("score"), critic, GAE(lam=lam), CriticSettings(lr=0.1, updates=6, clip=None))
    taught(reward, groups, 12)
    true = true_values(cave, counts)
    assert len(true) == 3 and max(true.values()) - min(true.values()) > 0.12
    for context, worth in true.items():
        assert value(critic, np.frombuffer(context, np.int64)) == pytest.approx(worth, abs=0.01)


def coin(task: object, member: int) -> Script:
    """The start says how likely a success is (a: 1 in 5, c: 4 in 5); the answer to the first turn says which it will be."""
    luck = derive("coin", str(task), member) % 5
    easy = derive("start", str(task)) % 2 == 0
    return Script("c" if easy else "a", ["ab" if luck < (4 if easy else 1) else "bc", "b"])


def won(made: Episode) -> Verdict:
    return Verdict.of(float(made.turns[0].reply.observation.text == "ab"))


COINS = Scripted(coin, won)


@pytest.mark.parametrize(("trunk", "updates", "explained"), [("own", 50, 0.5), ("shared", 20, 0.1)])
def test_a_language_model_learns_what_states_are_worth(trunk: str, updates: int, explained: float) -> None:
    """Measured on episodes that it has not seen. A probe of the hidden states of an untrained policy knows less than a trunk of its own."""
    speaker = toy_speaker(turns=2)
    policy = speaker.engine.model("policy", ModelSpec())
    critic = speaker.engine.model("critic", ModelSpec(kind="head", of="policy", trunk=trunk))  # type: ignore[arg-type]
    reward = Critic(OutcomeReward(), critic, PLAIN, CriticSettings(lr=5e-3 if trunk == "own" else 0.1, updates=updates, clip=None))

    def play(seed: int) -> list[Group[Episode]]:
        tasks = [COINS.task(0.5, 100 * seed + g, "train") for g in range(12)]
        return rollout(COINS, tasks, policy.snapshot(), speaker.player, group_size=4, seed=(seed,))

    assert reward.learn(reward.score(play(0)))["critic/explained_variance"] == 0.0
    fresh = reward.score(play(1))
    members = [member for group in fresh for member in group.members]
    assert reward.learn(fresh)["critic/explained_variance"] > explained
    if trunk == "shared":
        return
    values = np.array([member.values_S for member in members])
    ends = np.array([member.outcome for member in members])
    easy = np.array([member.episode.start.text == "c" for member in members])
    assert values[easy, 0].mean() == pytest.approx(0.8, abs=0.2)
    assert values[~easy, 0].mean() == pytest.approx(0.2, abs=0.2)
    assert np.abs(values[:, 1] - ends).mean() < 0.15, "the answer to the first turn has told"


# -- around a judge -------------------------------------------------------------------------------------------------------------


@dataclass
class Judge:
    """A reward that learns, and notes what happens."""

    said: list[str] = field(default_factory=list)
    learnt: int = 0

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        self.said.append("score")
        made = EnvironmentReward("score").score(groups)
        bonus = float(self.learnt)

        def scored(member: Scored) -> Scored:
            return replace(member, rewards={"judge": np.where(member.scored_S, bonus, 0.0)})

        return [Group(g.task, tuple(map(scored, g.members))) for g in made]

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        self.said.append("learn")
        self.learnt += 1
        return {"judge/loss": float(self.learnt)}

    def models(self) -> dict[str, Saveable]:
        return {"judge": table_critic()}

    def state(self) -> dict[str, JSON]:
        return {"learnt": self.learnt}

    def restore(self, state: dict[str, JSON]) -> None:
        learnt = state["learnt"]
        assert isinstance(learnt, int)
        self.learnt = learnt


@pytest.mark.parametrize(("order", "said", "bonus"), [("after", ["score", "learn"], 0.0), ("before", ["score", "learn", "score"], 1.0)])
def test_the_judge_learns_when_it_wants_and_the_critic_always_after(order: str, said: list[str], bonus: float) -> None:
    judge, critic = Judge(), table_critic()
    reward = Critic(judge, critic, PLAIN, replace(SETTINGS, inner_learns=order))  # type: ignore[arg-type]
    scored = reward.score([group(episode(*TWO))])
    member = scored[0].members[0]
    assert member.values_S is not None and not member.values_S.any() and critic.version == 0
    assert member.rewards["judge"].tolist() == [bonus, bonus]
    metrics = reward.learn(scored)
    assert judge.said == said
    assert metrics["judge/loss"] == 1.0 and metrics["critic/return"] == pytest.approx(np.mean([1 + 2 * bonus, 1 + bonus]))


def test_all_weights_and_state_are_handed_on() -> None:
    judge, critic = Judge(learnt=3), table_critic()
    reward = Critic(judge, critic, PLAIN, SETTINGS)
    assert isinstance(reward, RewardLearner)
    assert set(reward.models()) == {"critic", "judge"} and reward.models()["critic"] is critic
    assert reward.state() == {"learnt": 3}
    other = Judge()
    Critic(other, table_critic(), PLAIN, SETTINGS).restore(reward.state())
    assert other.learnt == 3
    plain = Critic(OutcomeReward(), critic, PLAIN, SETTINGS)
    assert plain.state() == {} and set(plain.models()) == {"critic"}
    plain.restore({})


@pytest.mark.parametrize("segment", [by_turn, by_token])
def test_it_keeps_the_promises_of_a_reward(cave: World, segment: Segment) -> None:
    reward = Critic(EnvironmentReward("score", segment), table_critic(), PLAIN, SETTINGS)
    groups = [Group(cave.task, tuple(replace(episode, member=n) for n, episode in enumerate(cave.episodes[:4])))]
    check_reward(reward, groups)
    reward.learn(reward.score(groups))
    check_reward(reward, groups)


# -- bad input ------------------------------------------------------------------------------------------------------------------


def test_what_cannot_work_is_said() -> None:
    with pytest.raises(CapabilityError, match=r"needs a model with a scalar head, and this engine has only full, lora.*credit\.kind=rloo"):
        check_values(Capabilities(kinds=frozenset({"full", "lora"}), entropy=True, values=False))
    check_values(TableEngine(3, Text(str, frozenset())).capabilities)
    with pytest.raises(ConfigError, match="OutcomeReward does not learn, so it cannot learn before it scores"):
        Critic(OutcomeReward(), table_critic(), PLAIN, replace(SETTINGS, inner_learns="before"))
    for settings, match in (({"lr": 0.0}, "lr is 0.0"), ({"lr": float("nan")}, "lr is nan"), ({"updates": 0}, "updates are 0")):
        with pytest.raises(ConfigError, match=match):
            CriticSettings(**settings)
    reward = Critic(OutcomeReward(), table_critic(), PLAIN, SETTINGS)
    scored = reward.score([group(episode(*TWO))])
    reward.score([group(episode(*TWO))])
    with pytest.raises(ConfigError, match="score and learn the same groups"):
        reward.learn(scored)
