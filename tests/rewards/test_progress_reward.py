"""The oracle's rewards: what each step changed in how far the task is done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import make_episode

from stepwell.build import build
from stepwell.config import Config
from stepwell.configure import load
from stepwell.credit.segment import by_token
from stepwell.envs.maze import MazeDomain
from stepwell.envs.shop import BasketDomain, ShopDomain
from stepwell.errors import ConfigError
from stepwell.rewards.progress import ProgressReward
from stepwell.rollout import demonstrate
from stepwell.types import Action, Ending, EndingKind, Episode, Group, Scored

SHOP = ShopDomain(products=300, num_test_tasks=10)


def oracle(domain: ShopDomain | BasketDomain) -> ProgressReward:
    return ProgressReward(domain, "score")


def score(reward: ProgressReward, episode: Episode) -> Scored:
    (group,) = reward.score([Group(episode.task, (episode,))])
    return group.members[0]


@pytest.fixture(scope="module")
def config() -> Config:
    return load("smoke", ["engine.threads=1", "reward.kind=environment", "reward.steps=progress", "domain.products=300"])


def played(config: Config, actions: list[Action]) -> Episode:
    return demonstrate(SHOP, SHOP.tasks("test")[0], build(config).speaker.player, actions)


def test_an_expert_gains_with_every_step_and_haste_loses_all_at_once(config: Config) -> None:
    plan = list(SHOP.expert(SHOP.tasks("test")[0]))
    whole = score(oracle(SHOP), played(config, plan))
    assert whole.scored_S.all() and (whole.process_S > 0).all() and whole.process_S.sum() == pytest.approx(1.0)
    assert whole.process_S[1:] == pytest.approx([1 / len(plan)] * (len(plan) - 1), abs=0.1)
    wrong = score(oracle(SHOP), played(config, [plan[0], Action("click", {"element": "p4"}), Action("buy")]))
    assert wrong.outcome is not None and wrong.outcome < 1.0
    assert wrong.process_S.sum() == pytest.approx(wrong.outcome)  # 0 at the start: what is paid along the way is the end
    again = score(oracle(SHOP), played(config, [*plan[:2], plan[0], *plan[1:]]))
    assert again.process_S[2] < 0 < again.process_S[1]  # a detour costs what it takes to mend


def test_the_reward_is_on_a_turns_last_step_and_a_failed_episode_has_none() -> None:
    class Half:
        def progress(self, task: object, actions: list[object], member: int = 0) -> list[float]:
            assert member == 0
            return [0.25 * n for n in range(len(actions) + 1)]

    episode = make_episode([2, 1], rewards=[0.0, 1.0])
    by_tokens = score(ProgressReward(Half(), segment=by_token), episode)  # type: ignore[arg-type]
    assert by_tokens.rewards["progress"].tolist() == [0.0, 0.25, 0.25]
    failed = score(ProgressReward(Half()), make_episode([2, 1], rewards=[0.0, 1.0], failed=True))  # type: ignore[arg-type]
    assert not failed.scored_S.any() and not np.any(failed.rewards["progress"]) and failed.outcome is None


def test_what_is_half_done_when_the_turns_run_out_is_worth_nothing() -> None:
    class Half:
        def progress(self, task: object, actions: list[object], member: int = 0) -> list[float]:
            return [0.0, 0.25, 0.5, 0.75][: len(actions) + 1]

    whole = make_episode([1, 1, 1])
    cut = replace(whole, ending=Ending(EndingKind.TURN_LIMIT))
    sums = [score(ProgressReward(Half()), episode).process_S.tolist() for episode in (whole, cut)]  # type: ignore[arg-type]
    assert sums == [[0.25, 0.25, 0.25], [0.25, 0.25, -0.5]]


def test_an_order_that_spoils_the_basket_is_the_step_that_is_charged() -> None:
    config = load("smoke", ["engine.threads=1", "domain.kind=basket", "domain.items=[2,2]", "rollout.turns=30", "engine.max_length=1024"])
    domain = BasketDomain(products=300, num_test_tasks=10, items=(2, 2))
    task = next(t for t in domain.tasks("test") if len(list(domain.expert(t))) > 7)
    plan = list(domain.expert(task))
    player = build(config).speaker.player
    first = next(n for n, action in enumerate(plan) if action.name == "order")
    twice = [*plan[: first + 1], Action("order"), Action("order"), Action("order"), *plan[first + 1 :]]
    good, bad = (score(oracle(domain), demonstrate(domain, task, player, actions)) for actions in (plan, twice))
    assert good.process_S.sum() == pytest.approx(1.0)
    assert bad.outcome == 0.0 and bad.process_S.sum() == pytest.approx(0.0)
    assert bad.process_S[first + 1 : first + 4].min() < 0 < bad.process_S[: first + 1].min()


def test_the_config_makes_it_and_says_where_it_cannot(config: Config) -> None:
    assert isinstance(build(config).trainer.parts.judge(), ProgressReward)
    with pytest.raises(ConfigError, match=r"reward\.steps is 'progress', which the domain MazeDomain cannot tell"):
        ProgressReward.of(MazeDomain(num_test_tasks=5), SHOP.tasks("test")[0], "success", by_token)
    with pytest.raises(ConfigError, match=r"invalid_penalty is 0\.1 with reward\.steps=progress"):
        load("smoke", ["reward.kind=environment", "reward.steps=progress", "reward.invalid_penalty=0.1"])


def test_a_member_that_meets_its_own_interruption_is_replayed_with_it(config: Config) -> None:
    asked: list[int] = []

    class Asked:
        def progress(self, task: object, actions: list[object], member: int = 0) -> list[float]:
            asked.append(member)
            return [0.0] * (len(actions) + 1)

    episode = make_episode([1])
    members = tuple(replace(episode, member=n) for n in range(3))
    ProgressReward(Asked()).score([Group(episode.task, members)])  # type: ignore[arg-type]
    assert asked == [0, 1, 2]
