"""Faults of other libraries (U..) through the real row builder, on free logits: gradients are looked at where they arrive.

Each fault's kind is ruled out by a law over random episodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from builders import make_task
from every_loss import LOSSES
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.credit import OutcomeOnly, Standardised, by_turn
from stepwell.engine.batch import parts_of, policy_rows
from stepwell.engine.local import Text
from stepwell.engine.table import TableEngine, TableModel
from stepwell.errors import ConfigError
from stepwell.losses import Averaging, PolicyLoss, Truncated, token_weights
from stepwell.protocols import Loss, ModelSpec, OptimizerSpec
from stepwell.trainer import Learning, Schedule, update
from stepwell.types import (
    Action,
    Credited,
    Ending,
    EndingKind,
    Episode,
    Floats,
    Group,
    Observation,
    Reply,
    Row,
    Scored,
    Stop,
    Turn,
    Verdict,
)

VOCABULARY = 4
few = settings(max_examples=5)
seeds = st.integers(0, 10_000)
Context = tuple[int, ...]


def table(temperature: float = 1.0) -> TableModel:
    engine = TableEngine(VOCABULARY, Text(lambda ids: "".join(map(str, ids)), frozenset()), spread=1.0, seed=5)
    return engine.model("policy", ModelSpec(temperature=temperature, optimizer=OptimizerSpec(kind="sgd", max_grad_norm=1e9)))


def episode(turns: Sequence[tuple[Sequence[int], Sequence[int]]], *, score: float = 1.0, member: int = 0, failed: bool = False) -> Episode:
    """From (context, sampled tokens) of each turn."""
    reply = Reply(Observation("seen"))
    made = tuple(
        Turn(np.array(c, np.int64), np.array(t, np.int64), np.full(len(t), -1.0), "", Action("look"), reply, Stop.EOS, 0) for c, t in turns
    )
    ending = Ending(EndingKind.FAILED, "the server went away") if failed else Ending(EndingKind.TERMINATED)
    return Episode(make_task(), member, Observation("start"), made, ending, Verdict.unscored("failed") if failed else Verdict.of(score))


def talk(first: Sequence[int], *exchanges: tuple[Sequence[int], Sequence[int]], keep: bool = True) -> list[tuple[list[int], list[int]]]:
    """Turns (sampled, shown after it): each context extends the last, or (not `keep`) forgets all but the first message."""
    context, turns = list(first), []
    for sampled, shown in exchanges:
        turns.append((list(context), list(sampled)))
        context = [*(context if keep else first), *(sampled if keep else ()), *shown]
    return turns


def draw_group(seed: int, *, keep: bool, failed: bool = False) -> Group[Episode]:
    """Episodes of 1 to 4 turns of 0 to 3 tokens; observations of 1 to 4."""
    generator = np.random.default_rng(seed)

    def tokens(low: int, high: int) -> list[int]:
        return [int(token) for token in generator.integers(0, VOCABULARY, int(generator.integers(low, high + 1)))]

    members = []
    for member in range(4):
        exchanges = [(tokens(0, 3), tokens(1, 4)) for _ in range(int(generator.integers(1, 5)))]
        exchanges[0] = (tokens(1, 3), tokens(1, 4))
        made = episode(talk(tokens(1, 2), *exchanges, keep=keep), member=member, score=float(member % 2), failed=failed and member == 3)
        members.append(made)
    return Group(make_task(), tuple(members))


def credited(group: Group[Episode], advantages: Sequence[float], reference: float | None = None) -> Group[Credited]:
    """One advantage for each episode; the reference is `reference` nats below the sampler everywhere."""

    def one(made: Episode, advantage: float) -> Credited:
        steps = by_turn(made)
        ref_T = None if reference is None else made.logprobs_T - reference
        scored = Scored(made, steps, made.verdict.score, {}, np.zeros(len(steps), np.bool_), ref_logprobs_T=ref_T)
        return Credited(scored, np.zeros(len(steps)) if made.failed else np.full(len(steps), advantage))

    return Group(group.task, tuple(one(made, advantage) for made, advantage in zip(group.members, advantages, strict=True)))


def rows_of(groups: Sequence[Group[Credited]], averaging: Averaging = "token", constant: float | None = None) -> list[Row]:
    return policy_rows(groups, lambda n: token_weights(n, averaging, constant=constant), lambda scored: scored.episode.logprobs_T - 0.05)


def gradient(rows: Sequence[Row], loss: Loss) -> dict[Context, Floats]:
    model = table()
    model.backward(rows, loss)
    return {context: pull for context, pull in model.gradient().items() if np.any(pull)}


def sampled_at(made: Episode) -> list[Context]:
    """What stood before each sampled token."""
    return [(*turn.context_ids, *turn.token_ids[:i]) for turn in made.turns for i in range(len(turn.token_ids))]


def pull_of_episodes(rows: Sequence[Row], loss: Loss) -> dict[int, float]:
    """Sum over tokens of |d loss / d log-prob| of each episode: its part of the gradient, one call an episode."""
    found: dict[int, float] = {}
    for index in {row.episode for row in rows}:
        model = table()
        mine = [row for row in rows if row.episode == index]
        model.backward(mine, loss)
        logits = {
            context: torch.softmax(torch.from_numpy(model.logits([_key(context)]).detach().numpy()[0]), 0) for context in model.gradient()
        }
        said = {tuple(row.ids[:p].tolist()): int(row.ids[p]) for row in mine for p in row.targets}
        found[index] = sum(abs(pull[said[c]]) / (1 - float(logits[c][said[c]])) for c, pull in model.gradient().items())
    return found


def _key(context: Context) -> bytes:
    return np.array(context, np.int64).tobytes()


# -- U39, U40: which tokens -------------------------------------------------------------------------------------------------------


def test_u39_two_actions_and_three_observations() -> None:
    made = episode(talk([0], ([1, 2], [3, 3, 3]), ([2], [0])))
    found = gradient(rows_of([credited(Group(make_task(), (made,)), [1.0])]), PolicyLoss())
    assert set(found) == {(0,), (0, 1), (0, 1, 2, 3, 3, 3)}


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if name != "preference" and "values" not in loss.wants])
@pytest.mark.parametrize("keep", [True, False])
@few
@given(seed=seeds)
def test_gradient_arrives_where_a_token_was_sampled_and_nowhere_else(name: str, keep: bool, seed: int) -> None:
    """U37 to U40: nothing at a context in which the environment spoke, whatever the loss and however contexts are rewritten."""
    group = draw_group(seed, keep=keep, failed=True)
    rows = rows_of([credited(group, [1.0, -0.5, 0.25, 9.0], reference=0.2)])
    found = gradient(rows, LOSSES[name])
    assert set(found) <= {context for made in group.members[:3] for context in sampled_at(made)}
    assert found or table().backward(rows, LOSSES[name])["policy/clip_share"] == 1.0  # Where a clip binds everywhere nothing pulls.


def test_u40_the_kl_of_observations_is_not_seen() -> None:
    """The reference hates what the environment says; the actions are as likely under both."""
    made = episode(talk([0], ([1], [3, 3, 3]), ([2], [0])))
    model = table()
    (row,) = rows_of([credited(Group(make_task(), (made,)), [0.0])])
    said = model.forward([row])[0]["logprobs"]
    metrics = model.backward([replace(row, ref_logprobs=said)], PolicyLoss(kl_coef=0.1))
    assert metrics["policy/kl_ref"] == 0.0
    assert not any(np.any(pull) for pull in model.gradient().values())
    assert len(row.targets) == 2


# -- U16, U32, U45, U46: how much -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_u16_four_equal_rewards(beta: float) -> None:
    """Through credit and rows: no gradient without KL, the KL's alone with it."""
    group = Group(make_task(), tuple(episode([([0], [i % VOCABULARY])], member=i) for i in range(4)))
    scored = Group(group.task, tuple(member.scored for member in credited(group, [0.0] * 4, reference=0.3).members))
    rows = rows_of(OutcomeOnly(Standardised())([scored]))
    found = gradient(rows, PolicyLoss(kl_coef=beta))
    assert all(np.all(row.advantage == 0) for row in rows)
    assert bool(found) == (beta > 0)
    weighed = [replace(row, advantage=np.array([-beta * (table().forward([row])[0]["logprobs"][0] - row.ref_logprobs[0])])) for row in rows]
    for context, pull in gradient(weighed, PolicyLoss()).items():
        np.testing.assert_allclose(found[context], pull, atol=1e-12)


