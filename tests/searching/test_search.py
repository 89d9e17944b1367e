"""The whole search: sampled once, judged, chosen; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scribes import judge, real, scribe, told

import stepwell
from stepwell.errors import ConfigError, RunError
from stepwell.evaluation.attempts import pass_at_k
from stepwell.rollout import rollout
from stepwell.searching.found import CEILING, FLOOR, Found
from stepwell.searching.open import judge_of
from stepwell.searching.settings import SearchSettings
from stepwell.types import Episode, Verdict

PERFECT = judge(lambda episode: episode.verdict.success)


def means(found: Found, name: str) -> dict[int, float]:
    return {point.n: point.success.mean for point in found.curves[name]}


def test_with_a_perfect_judge_best_of_n_is_the_ceiling_and_all_that_is_said_agrees() -> None:
    model = scribe()
    found = stepwell.search(model, PERFECT, SearchSettings(n=8, methods=("best_of_n", "weighted")))
    groups = rollout(model.domain, model.domain.tasks("test"), model.policy, model.player.at(1.0), group_size=8, seed=(0, "search", "test"))
    right = [sum(bool(one.verdict.success) for one in group.members) for group in groups]
    assert 0 < sum(right) < 8 * len(right), "some are right"
    for n in (1, 2, 4, 8):
        assert means(found, CEILING)[n] == pytest.approx(np.mean([pass_at_k(8, c, n) for c in right]))
        assert means(found, "best_of_n")[n] == pytest.approx(means(found, CEILING)[n], abs=1e-12)
    assert means(found, "weighted") == pytest.approx(means(found, CEILING)), "wrong ones weigh nothing"
    assert means(found, FLOOR)[8] < means(found, CEILING)[8]
    (last,) = (point for point in found.curves["best_of_n"] if point.n == 8)
    assert last.over_majority is not None
    assert last.over_majority.mean == pytest.approx(means(found, "best_of_n")[8] - means(found, FLOOR)[8])
    taken = [one for one in found.made if one.method == "best_of_n"]
    assert np.mean([one.right for one in taken]) == means(found, "best_of_n")[8] and all(one.answer for one in taken)


def test_with_a_judge_that_says_one_number_a_weighted_vote_is_the_majority() -> None:
    found = stepwell.search(scribe(), told(lambda episode: 0.7), SearchSettings(n=4, methods=("weighted", "group", "best_of_n")))
    assert means(found, "weighted") == pytest.approx(means(found, FLOOR))
    assert means(found, "group") == pytest.approx(means(found, FLOOR))
    assert means(found, "best_of_n") == pytest.approx(dict.fromkeys((1, 2, 4), means(found, CEILING)[1])), "a blind choice"
    assert found.ties["best_of_n"] > 0


def test_an_unfinished_candidate_never_wins_and_is_counted() -> None:
    """The judge likes those best whose last message was cut."""
    cut = told(lambda episode: float(episode.turns[-1].stop == "length"))
    found = stepwell.search(scribe(breaks=0.3), cut, SearchSettings(n=6, methods=("best_of_n",)))
    whole = stepwell.search(scribe(breaks=0.3), told(lambda episode: 0.0), SearchSettings(n=6, methods=("best_of_n",)))
    assert found.unfinished > 0 and means(found, "best_of_n") == pytest.approx(means(whole, "best_of_n"))


def test_one_seed_decides_everything() -> None:
    asked = SearchSettings(n=4, methods=("best_of_n", "group", "beam"), seed=3)
    one, other = (stepwell.search(scribe(), PERFECT, asked) for _ in range(2))
    assert replace(one, seconds={}) == replace(other, seconds={})
    assert one.curves != stepwell.search(scribe(), PERFECT, replace(asked, seed=4)).curves


def test_candidates_without_a_verdict_enter_nothing() -> None:
    model = scribe()

    class Silent:
        def __getattr__(self, name: str) -> object:
            return getattr(model.domain, name)

        def answer(self, episode: Episode) -> str | None:
            return "1"

        def same(self, task: object, one: str, other: str) -> bool:
            return True

        def grade(self, episode: Episode) -> Verdict:
            return Verdict.unscored("nobody knows") if episode.member == 0 else model.domain.grade(episode)

    silent = model._replace(domain=Silent())  # type: ignore[arg-type]
    found = stepwell.search(silent, told(lambda episode: 0.0), SearchSettings(n=4))
    assert found.left_out == 12 and [point.problems for point in found.curves[FLOOR]] == [12, 12, 0]


def test_the_cost_is_counted_on_both_sides() -> None:
    model = scribe(slips=0.0)
    tasks = model.domain.tasks("test")
    found = stepwell.search(model, judge_of("oracle", model, []), SearchSettings(n=4, methods=("best_of_n",)))
    groups = rollout(model.domain, tasks, model.policy, model.player, group_size=1, seed=(0,))
    sampled = np.mean([group.members[0].num_tokens for group in groups])
    seen = np.mean([len(turn.context_ids) + len(turn.token_ids) for group in groups for turn in group.members[0].turns[-1:]])
    prompt = np.mean([len(group.members[0].turns[0].context_ids) for group in groups])
    for point in found.curves["best_of_n"]:
        assert point.cost.policy_tokens == pytest.approx(point.n * sampled) and point.cost.judge_tokens == 0
        assert point.cost.forwards == pytest.approx(prompt + point.n * (seen - prompt))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (lambda: SearchSettings(n=0), "n is 0: nothing would be sampled"),
        (lambda: SearchSettings(n=4, methods=("beam",), ns=(4,), beam=8), "beam is 8 wide with 4 candidates"),
        (lambda: SearchSettings(n=4, beam=2), "no method is a tree"),
        (lambda: SearchSettings(n=4, ns=(8,)), "ns names 8 candidates, and 4 are sampled"),
        (lambda: SearchSettings(methods=("best",)), "There is no method 'best'; did you mean"),  # type: ignore[arg-type]
        (lambda: SearchSettings(methods=()), "No method"),
        (lambda: SearchSettings(aggregate="avg"), "There is no aggregate 'avg'"),  # type: ignore[arg-type]
        (lambda: SearchSettings(temperature=0.0), "all candidates would be one"),
        (lambda: SearchSettings(problems=0), "problems is 0"),
        (lambda: SearchSettings(separator=""), "separator of steps is empty"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_a_sentence(settings: Callable[[], SearchSettings], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        settings()


def test_judges_that_do_not_fit_are_refused_before_anything_is_sampled() -> None:
    model = scribe()
    with pytest.raises(ConfigError, match="best_of_n needs a judge"):
        stepwell.search(model)
    with pytest.raises(ConfigError, match=r"product needs probabilities, .* use mean, sum, min, last"):
        stepwell.search(model, told(lambda episode: 1.0), SearchSettings(aggregate="product"))
    with pytest.raises(ConfigError, match="has no tasks to search"):
        stepwell.search(model, PERFECT, SearchSettings(split="train"))
    with pytest.raises(ConfigError, match="has 12 tasks and 50"):
        stepwell.search(model, PERFECT, SearchSettings(problems=50))
    with pytest.raises(RunError, match="no run"):
        stepwell.search(model, Path("nowhere"))
    assert model.policy.calls == []  # type: ignore[attr-defined]


def test_a_judge_that_says_nothing_is_no_judge() -> None:
    with pytest.raises(RunError, match="says no number about any of 48 candidates"):
        stepwell.search(scribe(), told(lambda episode: None), SearchSettings(n=4))


def test_without_a_judge_there_is_the_majority_and_the_ceiling() -> None:
    found = stepwell.search(scribe(), None, SearchSettings(n=4, methods=("majority",)))
    assert set(found.curves) == {CEILING, FLOOR} and found.judge == "" and found.to_json()["judge"] is None


def test_the_checker_of_the_domain_is_a_judge_of_steps() -> None:
    found = stepwell.search(scribe(), "oracle", SearchSettings(n=8))
    assert means(found, "best_of_n") == pytest.approx(means(found, CEILING)), "a scribe is right only by right steps"
    assert found.aggregate == "min"
    odds = stepwell.search(scribe(), "oracle", SearchSettings(n=4, aggregate="log_odds"))
    assert odds.aggregate == "log_odds" and means(odds, "best_of_n")[4] > means(odds, "best_of_n")[1], "1 and 0 have odds, too"


def test_a_real_model_is_searched_to_the_same_numbers_twice() -> None:
    asked = SearchSettings(n=2, problems=4, methods=("majority",))
    one, other = (stepwell.search(real(), None, asked) for _ in range(2))
    assert one.curves == other.curves and one.unfinished == 8, "fresh weights finish nothing"
