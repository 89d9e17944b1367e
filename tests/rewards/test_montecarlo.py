"""Monte Carlo estimates: unbiased at either budget, exact where all can be listed, and counted in episodes and tokens."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from builders import make_episode, make_task
from exact_expectations import World, cave_world

from stepwell.credit import by_token, by_turn
from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET
from stepwell.engine.local import Text
from stepwell.engine.spoken import SpokenTokenizer
from stepwell.engine.table import TableEngine
from stepwell.envs.cave import CaveDomain
from stepwell.errors import ConfigError
from stepwell.protocols import ModelSpec, OptimizerSpec, RewardLearner
from stepwell.rewards.fitted import HeadReader
from stepwell.rewards.montecarlo import MonteCarlo, MonteCarloReward, MonteCarloSettings
from stepwell.rollout import Limits, Player, Prefix, continued
from stepwell.testing import check_reward
from stepwell.types import Action, Ending, EndingKind, Episode, Floats, Group, Observation, Reply, Sampling, Scored, Stop, Turn, Verdict

Draws = Mapping[tuple[int, int], float | None]


@dataclass
class Told:
    """Continuations whose pay is told: (kept tokens, draw) -> score, None for one that fails. They take `turns` turns in all."""

    pays: Draws
    turns: int = 4
    asked: list[Prefix] = field(default_factory=list)

    def __call__(self, prefixes: Sequence[Prefix]) -> list[Episode]:
        self.asked += prefixes
        return [self._one(prefix) for prefix in prefixes]

    def _one(self, prefix: Prefix) -> Episode:
        pay = self.pays[prefix.tokens, prefix.draw]
        return make_episode([1] * self.turns, score=0.0 if pay is None else pay, failed=pay is None)


def four_turns(score: float | None = 1.0) -> Group[Episode]:
    return Group(make_task(), (make_episode([1, 1, 1, 1], score=score),))


def estimates(go_on: Callable[[Sequence[Prefix]], list[Episode]], group: Group[Episode], **settings: object) -> Floats:
    """Of the first member; NaN where unknown. [P]"""
    places, _ = MonteCarlo(go_on, MonteCarloSettings(pay="score", **settings))([group])  # type: ignore[arg-type]
    return np.where(places[0][0].known, places[0][0].worth, np.nan)


# -- by hand and by listing ------------------------------------------------------------------------------------------------------


def test_a_step_is_worth_the_mean_of_what_follows() -> None:
    told = Told({(1, 0): 1.0, (1, 1): 0.0, (2, 0): 0.5, (2, 1): 1.0, (3, 0): 0.0, (3, 1): 0.0})
    assert estimates(told, four_turns(0.75), continuations=2)[1:].tolist() == [0.5, 0.75, 0.0, 0.75], "after the last step, its own outcome"
    assert estimates(told, four_turns(0.75), continuations=2, labels="hard")[1:].tolist() == [1.0, 1.0, 0.0, 1.0]
    assert {(prefix.tokens, prefix.draw) for prefix in told.asked} == set(told.pays)


def test_the_discount_is_for_turns_still_to_come() -> None:
    """Early steps are discounted more: the authors' code of AgentPRM has it the other way round."""
    told = Told({(tokens, 0): 1.0 for tokens in (0, 1, 2, 3)})
    worth = estimates(told, four_turns(), continuations=1, discount=0.5, form="progress")
    assert worth.tolist() == [0.125, 0.125, 0.25, 0.5, 1.0], "place 0 lies in turn 0 too: its discount begins with the turn"
    longer = replace(told, turns=6)
    assert estimates(longer, four_turns(), continuations=1, discount=0.5)[1:].tolist() == [0.5**5, 0.5**4, 0.5**3, 1.0]


@pytest.mark.parametrize("outcome", [0.0, 1.0])
@pytest.mark.parametrize(("budget", "num_first"), [("fixed", 3), ("adaptive", 1), ("adaptive", 2)])
def test_both_budgets_are_unbiased(budget: str, num_first: int, outcome: float) -> None:
    """The expectation over all answers that can come, by listing them: 3 open places, 3 draws at most at each."""
    chance = {1: 0.2, 2: 0.5, 3: 0.9}
    keys = [(tokens, draw) for tokens in chance for draw in range(3)]
    total, mean_asked = np.zeros(3), 0.0
    for pays in product((0.0, 1.0), repeat=len(keys)):
        told = Told(dict(zip(keys, pays, strict=True)))
        probability = np.prod([chance[tokens] if pay else 1 - chance[tokens] for (tokens, _), pay in zip(keys, pays, strict=True)])
        settings = {"budget": budget, "first": num_first} if budget == "adaptive" else {}
        total += probability * estimates(told, four_turns(outcome), continuations=3, **settings)[1:4]
        mean_asked += float(probability) * len(told.asked)
    assert total == pytest.approx(np.array([0.2, 0.5, 0.9]), abs=1e-12)
    assert mean_asked == pytest.approx(9) if budget == "fixed" else 3 * num_first < mean_asked < 9


