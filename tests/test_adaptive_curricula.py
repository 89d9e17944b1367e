"""Curricula that follow the agent: on a simulated learner, by hand, through a checkpoint, and what they refuse."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from stepwell.config import Config
from stepwell.configure import load
from stepwell.curriculum import Accuracy, Bins, EntropyCurriculum, Gated, Phase, Pools, Uniform, Zone, falling, mixed, zone_weight
from stepwell.curriculum.entropy import success_entropy
from stepwell.drawing import curriculum_of
from stepwell.envs.maze import MazeDomain
from stepwell.errors import ConfigError, RunError
from stepwell.protocols import Curriculum
from stepwell.seeding import generator
from stepwell.types import Ending, EndingKind, Episode, Group, Observation, Task, Verdict


class Ladder:
    """Tasks that are nothing but their difficulty."""

    def __init__(self, listed: int = 0) -> None:
        self._listed = tuple(self.task(n / max(listed, 1), n, "train") for n in range(listed))

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        return Task(f"{split}/{difficulty}/{seed}", "", difficulty, split)

    def tasks(self, split: str) -> Sequence[Task]:
        return self._listed

    def environment(self, task: Task, member: int) -> None: ...
    def grade(self, episode: Episode) -> None: ...
    def expert(self, task: Task) -> None: ...


DOMAIN: MazeDomain = Ladder()  # type: ignore[assignment]


def group(task: Task, wins: Sequence[bool | None]) -> Group[Episode]:
    def one(member: int, won: bool | None) -> Episode:
        verdict = Verdict.unscored("lost") if won is None else Verdict.of(float(won))
        return Episode(task, member, Observation("x"), (), Ending(EndingKind.TERMINATED), verdict)

    return Group(task, tuple(one(member, won) for member, won in enumerate(wins)))


class Learner:
    """Success at difficulty d is sigmoid(slope (skill - d)); it learns from groups with both outcomes, most from those at one half."""

    def __init__(self, skill: float, speed: float = 0.004, slope: float = 12.0) -> None:
        self.skill, self.speed, self.slope = skill, speed, slope

    def play(self, task: Task, draw: int) -> Group[Episode]:
        p = 1.0 / (1.0 + math.exp(-self.slope * (self.skill - task.difficulty)))
        made = group(task, (generator("learner", draw).random(8) < p).tolist())
        share = np.mean([bool(e.verdict.success) for e in made.members])
        self.skill += self.speed * 4.0 * float(share * (1.0 - share)) / 16
        return made


def train(curriculum: Curriculum, learner: Learner, steps: int) -> list[float]:
    """Mean success over drawn tasks, step by step."""
    success = []
    for step in range(steps):
        played = [learner.play(task, 16 * step + i) for i, task in enumerate(curriculum.draw(16, step))]
        success.append(float(np.mean([bool(e.verdict.success) for g in played for e in g.members])))
        curriculum.observe([g for g in played if curriculum.admit(g)])
    return success


def bins(number: int = 10, keep: float = 0.9, seed: int = 0) -> Bins:
    return Bins(DOMAIN, (0.0, 1.0), number, keep, seed)


MAKERS: dict[str, Callable[[], Curriculum]] = {
    "zone": lambda: Zone(bins()),
    "entropy": lambda: EntropyCurriculum(bins()),
    "gated zone": lambda: Gated(Zone(bins()), mixed),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("start", [0.15, 0.4])
def test_success_over_drawn_tasks_stays_near_one_half_while_the_learner_improves(name: str, start: float) -> None:
    learner = Learner(start)
    success = np.array(train(MAKERS[name](), learner, 140)[40:])
    windows = success.reshape(-1, 20).mean(axis=1)
    assert np.all((windows >= 0.4) & (windows <= 0.6)), windows
    assert learner.skill > start + 0.2, "and the tasks that it was asked have taught it"


def test_uniform_tasks_do_not_stay_there() -> None:
    success = np.array(train(Uniform(DOMAIN, (0.0, 1.0), 0), Learner(0.15), 60)[40:])
    assert success[:20].mean() < 0.4


def test_zone_stays_with_the_easiest_where_even_they_fail() -> None:
    """What is aimed at goes up while success is below the centre, yet not above what any bin gives, where the reward would be flat."""
    zone, learner = Zone(bins()), Learner(0.0, speed=0.0, slope=20.0)
    train(zone, learner, 60)
    assert zone.aim == pytest.approx(falling(zone.bins.success_B, 2.0 + zone.bins.tries_B)[0], abs=0.1)
    assert zone.share_B[0] > 0.3 > 3 * zone.share_B[5:].max()


def test_phases_follow_one_another_and_say_why() -> None:
    curriculum, learner = EntropyCurriculum(bins()), Learner(0.3, speed=0.02)
    assert curriculum.phase is Phase.DISCOVERY
    assert curriculum.share_B.tolist() == [0.1] * 10
    train(curriculum, learner, 160)
    moves = [(move["from"], move["to"]) for move in curriculum.transitions]
    assert moves[:2] == [("discovery", "refinement"), ("refinement", "mastery")]
    news = curriculum.news()
    assert len(news) == len(moves)
    assert "every bin has at least" in news[0] and "that is the edge" in news[1]
    assert curriculum.news() == []
    assert all(isinstance(move["step"], int) and move["cause"] for move in curriculum.transitions)


def test_mastery_falls_back_when_what_was_mastered_is_lost() -> None:
    curriculum, learner = EntropyCurriculum(bins()), Learner(0.95, speed=0.0)
    train(curriculum, learner, 60)
    assert curriculum.phase is Phase.MASTERY
    assert curriculum.share_B[:7].sum() == pytest.approx(0.2, abs=0.12), "a share of the draws rehearses"
    learner.skill = 0.2
    train(curriculum, learner, 40)
    assert ("mastery", "refinement") in [(move["from"], move["to"]) for move in curriculum.transitions]
    assert any("fell from" in sentence for sentence in curriculum.news())


def test_the_tilt_meets_the_target_by_hand() -> None:
    """Three bins with success 0.9, 0.6, 0.3 after many tries: the mean of what is drawn is the target."""
    made = bins(3, keep=1.0)
    made.tries_B, made.wins_B = np.full(3, 998.0), np.array([899.0, 599.0, 299.0])
    for target in (0.5, 0.7):
        curriculum = EntropyCurriculum(made, target=target)
        curriculum.phase = Phase.REFINEMENT
        assert float(curriculum.share_B @ made.success_B) == pytest.approx(target, abs=1e-6)
    far = EntropyCurriculum(made, target=0.1)
    far.phase = Phase.REFINEMENT
    assert float(far.share_B @ made.success_B) == pytest.approx(0.3, abs=1e-3)


def test_entropy_and_zone_by_hand() -> None:
    assert success_entropy(np.array([0.25])) == pytest.approx(0.25 * 2 + 0.75 * math.log2(4 / 3))
    assert zone_weight(np.array([0.2, 0.5]), beta=2.0) == pytest.approx([math.exp(-2 * 0.09), 1.0])
    made = bins(2, keep=1.0)
    made.tries_B, made.wins_B = np.full(2, 98.0), np.array([79.0, 49.0])
    zone = Zone(made, beta=10.0, kl=0.5, rate=1.0)
    metrics = zone.observe([])
    r = [math.exp(-10 * 0.09), 1.0]
    g = np.exp(np.array(r) / 0.5)
    assert zone.share_B == pytest.approx(g / g.sum())
    assert metrics["curriculum/reward"] == pytest.approx(float((g / g.sum()) @ np.array(r)))


def test_falling_is_the_nearest_that_does_not_rise() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        values, weights = rng.random(6), rng.random(6) + 0.1
        made = falling(values, weights)
        assert np.all(np.diff(made) <= 1e-12)
        assert (made * weights).sum() == pytest.approx((values * weights).sum())
        other = np.sort(rng.random(6))[::-1]
        assert (weights * (made - values) ** 2).sum() <= (weights * (other - values) ** 2).sum() + 1e-12


def test_falling_takes_weights_of_0_as_equal_weights_that_vanish() -> None:
    assert falling(np.array([0.2, 0.6]), [0.0, 0.0]).tolist() == pytest.approx([0.4, 0.4])
    assert falling(np.array([0.1, 0.5, 0.4]), [0.0, 0.0, 2.0]).tolist() == pytest.approx([0.4, 0.4, 0.4])
    rng = np.random.default_rng(1)
    for _ in range(50):
        values, weights = rng.random(6), rng.integers(0, 2, 6).astype(float)
        assert falling(values, weights) == pytest.approx(falling(values, np.maximum(weights, 1e-9)), abs=1e-7)


def test_estimates_by_hand() -> None:
    made = bins(2, keep=0.5)
    made.see(DOMAIN.task(0.2, 0, "train"), 0.75)
    made.see(DOMAIN.task(0.3, 1, "train"), 0.25)
    made.see(DOMAIN.task(1.0, 2, "train"), None)
    assert made.end_step() == pytest.approx((0.25, 0.5))
    assert made.success_B.tolist() == [2 / 4, 0.5] and made.visits_B.tolist() == [2, 0]
    made.see(DOMAIN.task(1.0, 3, "train"), 1.0)
    made.end_step()
    assert (made.wins_B.tolist(), made.tries_B.tolist()) == ([0.5, 1.0], [1.0, 1.0])
    assert all(math.isnan(value) for value in made.end_step())


# -- gates --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wins", "mixed_admits", "accuracy_admits"),
    [
        ([True] * 4, False, False),
        ([False] * 4, False, False),
        ([True, False, False, False, False, False], True, False),
        ([True, False], True, True),
        ([None, None], False, False),
    ],
)
def test_gates(wins: list[bool | None], mixed_admits: bool, accuracy_admits: bool) -> None:
    task = DOMAIN.task(0.5, 0, "train")
    for gate, admits in ((mixed, mixed_admits), (Accuracy(0.2, 0.8), accuracy_admits)):
        curriculum = Gated(Uniform(DOMAIN, (0.0, 1.0), 0), gate)
        assert curriculum.admit(group(task, wins)) is admits
        assert curriculum.observe([group(task, [True])])["curriculum/refused"] == float(not admits)
        assert curriculum.observe([group(task, [True])])["curriculum/refused"] == 0.0


def test_a_curriculum_learns_from_what_its_gate_refuses() -> None:
    zone = Zone(bins())
    gated = Gated(zone, mixed)
    assert not gated.admit(group(DOMAIN.task(0.05, 0, "train"), [True] * 8))
    gated.observe([])
    assert zone.bins.success_B[0] == pytest.approx(2 / 3)


# -- pools --------------------------------------------------------------------------------------------------------------------


def test_pools_ask_what_is_within_the_range_and_new_tasks() -> None:
    pools = Pools(DOMAIN, (0.0, 1.0), 32, Accuracy(0.2, 0.8), 8, 0)
    learner = Learner(0.5, speed=0.0)
    train(pools, learner, 6)
    success = train(pools, learner, 20)
    assert 0.3 < np.mean(success) < 0.7
    metrics = pools.observe([])
    assert metrics["curriculum/new"] == 0.0
    assert metrics["curriculum/too_easy"] > 3 and metrics["curriculum/too_hard"] > 3


def test_pools_are_the_listed_tasks_where_there_are_some() -> None:
    listed: MazeDomain = Ladder(5)  # type: ignore[assignment]
    pools = Pools(listed, (0.0, 1.0), 3, Accuracy(), 0, 0)
    assert {task.key for task in pools.draw(7, 0)} == {task.key for task in listed.tasks("train")[:3]}


def test_an_empty_pool_says_what_it_found_and_what_to_change() -> None:
    pools = Pools(DOMAIN, (0.0, 1.0), 4, Accuracy(0.2, 0.8), 0, 0)
    for n, task in enumerate(pools.draw(4, 0)):
        pools.admit(group(task, [n < 3] * 8))
    with pytest.raises(
        RunError, match=r"Step 1: the pool is empty. Of 4 tasks 3 succeed more often than 0.8 and 1 less often than 0.2. Widen"
    ):
        pools.draw(2, 1)
    resting = Pools(DOMAIN, (0.0, 1.0), 4, Accuracy(0.2, 0.8), 3, 0)
    for task in resting.draw(4, 0):
        resting.admit(group(task, [True] * 8))
    with pytest.raises(RunError, match="the pool is empty"):
        resting.draw(2, 2)
    assert len(resting.draw(2, 3)) == 2


# -- state --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MAKERS, "pools"])
def test_a_resumed_curriculum_goes_on_as_if_nothing_had_been(name: str) -> None:
    """U72. The state is what JSON holds."""
    make = MAKERS.get(name, lambda: Pools(DOMAIN, (0.0, 1.0), 64, Accuracy(), 4, 0))
    one, learner = make(), Learner(0.3)
    train(one, learner, 25)
    state, skill = json.loads(json.dumps(one.state())), learner.skill
    rest = train(one, learner, 15)
    two, again = make(), Learner(skill)
    two.restore(state)
    assert train(two, again, 15) == rest
    assert two.state() == one.state()


@pytest.mark.parametrize("cut", [3, 4, 5, 6, 7])
def test_discovery_goes_on_where_it_was(cut: int) -> None:
    """How long the entropy has not risen is part of the state: the transition comes at the same step, for the same cause."""
    whole = EntropyCurriculum(bins())
    train(whole, Learner(0.3), 14)
    one, learner = EntropyCurriculum(bins()), Learner(0.3)
    train(one, learner, cut)
    two = EntropyCurriculum(bins())
    two.restore(json.loads(json.dumps(one.state())))
    for step in range(cut, 14):
        played = [learner.play(task, 16 * step + i) for i, task in enumerate(two.draw(16, step))]
        two.observe([g for g in played if two.admit(g)])
    assert two.state() == whole.state() and len(whole.transitions) == 1


# -- settings -----------------------------------------------------------------------------------------------------------------


def config(*overrides: str) -> Config:
    return load("smoke", list(overrides))


def test_each_is_a_block_of_settings() -> None:
    def made(*overrides: str) -> Curriculum:
        return curriculum_of(config(*overrides), DOMAIN, (0.0, 1.0))

    assert isinstance(made(), Uniform)
    assert isinstance(made("curriculum.kind=zone", "curriculum.beta=5"), Zone)
    assert isinstance(made("curriculum.kind=entropy", "curriculum.bins=4"), EntropyCurriculum)
    assert isinstance(made("curriculum.kind=pools", "curriculum.size=8"), Pools)
    gated = made("curriculum.kind=zone", "curriculum.admit=mixed")
    assert isinstance(gated, Gated) and isinstance(gated.inner, Zone)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Bins(DOMAIN, (0.3, 0.3), 5, 0.9, 0), "needs a range"),
        (lambda: Bins(DOMAIN, (0.0, 1.2), 5, 0.9, 0), "needs a range"),
        (lambda: Bins(DOMAIN, (0.0, 1.0), 1, 0.9, 0), "curriculum.bins is 1"),
        (lambda: Bins(DOMAIN, (0.0, 1.0), 5, 0.0, 0), "curriculum.keep is 0.0"),
        (lambda: Zone(bins(), beta=-1.0), "curriculum.beta is -1.0; it needs a positive number"),
        (lambda: Zone(bins(), rate=0.0), "curriculum.rate is 0.0"),
        (lambda: EntropyCurriculum(bins(), rehearsal=1.0), "rehearsal 1.0"),
        (lambda: EntropyCurriculum(bins(), visits=0), "visits 0"),
        (lambda: Accuracy(0.8, 0.2), r"curriculum.accuracy is \[0.8, 0.2\]"),
        (lambda: Pools(DOMAIN, (0.0, 1.0), 0, Accuracy(), 0, 0), "curriculum.size is 0"),
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()