@pytest.mark.parametrize(("averaging", "shares"), [("episode", [0.5, 0.5]), ("token", [0.1, 0.9])])
@pytest.mark.parametrize("keep", [True, False])
def test_u32_an_episode_of_one_step_and_one_of_nine(averaging: Averaging, shares: list[float], keep: bool) -> None:
    """Also where every turn is a row of its own: a failure of nine rows does not count nine times."""
    short = episode(talk([0], ([1], [2])))
    exchanges = [([1], [3] * (i + 1)) for i in range(9)]
    long = episode(talk([0], *exchanges, keep=keep), score=0.0, member=1)
    rows = rows_of([credited(Group(make_task(), (short, long)), [1.0, -1.0])], averaging)
    assert len(rows) == (2 if keep else 10)
    assert list(pull_of_episodes(rows, PolicyLoss()).values()) == pytest.approx(shares)


@few
@given(seed=seeds, constant=st.floats(1.0, 50.0))
def test_every_averaging_weighs_as_it_says_however_episodes_are_cut(seed: int, constant: float) -> None:
    """U32 as a law: equal parts of the gradient by tokens, by episodes, or in a fixed unit; failed ones count nowhere."""
    for keep in (True, False):
        group = draw_group(seed, keep=keep, failed=True)
        lengths = [made.num_tokens for made in group.members[:3]]
        expected = {
            "token": [n / sum(lengths) for n in lengths],
            "episode": [1 / 3] * 3,
            "constant": [n / (3 * constant) for n in lengths],
        }
        for averaging, parts in expected.items():
            unit = constant if averaging == "constant" else None
            rows = rows_of([credited(group, [1.0, -1.0, 1.0, 5.0])], averaging, unit)  # type: ignore[arg-type]
            sums = [sum(float(row.weight.sum()) for row in rows if row.episode == i) for i in range(3)]
            assert sums == pytest.approx(parts)
            assert {row.episode for row in rows} == {0, 1, 2}
            assert sum(len(parts_of(made)) for made in group.members[:3]) == len(rows)