def test_an_adaptive_budget_asks_where_the_neighbours_differ() -> None:
    """Won after steps 1 and 2, lost after step 3 and in the end: more is asked after step 2 alone, between a 1 and a 0."""
    told = Told({(1, 0): 1.0, (2, 0): 1.0, (3, 0): 0.0, (2, 1): 0.0, (2, 2): 0.0, (3, 1): 1.0, (3, 2): 1.0})
    estimates(told, four_turns(0.0), continuations=3, budget="adaptive", first=1)
    assert [(p.tokens, p.draw) for p in told.asked] == [(1, 0), (2, 0), (3, 0), (2, 1), (2, 2), (3, 1), (3, 2)]
    agreed = Told({(tokens, 0): 0.0 for tokens in (1, 2, 3)})
    estimates(agreed, four_turns(0.0), continuations=3, budget="adaptive", first=1)
    assert len(agreed.asked) == 3


def test_what_is_lost_is_counted_and_never_a_zero() -> None:
    told = Told({(1, 0): 1.0, (1, 1): None, (2, 0): None, (2, 1): None, (3, 0): 0.0, (3, 1): 0.0})
    reward = MonteCarloReward(told, MonteCarloSettings(pay="score", continuations=2))
    (scored,) = reward.score([four_turns(None)])[0].members
    assert scored.scored_S.tolist() == [True, False, True, False], "no draw after step 2, no verdict at the end"
    assert scored.rewards["judge"].tolist() == [1.0, 0.0, 0.0, 0.0] and scored.outcome is None
    metrics = reward.learn([Group(make_task(), (scored,))])
    assert metrics == {"judge/continuations": 6.0, "judge/continuation_tokens": 12.0, "judge/lost_continuations": 3.0}


def test_episodes_that_are_left_out() -> None:
    told = Told({(1, 0): 1.0, (2, 0): 1.0, (3, 0): 0.0})
    failed = make_episode([1, 1], member=1, failed=True)
    silent = make_episode([0, 0], member=2)
    group = Group(make_task(), (four_turns().members[0], failed, silent, make_episode([1, 1], member=3)))
    reward = MonteCarloReward(told, MonteCarloSettings(continuations=1, members=3))
    scored = reward.score([group])[0].members
    assert [m.scored_S.any() for m in scored] == [True, False, False, False], "failed, empty, and beyond the 3 that are continued"
    check_reward(MonteCarloReward(told, MonteCarloSettings(continuations=1)), [Group(make_task(), group.members[:1])])


# -- in the cave -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cave() -> World:
    return cave_world(turns=3, spread=1.0, seed=1)


def go_on_in(world: World) -> Callable[[Sequence[Prefix]], list[Episode]]:
    tokenizer = SpokenTokenizer(("left[]", "right[]", "stop[]"))
    player = Player(Chat.of(tokenizer), BRACKET, Sampling(max_tokens=1), Limits(turns=3, context=100_000))
    policy = world.model.snapshot()
    return lambda prefixes: continued(CaveDomain(), prefixes, policy, player, decode=tokenizer.decode, seed=(3,))


def true_worth(world: World, episode: Episode, num_turns: int) -> float:
    """The expected score of episodes that begin like this one, from the list of all that can happen."""
    said = [turn.token_ids.tolist() for turn in episode.turns[:num_turns]]
    alike = [n for n, e in enumerate(world.episodes) if [t.token_ids.tolist() for t in e.turns[:num_turns]] == said]
    p = world.probabilities[alike]
    return float(p @ np.array([world.episodes[n].verdict.score for n in alike]) / p.sum())


def test_estimates_converge_to_the_true_action_values(cave: World) -> None:
    """For every step of a few episodes, within 4 standard errors of the value by listing all continuations; and closer with more."""
    longest = [e for e in cave.episodes if len(e.turns) == 3][:4]
    group = Group(cave.task, tuple(replace(e, member=n) for n, e in enumerate(longest)))
    gaps = {}
    for n in (8, 300):
        places, _ = MonteCarlo(go_on_in(cave), MonteCarloSettings(pay="score", continuations=n))([group])
        pairs = [(p.worth[s + 1], true_worth(cave, e, s + 1)) for e, p in zip(group.members, places[0], strict=True) for s in range(2)]
        gaps[n] = max(abs(found - true) for found, true in pairs)
        assert gaps[n] < 4 * 0.5 / np.sqrt(n)
    assert gaps[300] < 0.07 < gaps[8]
    assert len({round(true, 6) for _, true in pairs}) == 3


