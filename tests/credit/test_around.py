"""Credit around interruptions: by hand, by its laws, and from settings to what is played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from stepwell.build import build
from stepwell.configure import load
from stepwell.credit import LeaveOneOut, OutcomeOnly, ProcessToGo, Undisturbed, WeighedByEvents, Worth, credit_metrics, group_by_hand
from stepwell.credit.around import Around
from stepwell.errors import ConfigError, CreditError
from stepwell.types import Credited, Episode, Group, Observation, Reply, Scored

RLOO = LeaveOneOut()


def happening(group: Group[Scored], *turns: Sequence[int]) -> Group[Scored]:
    """The same with events in these turns of each member."""

    def struck(member: Scored, at: Sequence[int]) -> Scored:
        changed = tuple(replace(t, reply=replace(t.reply, event="flood" if n in at else None)) for n, t in enumerate(member.episode.turns))
        return replace(member, episode=replace(member.episode, turns=changed))

    return Group(group.task, tuple(struck(member, at) for member, at in zip(group.members, turns, strict=True)))


def outcomes(groups: Sequence[Group[Credited]]) -> list[list[float]]:
    return [member.parts["outcome"].tolist() for group in groups for member in group.members]


GROUP = happening(group_by_hand([1.0, 0.0], [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6, 0.7]]), [], [1])
CREDITED = OutcomeOnly(RLOO)([GROUP])


def test_decay_by_hand() -> None:
    made, said = WeighedByEvents("decay", 0.5)(CREDITED)
    assert outcomes(made) == [[1.0, 1.0, 1.0], [-0.5, -0.5, -1.0, -1.0]]
    assert said == {"credit/interrupted": 0.5}
    twice = happening(group_by_hand([1.0, 0.0], [[0.0] * 3, [0.0] * 3]), [0, 1], [])
    made, _ = WeighedByEvents("decay", 0.5)(OutcomeOnly(RLOO)([twice]))
    assert outcomes(made) == [[0.25, 0.5, 1.0], [-1.0, -1.0, -1.0]]


def test_a_segment_keeps_the_total_and_moves_it_behind_the_event() -> None:
    made, _ = WeighedByEvents("segment", 0.5)(CREDITED)
    assert outcomes(made)[0] == [1.0, 1.0, 1.0]
    assert outcomes(made)[1] == pytest.approx([-2 / 3, -2 / 3, -4 / 3, -4 / 3])
    assert sum(outcomes(made)[1]) == pytest.approx(-4.0)


@pytest.mark.parametrize("around", [WeighedByEvents("decay", 1.0), WeighedByEvents("segment", 1.0)])
def test_factor_one_changes_nothing(around: Around) -> None:
    assert outcomes(around(CREDITED)[0]) == outcomes(CREDITED)


@pytest.mark.parametrize("around", [WeighedByEvents("decay"), WeighedByEvents("segment"), Undisturbed(lambda _: [], RLOO)])
def test_where_nothing_happens_nothing_changes(around: Around) -> None:
    calm = ProcessToGo(RLOO)([group_by_hand([1.0, 0.0], [[0.1, 0.2], [0.3]])])
    made, said = around(calm)
    assert [m.advantages_S.tolist() for g in made for m in g.members] == [m.advantages_S.tolist() for g in calm for m in g.members]
    assert said["credit/interrupted"] == 0.0


@pytest.mark.parametrize("form", ["decay", "segment"])
def test_the_process_part_stays_and_parts_still_sum_up(form: str) -> None:
    before = ProcessToGo(RLOO)([GROUP])
    made, _ = WeighedByEvents(form)(before)  # type: ignore[arg-type]
    for old, new in zip(before[0].members, made[0].members, strict=True):
        assert new.parts["process"].tolist() == old.parts["process"].tolist()
        np.testing.assert_allclose(sum(new.parts.values()), new.advantages_S, atol=1e-15)
    credit_metrics(made)


def test_undisturbed_by_hand() -> None:
    """Without the event member 1 would have had 0.5, and from there on 0.25 was to be expected."""
    asked: list[Episode] = []

    def without(episodes: Sequence[Episode]) -> list[Worth]:
        asked.extend(episodes)
        return [Worth(0.5, 0.25, 4) for _ in episodes]

    made, said = Undisturbed(without, RLOO)(CREDITED)
    assert [episode.member for episode in asked] == [1]
    assert outcomes(made) == [[1.0, 1.0, 1.0], [-0.5, -0.5, -0.25, -0.25]]
    assert said == {"credit/interrupted": 0.5, "credit/event_unknown": 0.0, "credit/event_episodes": 4.0}


def test_what_cannot_be_known_keeps_its_credit_and_is_counted() -> None:
    last = happening(group_by_hand([1.0, 0.0], [[0.0] * 2, [0.0] * 2]), [1], [0])
    credited = OutcomeOnly(RLOO)([last])
    made, said = Undisturbed(lambda episodes: [None for _ in episodes], RLOO)(credited)
    assert outcomes(made) == outcomes(credited)
    assert said == {"credit/interrupted": 1.0, "credit/event_unknown": 2.0, "credit/event_episodes": 0.0}


def test_faults_are_said() -> None:
    with pytest.raises(ConfigError, match=r"interrupted_credit.factor is 0.0; it lies in \(0, 1\]"):
        WeighedByEvents("decay", 0.0)
    bare = [Group(g.task, tuple(Credited(m.scored, m.advantages_S) for m in g.members)) for g in CREDITED]
    with pytest.raises(CreditError, match="this rule tells none"):
        WeighedByEvents("decay")(bare)
    with pytest.raises(CreditError, match="an outcome without the event is NaN or infinite"):
        Undisturbed(lambda episodes: [Worth(float("nan"), 0.0, 1) for _ in episodes], RLOO)(CREDITED)


# -- in a run -----------------------------------------------------------------------------------------------------------------

SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "feedforward=32", "layers=1", "corpus_tasks=20", "max_length=256")),
    *(f"rollout.{name}" for name in ("groups=3", "group_size=4", "turns=5", "max_tokens=8")),
    *("reward.kind=outcome", "credit.kind=rloo", "cloning.steps=60", "steps=1", "domain.products=200", "evaluation.every=0"),
    *("interruptions.kinds=[price_rise,tool_error]", "interruptions.at=[1,2]", "interruptions.shared=member"),
)


def first_step(*settings: str) -> tuple[dict[str, float], Sequence[Group[Credited]]]:
    trainer = build(load("smoke", [*SMALL, *settings])).trainer
    *_, last = trainer.run()
    return dict(last.metrics), last.groups


def test_a_run_plays_on_from_events_in_both_worlds() -> None:
    metrics, groups = first_step("interrupted_credit.kind=counterfactual", "interrupted_credit.continuations=3")
    hit = [member for group in groups for member in group.members if any(t.reply.event for t in member.scored.episode.turns[:-1])]
    assert hit and metrics["credit/interrupted"] > 0
    known = metrics["credit/interrupted"] * 12 - metrics["credit/event_unknown"]
    assert known > 0
    assert 3 * known <= metrics["credit/event_episodes"] <= 6 * known
    plain, same = first_step()
    assert "credit/interrupted" not in plain
    pairs = [(a, b) for g, h in zip(groups, same, strict=True) for a, b in zip(g.members, h.members, strict=True)]
    said = [[[turn.text for turn in member.scored.episode.turns] for member in pair] for pair in pairs]
    assert all(one == other for one, other in said), "what is played is the same"


def test_settings_that_cannot_work_are_refused() -> None:
    for settings, sentence in {
        ("interruptions.kinds=[]", "interrupted_credit.kind=decay"): "nothing happens in this domain",
        ("interruptions.splits=[test]", "interrupted_credit.kind=decay"): r"nothing happens to training tasks, as .*splits is \['test'\]",
        ("interrupted_credit.kind=counterfactual", "credit.kind=grpo"): "divides outcomes by a deviation",
        ("interrupted_credit.kind=segment", "credit.kind=gae"): "changes the outcome's part of credit",
        ("interrupted_credit.kind=segment", "interrupted_credit.factor=0"): "interrupted_credit.factor is 0",
    }.items():
        with pytest.raises(ConfigError, match=sentence):
            load("smoke", [*SMALL, *settings])


def test_the_prefix_is_replayed_undisturbed_up_to_the_event() -> None:
    """A scripted go_on sees the kept turns, answered by a world in which nothing happens; the event's own reply is another there."""
    from stepwell.crediting import undisturbed
    from stepwell.envs.interrupt import Interrupted
    from stepwell.rollout import Prefix

    built = build(load("smoke", SMALL))
    assert isinstance(built.domain, Interrupted)
    *_, last = built.trainer.run()
    struck = [m.scored.episode for g in last.groups for m in g.members if any(t.reply.event for t in m.scored.episode.turns[:-1])]
    seen: list[Prefix] = []

    def calm(prefixes: Sequence[Prefix]) -> list[Episode]:
        seen.extend(prefixes)
        return [prefix.episode for prefix in prefixes]

    def after(prefixes: Sequence[Prefix]) -> list[Episode]:
        return [prefix.episode for prefix in prefixes]

    worths = undisturbed(built.domain.inner, after, calm, "score", 2)(struck)
    assert len(worths) == len(struck)
    for prefix in seen:
        assert all(turn.reply.event is None for turn in prefix.episode.turns)
        assert prefix.tokens == prefix.episode.num_tokens
    other = replace(struck[0], start=Observation("another shop"))
    assert undisturbed(built.domain.inner, after, calm, "score", 2)([other]) == [None]
    assert isinstance(seen[0].episode.turns[-1].reply, Reply)