def test_u45_a_hundred_tokens_and_nine_hundred() -> None:
    """Two micro-batches of unlike size: their losses add up to the mean over all tokens."""
    short, long = episode([([0], [1] * 100)]), episode([([0], [2] * 900)], member=1)
    rows = rows_of([credited(Group(make_task(), (short, long)), [-2.0, -0.5])])
    assert sum(float((row.weight * -row.advantage).sum()) for row in rows) == pytest.approx(0.65)


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if not loss.spans_rows and "values" not in loss.wants])
@few
@given(seed=seeds, cut=st.integers(1, 6))
def test_rows_in_several_calls_give_the_gradient_of_one(name: str, seed: int, cut: int) -> None:
    """U45 as a law, for every loss that is a sum over rows."""
    groups = [credited(draw_group(seed + i, keep=bool(i)), [1.0, -0.5, 0.25, -1.0], reference=0.2) for i in range(2)]
    rows = rows_of(groups)
    whole, parts = table(), table()
    whole.backward(rows, LOSSES[name])
    for start in range(0, len(rows), cut):
        parts.backward(rows[start : start + cut], LOSSES[name])
    for context, pull in whole.gradient().items():
        np.testing.assert_allclose(parts.gradient()[context], pull, atol=1e-12)


@pytest.mark.parametrize(("averaging", "value"), [("token", 1 / 3), ("episode", 0.0)])
def test_u46_the_loss_through_the_row_builder(averaging: Averaging, value: float) -> None:
    two, four = episode([([0], [1, 2])]), episode([([3], [1, 2, 3, 0])], member=1)
    rows = rows_of([credited(Group(make_task(), (two, four)), [1.0, -1.0])], averaging)
    model = table()
    model.backward(rows, PolicyLoss())
    assert sum(float((row.weight * -row.advantage).sum()) for row in rows) == pytest.approx(value, abs=1e-12)
    assert sum(np.any(pull) for pull in model.gradient().values()) == 6