def test_progress_has_mean_zero_under_the_policy(cave: World) -> None:
    """`E over a of A(s, a) = 0`: with the true values, over all episodes by their probability."""

    def told(prefixes: Sequence[Prefix]) -> list[Episode]:
        known = [true_worth(cave, p.episode, sum(len(t.token_ids) for t in p.episode.turns[: p.tokens])) for p in prefixes]
        return [replace(p.episode, verdict=Verdict.of(worth)) for p, worth in zip(prefixes, known, strict=True)]

    group = Group(cave.task, tuple(replace(e, member=n) for n, e in enumerate(cave.episodes)))
    reward = MonteCarloReward(told, MonteCarloSettings(pay="score", continuations=1, form="progress"))
    members = reward.score([group])[0].members
    start = true_worth(cave, cave.episodes[0], 0)
    for member in members:
        assert member.scored_S.all() and member.outcome is not None
        assert member.rewards["judge"].sum() == pytest.approx(member.outcome - start), "it telescopes"
    firsts = np.array([member.rewards["judge"][0] for member in members])
    assert abs(firsts).max() > 0.1 and firsts @ cave.probabilities == pytest.approx(0.0, abs=1e-12)


def test_tokens_can_be_steps(cave: World) -> None:
    group = Group(cave.task, tuple(replace(e, member=n) for n, e in enumerate(cave.episodes[:3])))
    by_turns = MonteCarlo(go_on_in(cave), MonteCarloSettings(pay="score", continuations=2), by_turn)([group])[0]
    by_tokens = MonteCarlo(go_on_in(cave), MonteCarloSettings(pay="score", continuations=2), by_token)([group])[0]
    assert [p.worth.tolist() for p in by_turns[0]] == [p.worth.tolist() for p in by_tokens[0]], "here a turn is a token"
    check_reward(MonteCarloReward(go_on_in(cave), MonteCarloSettings(pay="score", continuations=2)), [group])


# -- visits ----------------------------------------------------------------------------------------------------------------------


def walk(observations: Sequence[int], actions: Sequence[int], score: float, member: int = 0) -> Episode:
    """Histories as contexts: `observations` and `actions` by turns."""
    turns, said = [], [1]
    for seen, action in zip(observations, actions, strict=True):
        said = [*said, 10 + seen]
        context = np.array(said)
        said = [*said, 20 + action]
        reply = Reply(Observation(""))
        turns.append(Turn(context, np.array([20 + action]), np.array([-1.0]), "a", Action("a"), reply, Stop.EOS, 0))
    return Episode(make_task(), member, Observation(""), tuple(turns), Ending(EndingKind.TERMINATED), Verdict.of(score))


def never(prefixes: Sequence[Prefix]) -> list[Episode]:
    raise AssertionError("visits draw nothing")


def test_visits_by_hand() -> None:
    """Two episodes share the first turn, a third begins otherwise; with a discount, each counts its own turns to come."""
    members = (walk([0, 0], [1, 1], 1.0), walk([0, 0, 0], [1, 0, 0], 0.0, 1), walk([0], [2], 1.0, 2))
    group = Group(make_task(), members)
    settings = MonteCarloSettings(source="visits", discount=0.5)
    places, metrics = MonteCarlo(never, settings)([group])
    assert [p.worth[1:].tolist() for p in places[0]] == [[0.25, 1.0], [0.25, 0.0, 0.0], [1.0]]
    assert all(p.known.all() for p in places[0]) and metrics == {}
    assert places[0][0].worth[0] == pytest.approx((0.5 * 1 + 0 + 1) / 3), "the start is shared by all"


def test_targets_of_agentprm(shared_data: Path) -> None:
    """All trusted cases (no discount): states are whole histories, targets the mean over visits."""
    with gzip.open(shared_data / "golden" / "algorithms" / "prm_targets_agentprm.json.gz", "rt") as file:
        cases = [case for case in json.load(file) if case["trusted"]]
    assert len(cases) == 5
    for case in cases:
        assert case["fn"] == "agentprm_mc_target" and case["params"]["gamma"] == 1.0
        paths = case["inputs"]["trajectories"]
        group = Group(make_task(), tuple(walk(p["obs"], p["act"], p["score"], n) for n, p in enumerate(paths)))
        places, _ = MonteCarlo(never, MonteCarloSettings(pay="score", source="visits"))([group])
        for found, target in zip(places[0], case["outputs"]["targets"], strict=True):
            assert found.worth[1:] == pytest.approx(np.array(target), abs=1e-12), case["name"]


