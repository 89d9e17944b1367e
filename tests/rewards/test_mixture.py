"""Several judges at once: weights, judges that leave steps out, and what each says about itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from builders import make_episode, make_task

from stepwell.config import Config, MixtureConfig
from stepwell.configure import dump, parse
from stepwell.credit import by_token, by_turn
from stepwell.credit.segment import Segment
from stepwell.errors import ConfigError, ContractViolation
from stepwell.protocols import RewardLearner, Saveable
from stepwell.rewards.mixture import MixtureReward, Part
from stepwell.testing import check_reward
from stepwell.types import JSON, Episode, Group, Metrics, Scored


class Says:
    """Gives each step a number of tokens times `value`; leaves out steps of `silent` tokens."""

    def __init__(self, value: float, silent: int = -1, segment: Segment = by_turn, components: Sequence[str] = ("judge",)) -> None:
        self.value, self.silent, self.segment, self.components = value, silent, segment, components

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        return [Group(group.task, tuple(self.one(episode) for episode in group.members)) for group in groups]

    def one(self, episode: Episode) -> Scored:
        steps = self.segment(episode)
        scored_S = (steps.lengths_S != self.silent) & (not episode.failed)
        reward_S = np.where(scored_S, steps.lengths_S * self.value, 0.0)
        return Scored(episode, steps, episode.verdict.score, dict.fromkeys(self.components, reward_S), scored_S)


class Learns(Says):
    """Counts what it has learnt from."""

    seen: int = 0

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        assert all(set(member.rewards) == {"judge"} for group in groups for member in group.members), "its own opinion, unweighted"
        self.seen += len(groups)
        return {"judge/loss": self.value, "judge/confidence": 0.25}

    def models(self) -> dict[str, Saveable]:
        return {}

    def state(self) -> dict[str, JSON]:
        return {"seen": self.seen}

    def restore(self, state: dict[str, JSON]) -> None:
        seen = state["seen"]
        assert isinstance(seen, int)
        self.seen = seen


def group(*lengths: Sequence[int], failed: bool = False) -> Group[Episode]:
    members = [make_episode(one, member=n, score=float(n == 0)) for n, one in enumerate(lengths)]
    return Group(make_task(), (*members, *([make_episode([1], member=9, failed=True)] if failed else [])))


def test_the_reward_is_the_weighted_sum() -> None:
    mixture = MixtureReward({"a": Part(Says(1.0), 0.5), "b": Part(Says(-10.0)), "c": Part(Says(100.0), 0.0)})
    (scored,) = mixture.score([group([2, 3], [1])])
    first = scored.members[0]
    assert {name: values.tolist() for name, values in first.rewards.items()} == {"a": [1.0, 1.5], "b": [-20.0, -30.0], "c": [0.0, 0.0]}
    assert first.process_S.tolist() == [-19.0, -28.5] and first.scored_S.all() and first.outcome == 1.0
    check_reward(mixture, [group([2, 0, 3], [1])])


def test_one_judge_of_weight_one_is_that_judge() -> None:
    groups = [group([2, 3], [1], failed=True)]
    (mixed,), (alone,) = MixtureReward({"judge": Part(Says(2.0, silent=3))}).score(groups), Says(2.0, silent=3).score(groups)
    for one, two in zip(mixed.members, alone.members, strict=True):
        assert one.process_S.tolist() == two.process_S.tolist() and one.scored_S.tolist() == two.scored_S.tolist()


def test_a_step_that_one_judge_leaves_out_is_unscored_and_counted_for_that_judge() -> None:
    """Never taken for 0; a judge of weight 0 leaves nothing out for the others."""
    mixture = MixtureReward({"a": Part(Says(1.0, silent=3)), "b": Part(Says(1.0, silent=4)), "c": Part(Says(1.0, silent=2), 0.0)})
    (scored,) = mixture.score([group([2, 3, 4, 5], failed=True)])
    first = scored.members[0]
    assert first.scored_S.tolist() == [True, False, False, True] and first.process_S.tolist() == [4.0, 0.0, 0.0, 10.0]
    metrics = mixture.learn([scored])
    counts = {name: metrics[f"judge/{name}/unscored_steps"] for name in "abc"}
    assert counts == {"a": 1.0, "b": 1.0, "c": 1.0}, "the failed episode counts nowhere"


def test_a_judge_that_says_nothing_at_all_leaves_everything_unscored() -> None:
    silent = MixtureReward({"a": Part(Says(1.0)), "b": Part(Says(1.0, silent=2))})
    (scored,) = silent.score([group([2, 2])])
    assert not scored.members[0].scored_S.any() and silent.learn([scored])["judge/b/unscored_steps"] == 2.0


def test_each_judge_learns_and_keeps_its_own_metrics_and_state() -> None:
    one, two = Learns(1.0), Learns(2.0)
    mixture = MixtureReward({"a": Part(one, 3.0), "b": Part(two), "c": Part(Says(1.0))})
    assert isinstance(mixture, RewardLearner)
    scored = mixture.score([group([2], [1])])
    metrics = mixture.learn(scored)
    assert (metrics["judge/a/loss"], metrics["judge/b/loss"]) == (1.0, 2.0) and metrics["judge/a/confidence"] == 0.25
    assert metrics["judge/confidence"] == 1.0, "of the sum: the longer episode is the better one"
    assert mixture.score([group([2], [1])])[0].members[0].confidence == 1.0
    again = MixtureReward({"a": Part(Learns(1.0), 3.0), "b": Part(Learns(2.0)), "c": Part(Says(1.0))})
    again.restore(mixture.state())
    assert again.state() == mixture.state() == {"judges": {"a": {"seen": 1}, "b": {"seen": 1}}, "confidence": 1.0}


def test_components_of_a_judge_keep_their_names() -> None:
    (scored,) = MixtureReward({"env": Part(Says(1.0, components=("environment", "invalid")), 2.0)}).score([group([2])])
    assert {name: values.tolist() for name, values in scored.members[0].rewards.items()} == {"env_environment": [4.0], "env_invalid": [4.0]}


def test_a_name_that_two_parts_would_share_is_refused() -> None:
    """Not one reward in the place of the other."""
    mixture = MixtureReward({"a": Part(Says(1.0, components=("judge", "share"))), "a_share": Part(Says(1.0))})
    with pytest.raises(ContractViolation, match="Two parts of the mixture are both called 'a_share'"):
        mixture.score([group([2])])


def test_judges_that_cut_steps_differently_are_refused() -> None:
    mixture = MixtureReward({"a": Part(Says(1.0)), "b": Part(Says(1.0, segment=by_token))})
    with pytest.raises(ContractViolation, match="cut an episode of task 'test/0' differently: a into 1 steps, b into 2"):
        mixture.score([group([2])])


# -- settings ----------------------------------------------------------------------------------------------------------------------


def config(*settings: str) -> Config:
    return parse({}, ["reward.kind=mixture", "reward.judges.a.kind=implicit", "reward.judges.b.kind=temporal", *settings])


def test_pay_and_learn_are_handed_down_and_read_back() -> None:
    made = config("reward.pay=score", "reward.learn=before", "reward.weights.b=0.25")
    assert isinstance(made.reward, MixtureConfig)
    assert [judge.pay for judge in made.reward.judges.values()] == ["score", "score"]  # type: ignore[union-attr]
    assert made.reward.judges["a"].learn == "before" and made.reward.weights == {"b": 0.25}  # type: ignore[union-attr]
    assert parse(dump(made)) == made


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (["reward.weights.c=1"], r"reward\.weights names 'c', which is no judge; judges are a, b"),
        (["reward.weights.a=0", "reward.weights.b=0"], r"reward\.weights are all 0"),
        (["reward.weights.a=.nan"], r"reward\.weights"),
        (["reward.judges.a.pay=score"], r"reward\.judges\.a\.pay is 'score' and reward\.pay 'success'"),
        (["reward.judges.c.kind=outcome"], r"reward\.judges.*outcome"),
        (["reward.judges.c.kind=mixture"], r"reward\.judges.*mixture"),
        (["reward.judges.A.kind=implicit"], r"reward\.judges"),
        (["reward.judges.a.betta=1"], r"betta is not a setting; did you mean 'beta'"),
        (["reward.judges.a.model=lora"], r"reward\.judges\.a\.model is 'lora' and engine\.policy 'full'"),
    ],
)
def test_settings_that_cannot_work(settings: list[str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        config(*settings)
    with pytest.raises(ConfigError):
        parse({}, ["reward.kind=mixture"])