# -- U48, U50, U51: against what --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_u48_the_ratio_is_one_at_the_first_step(temperature: float) -> None:
    """Logits (0, ln 3) at temperature 1/2 give the second token 0.9, not 0.75."""
    model = table(temperature)
    rows = rows_of([credited(draw_group(1, keep=True), [1.0, -1.0, 0.5, -0.5])])
    first = [replace(row, old_logprobs=made["logprobs"]) for row, made in zip(rows, model.forward(rows), strict=True)]
    metrics = model.backward(first, PolicyLoss(old="given"))
    assert metrics["policy/ratio_mean"] == pytest.approx(1.0, abs=1e-12)
    assert metrics["policy/clip_share"] == 0.0


@few
@given(logits=st.lists(st.floats(-2, 2), min_size=VOCABULARY, max_size=VOCABULARY), seed=seeds)
@pytest.mark.parametrize("kind", ["k2", "k1+", "k3+", "k1x", "k3x"])
def test_a_step_on_the_kl_term_never_raises_the_exact_kl(kind: str, logits: list[float], seed: int) -> None:
    """U51 as a law: away from the reference, with each token sampled as often as the policy says it, one small step brings it nearer."""
    model = table()
    context = _key((0,))
    start = torch.log_softmax(model.logits([context])[0].detach(), 0)
    ref = torch.log_softmax(torch.tensor(logits, dtype=torch.float64), 0).numpy()
    rows = [
        replace(Row.of(np.array([0, v]), np.array([1]), weight=np.array([float(start[v].exp())])), ref_logprobs=ref[v : v + 1])
        for v in range(VOCABULARY)
    ]

    def exact() -> float:
        logprobs = torch.log_softmax(model.logits([context])[0].detach(), 0).numpy()
        return float((np.exp(logprobs) * (logprobs - ref)).sum())

    before = exact()
    model.backward(rows, PolicyLoss(kl_coef=1.0, kl_kind=kind))  # type: ignore[arg-type]
    norm = model.step(0.01)["grad_norm"]
    assert exact() <= before - 0.005 * norm**2 + 1e-15


def test_a_missing_reference_is_no_reference_of_probability_one() -> None:
    rows = rows_of([credited(draw_group(2, keep=True), [1.0] * 4)])
    with pytest.raises(ConfigError, match="reads the reference's log-probs, and "):
        table().backward(rows, PolicyLoss(kl_coef=0.1))
    assert table().backward(rows, PolicyLoss(correction=Truncated()))["sampler/weight_mean"] < 2.0
    assert math.isfinite(table().backward(rows, PolicyLoss())["policy/loss"])


@pytest.mark.parametrize("level", ["token", "episode"])
def test_a_row_without_advantage_still_counts_in_what_its_episode_shares(level: Literal["token", "episode"]) -> None:
    """The update leaves out rows that do not pull; not those that a shared ratio is made of."""
    loss = PolicyLoss(old="given", level=level)
    made = episode(talk([0], ([1, 2], [3]), ([2, 0], [1]), keep=False))
    flat = episode(talk([3], ([1], [3])), member=1)
    group = credited(Group(make_task(), (made, flat)), [1.0, 0.0])
    (first, second) = group.members
    group = Group(group.task, (replace(first, advantages_S=np.array([1.0, 0.0])), second))
    plan = Learning(steps=1, groups=1, group_size=2, loss=loss, schedule=Schedule(1.0), old_logprobs="sampler")
    updated, whole = table(), table()
    start = updated.logits([_key((0,)), _key((0, 1))]).detach().numpy()
    update(updated, [group], plan, lr=1.0, seed=("test",))
    rows = policy_rows([group], lambda n: token_weights(n, "token"), lambda scored: scored.episode.logprobs_T)
    assert [row.episode for row in rows] == [0, 0, 1]
    whole.backward(rows, loss)
    whole.step(1.0)
    moved, wanted = (model.logits([_key((0,)), _key((0, 1))]).detach().numpy() - start for model in (updated, whole))
    np.testing.assert_allclose(moved, wanted, atol=1e-12)