# -- fitted ----------------------------------------------------------------------------------------------------------------------


def test_a_fitted_judge_comes_to_say_the_estimates() -> None:
    """It scores before it learns, is taught on the episodes of the batch, and its error on fresh ones is reported."""
    told = Told({(1, 0): 1.0, (1, 1): 0.0, (2, 0): 0.5, (2, 1): 1.0, (3, 0): 0.0, (3, 1): 0.0})
    engine = TableEngine(4, Text(str, frozenset({3})))
    engine.model("policy", ModelSpec())
    head = engine.model("judge", ModelSpec(kind="head", of="policy", optimizer=OptimizerSpec(max_grad_norm=1e9)))
    settings = MonteCarloSettings(pay="score", continuations=2)
    reward = MonteCarloReward(told, settings, reader=HeadReader(head), lr=0.1, updates=30)
    group = Group(make_task(), (walk([0, 0, 0, 0], [1, 1, 1, 1], 0.75),))

    def round_trip() -> tuple[Scored, dict[str, float]]:
        scored = reward.score([group])
        asked = len(told.asked)
        metrics = reward.learn(scored)
        assert len(told.asked) == asked + 6, "scoring asks nobody, learning asks 3 places twice"
        return scored[0].members[0], metrics

    first, metrics = round_trip()
    assert first.rewards["judge"].tolist() == [0.5] * 4 and first.scored_S.all()
    assert metrics["judge/fresh_error"] == pytest.approx(np.mean([0.0, 0.25, 0.5, 0.25]))
    for _ in range(10):
        last, metrics = round_trip()
    assert last.rewards["judge"] == pytest.approx(np.array([0.5, 0.75, 0.0, 0.75]), abs=0.02)
    assert metrics["judge/fresh_error"] < 0.02
    assert isinstance(reward, RewardLearner) and reward.models() == {"judge": head}
    check_reward(reward, [group])


def test_a_fitted_judge_says_how_far_to_trust_it() -> None:
    """How often it ranked fresh episodes right: a tie first, then right; estimates themselves, which know the outcome, do not say."""
    told = Told({(tokens, 0): 0.5 for tokens in (1, 2, 3)})
    engine = TableEngine(4, Text(str, frozenset({3})))
    engine.model("policy", ModelSpec())
    head = engine.model("judge", ModelSpec(kind="head", of="policy"))
    settings = MonteCarloSettings(pay="score", continuations=1)
    group = Group(make_task(), (walk([0, 0, 0, 0], [1, 1, 1, 1], 1.0), walk([0, 0, 0, 0], [1, 1, 2, 2], 0.0, 1)))
    reward = MonteCarloReward(told, settings, reader=HeadReader(head), lr=0.1, updates=5)
    found = []
    for _ in range(3):
        scored = reward.score([group])
        found.append((scored[0].members[0].confidence, reward.learn(scored)["judge/confidence"]))
    assert found == [(None, 0.5), (0.5, pytest.approx(0.55)), (pytest.approx(0.55), pytest.approx(0.595))]
    other = MonteCarloReward(told, settings, reader=HeadReader(head))
    other.restore(reward.state())
    assert other.score([group])[0].members[0].confidence == pytest.approx(0.595)
    plain = MonteCarloReward(told, settings)
    plain.learn(plain.score([group]))
    assert plain.score([group])[0].members[0].confidence is None


# -- refused ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"continuations": 0}, r"reward\.continuations is 0; it needs at least 1"),
        ({"members": 0}, r"reward\.members is 0"),
        ({"budget": "adaptive", "first": 4}, r"reward\.first is 4 and reward\.continuations 4; an adaptive budget needs more"),
        ({"discount": 0.0}, r"reward\.discount is 0\.0; it lies in \(0, 1\]"),
        ({"labels": "hard", "discount": 0.9}, r"'hard' with reward\.discount 0\.9; a hard label is 0 or 1: set discount to 1"),
        ({"source": "visits", "members": 2}, r"'visits', which draws nothing"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        MonteCarloSettings(**settings)  # type: ignore[arg-type]


def test_a_judge_that_cannot_learn() -> None:
    for wrong in ({"lr": 0.0}, {"lr": float("nan")}, {"updates": 0}):
        with pytest.raises(ConfigError, match="both need to be positive"):
            MonteCarloReward(never, MonteCarloSettings(), **wrong)
