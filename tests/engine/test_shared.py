"""What has been computed once is not computed again, and is never taken for what other weights say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from speakers import engine, ids, random_rows
from test_sampler import history
from torch import Tensor

from stepwell.engine.local import Budget, LocalEngine, LocalModel
from stepwell.engine.policy import LocalPolicy
from stepwell.engine.sampler import Sampler
from stepwell.engine.shared import SharedStates, WholeRows
from stepwell.engine.trunk import Trunk
from stepwell.losses import CloningLoss, ValueLoss
from stepwell.protocols import Loss, ModelSpec
from stepwell.types import Batch, Completion, Ids, Outputs, Row, Sampling, Tallies

VALUES = frozenset({"values"})
FEW = Budget(rows=2)
"""Several micro-batches, so that losses that span rows go twice."""


class Played(NamedTuple):
    """A policy that has sampled, a loud head on it, and rows of what was sampled, asked before and after every turn."""

    policy: LocalModel
    head: LocalModel
    snapshot: LocalPolicy
    rows: list[Row]


def needs(kind: str) -> None:
    if kind == "lora":
        pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")


def models(kind: str = "full", seed: int = 0) -> tuple[LocalModel, LocalModel]:
    """A policy that is not the base, and a head that says something."""
    made = engine(budget=FEW)
    policy = made.model("policy", ModelSpec(kind=kind, rank=4))  # type: ignore[arg-type]
    policy.backward(random_rows(5, seed=9), CloningLoss())
    policy.step(3e-2)
    head = made.model("judge", ModelSpec(kind="head", of="policy"))
    with torch.no_grad():
        head.head.weight.normal_(generator=torch.Generator().manual_seed(seed))  # type: ignore[union-attr]
    return policy, head


def turns(policy: LocalPolicy, num_turns: int = 3, num_rows: int = 5) -> list[Row]:
    """Episodes of several turns, the first two alike; targets before and after each turn's tokens, and inside."""
    rng = np.random.default_rng(4)
    contexts = [rng.integers(3, 64, n) for n in (6, 6, 3, 11, 8)][:num_rows]
    contexts[1] = contexts[0]
    marks: list[list[int]] = [[] for _ in contexts]
    for turn in range(num_turns):
        seeds = [0 if i < 2 else 10 * turn + i for i in range(len(contexts))]
        made = policy.sample(contexts, [Sampling(max_tokens=4)] * len(contexts), seeds)
        for i, (context, completion) in enumerate(zip(contexts, made, strict=True)):
            end = len(context) + len(completion.token_ids)
            marks[i] += [len(context), end - 1, end]
            reply = ids(*range(7, 7 + turn)) if turn < num_turns - 1 else ids()
            contexts[i] = np.concatenate([context, completion.token_ids, reply])
    return [Row.of(np.append(context, context[-1]), np.unique(places)) for context, places in zip(contexts, marks, strict=True)]


def played(kind: str = "full", seed: int = 0) -> Played:
    policy, head = models(kind, seed)
    snapshot = policy.snapshot()
    return Played(policy, head, snapshot, turns(snapshot))


def values(model: LocalModel, rows: Sequence[Row]) -> np.ndarray:
    return np.concatenate([made["values"] for made in model.forward(rows, VALUES)])


def by_hand(made: Played) -> np.ndarray:
    """Of each row by itself, from the first token on."""
    assert made.head.head is not None
    found = []
    with torch.no_grad(), made.policy.using(None):
        for row in made.rows:
            states = made.policy.trunk.hidden(torch.from_numpy(row.ids)[None, :-1])[0, torch.from_numpy(row.targets) - 1]
            found.append(made.head.head(states)[:, 0].double().numpy())
    return np.concatenate(found)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Positions of every forward pass over whole rows."""
    found: list[int] = []
    hidden = Trunk.hidden

    def counted(self: Trunk, some: Tensor) -> Tensor:
        found.append(some.numel())
        return hidden(self, some)

    monkeypatch.setattr(Trunk, "hidden", counted)
    return found


def wished(rows: Sequence[Row]) -> list[Row]:
    rng = np.random.default_rng(2)
    return [replace(row, returns=rng.normal(size=len(row.targets)), weight=np.full(len(row.targets), 0.1)) for row in rows]


class SquaredGap:
    """`(sum of w (v - y))^2`, which couples all rows."""

    spans_rows, wants = True, VALUES

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        assert outputs.values is not None
        return torch.where(batch.mask, batch.weight * (outputs.values - batch.returns), 0.0).sum() ** 2, {}


LOSSES = pytest.mark.parametrize("loss", [ValueLoss(None), SquaredGap()], ids=["plain sum", "spans rows"])


def taught(head: LocalModel, rows: Sequence[Row], updates: int = 3, loss: Loss = ValueLoss(None)) -> np.ndarray:  # noqa: B008 (frozen)
    """The head's weights after some updates."""
    for _ in range(updates):
        head.backward(wished(rows), loss)
        head.step(1e-2)
    return torch.cat([weight.detach().flatten() for weight in head.params.values()]).numpy()


# -- recalled from the sampler's keys and values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_what_was_sampled_is_judged_without_a_forward_pass(kind: str, passes: list[int]) -> None:
    needs(kind)
    made = played(kind)
    if kind == "lora":
        made.policy.engine.model("other", ModelSpec(kind="lora", rank=4)).forward(made.rows[:1])
    passes.clear()
    found = values(made.head, made.rows)
    assert passes == []
    np.testing.assert_allclose(found, by_hand(made), atol=2e-5)
    assert np.abs(found).max() > 1.0


def test_recalling_leaves_the_cache_as_it_is() -> None:
    """Bit for bit: what is sampled later does not depend on whether anybody asked, and whoever asks twice hears the same."""
    found: list[list[Completion]] = []
    for asks in (0, 2):
        made = played()
        said = [values(made.head, made.rows) for _ in range(asks)]
        assert all(np.array_equal(said[0], other) for other in said)
        contexts = [row.ids for row in made.rows]
        found.append(made.snapshot.sample(contexts, [Sampling(max_tokens=6)] * len(contexts), list(range(len(contexts)))))
    for one, two in zip(*found, strict=True):
        assert np.array_equal(one.token_ids, two.token_ids) and np.array_equal(one.logprobs, two.logprobs)


def whole(sampler: Sampler, row: Row) -> Tensor:
    with torch.no_grad():
        return sampler.trunk.hidden(torch.from_numpy(row.ids)[None, :-1])[0, torch.from_numpy(row.targets) - 1]


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_leave_come_back_and_rewrite_their_past(seed: int) -> None:
    """Whatever the slots went through, what is recalled is right, and what is not held is not recalled."""
    rng = np.random.default_rng(seed)
    sampler = Sampler(engine()._trunk, lambda tokens: " ".join(map(str, tokens)), frozenset({2}))
    contexts: list[Ids] = [rng.integers(3, 64, n) for n in rng.integers(2, 20, 9)]
    gone: list[Ids] = []
    for turn in range(4):
        limits = [Sampling(max_tokens=int(n)) for n in rng.integers(1, 9, len(contexts))]
        made = sampler.sample(contexts, limits, list(range(100 * turn, 100 * turn + len(contexts))))
        texts = [np.concatenate([c, m.token_ids]) for c, m in zip(contexts, made, strict=True)]
        rows = [Row.of(np.append(t, 5), np.unique([*rng.integers(1, len(t), 3), len(t)])) for t in texts]
        strange = [Row.of(np.concatenate([t[:-2], ids(1, 1, 5)]), ids(1, len(t))) for t in (*texts, *gone)]
        recalled = sampler.recall([*rows, *strange])
        assert all(states is not None for states in recalled[: len(rows)])
        assert all(states is None for states in recalled[len(rows) :])
        for row, states in zip(rows, recalled, strict=False):
            torch.testing.assert_close(states, whole(sampler, row), atol=2e-5, rtol=1e-4)
        gone = texts
        contexts = history(rng, contexts, made)


def test_where_nothing_is_cached_nothing_is_recalled(passes: list[int]) -> None:
    made = played()
    made.snapshot.forget()
    passes.clear()
    found = values(made.head, made.rows)
    assert passes
    np.testing.assert_allclose(found, by_hand(made), atol=2e-5)


def test_keys_and_values_are_let_go_before_the_policy_learns() -> None:
    """They would stand in memory beside the activations."""
    made = played()
    assert made.policy.recent is not None
    made.policy.backward(random_rows(1), CloningLoss())
    assert made.policy.recent is None
    lonely = engine().model("policy", ModelSpec())
    turns(lonely.snapshot())
    assert lonely.recent is None, "no head reads it"


def test_what_kept_weights_sampled_is_not_recalled() -> None:
    made = played()
    reference = made.policy.keep()
    made.policy.backward(random_rows(3), CloningLoss())
    made.policy.step(3e-2)
    turns(reference)
    np.testing.assert_allclose(values(made.head, made.rows), by_hand(made), atol=2e-5)


# -- what the model was asked about itself -----------------------------------------------------------------------------------------


def asked(made: Played) -> None:
    """The model is asked for log-probs of all but the first tokens of the same episodes, of which a head reads few places."""
    made.snapshot.forget()
    made.policy.forward([Row.of(row.ids[:-1], np.arange(3, len(row.ids) - 1)) for row in made.rows])


def test_a_head_reads_what_its_model_has_computed_for_itself(passes: list[int]) -> None:
    made = played()
    asked(made)
    passes.clear()
    found = values(made.head, made.rows)
    longer = replace(made.rows[0], ids=np.append(made.rows[0].ids, [5, 5]), targets=made.rows[0].targets + 2)
    assert passes == []
    np.testing.assert_allclose(found, by_hand(made), atol=2e-5)
    passes.clear()
    values(made.head, [longer])
    assert len(passes) == 1, "it ends beyond what was computed"


@pytest.mark.parametrize("why", ["a step", "learning", "sampling", "the next question"])
def test_what_a_model_has_computed_for_itself_is_let_go(why: str, passes: list[int], tmp_path: Path) -> None:
    made = played()
    asked(made)
    if why == "a step":
        moved_by_a_step(made, tmp_path)
    elif why == "learning":
        made.policy.backward(random_rows(3), CloningLoss())
    elif why == "sampling":
        made.snapshot.sample([ids(3, 4)], [Sampling(max_tokens=1)], [0])
        made.snapshot.forget()
    else:
        made.policy.forward(random_rows(2, seed=5))
    passes.clear()
    found = values(made.head, made.rows)
    assert passes
    np.testing.assert_allclose(found, by_hand(made), atol=2e-5)


def test_other_weights_and_lonely_models_note_nothing() -> None:
    made = played()
    reference = made.policy.keep()
    made.snapshot.forget()
    made.policy.forward(random_rows(1))
    reference.logprobs(made.rows)
    assert made.policy.recall(made.rows) == [None] * len(made.rows), "kept weights are not the present ones"
    lonely = engine().model("policy", ModelSpec())
    lonely.forward(made.rows)
    assert lonely.recall(made.rows) == [None] * len(made.rows), "no head reads it"
    made.policy.whole = WholeRows(most=32 * len(made.rows[2].ids))
    made.policy.forward([made.rows[2], made.rows[3]])
    assert [states is not None for states in made.policy.recall([made.rows[2], made.rows[3]])] == [True, False]


# -- kept from one call to the next ----------------------------------------------------------------------------------------------


@LOSSES
@pytest.mark.parametrize("sampled", [True, False])
def test_learning_from_what_was_scored_takes_no_forward_pass(sampled: bool, loss: Loss, passes: list[int]) -> None:
    made = played()
    if not sampled:
        made.snapshot.forget()
    values(made.head, made.rows)
    passes.clear()
    kept = taught(made.head, made.rows, loss=loss)
    assert passes == []
    other = played()
    other.head.shared = SharedStates(other.policy, most=0)
    other.snapshot.forget()
    np.testing.assert_allclose(kept, taught(other.head, other.rows, loss=loss), atol=1e-4)
    assert passes, "without the kept states every update takes one"


def test_several_updates_take_one_forward_pass(passes: list[int]) -> None:
    made = played()
    made.snapshot.forget()
    counts = []
    for updates in (1, 3):
        made.head.shared = SharedStates(made.policy)
        passes.clear()
        taught(made.head, made.rows, updates)
        counts.append(sum(passes))
    assert counts[0] == counts[1] > 0


def moved_by_a_step(made: Played, folder: Path) -> None:
    made.policy.backward(random_rows(3), CloningLoss())
    made.policy.step(3e-2)


def moved_by_loading(made: Played, folder: Path) -> None:
    other = engine().model("policy", ModelSpec())
    other.save(folder)
    made.policy.load(folder)


def moved_by_copying(made: Played, folder: Path) -> None:
    made.policy.copy_from(engine().model("policy", ModelSpec()))


MOVES = pytest.mark.parametrize("move", [moved_by_a_step, moved_by_loading, moved_by_copying])


@MOVES
def test_states_of_other_weights_are_not_scored_by(move: Callable[[Played, Path], None], tmp_path: Path) -> None:
    made = played()
    before = values(made.head, made.rows)
    move(made, tmp_path)
    expected = by_hand(made)
    assert np.abs(expected - before).max() > 0.1
    np.testing.assert_allclose(values(made.head, made.rows), expected, atol=2e-5)


@LOSSES
@MOVES
def test_states_of_other_weights_are_not_learnt_from(move: Callable[[Played, Path], None], loss: Loss, tmp_path: Path) -> None:
    made, other = played(), played()
    values(made.head, made.rows)
    for one in (made, other):
        move(one, tmp_path)
    fresh = taught(other.head, other.rows, loss=loss)
    np.testing.assert_allclose(taught(made.head, made.rows, loss=loss), fresh, atol=1e-5)
    stale = played()
    values(stale.head, stale.rows)
    assert np.abs(taught(stale.head, stale.rows, loss=loss) - fresh).max() > 1e-3, "which would show"


def test_a_score_does_not_depend_on_what_was_asked_before(passes: list[int]) -> None:
    """The same rows are computed together, bit for bit, or a resumed run would go another way than one that was not stopped."""
    made, other = played(), played()
    for one in (made, other):
        one.snapshot.forget()
    made.head.backward(wished([made.rows[3], *random_rows(3)]), ValueLoss(None))
    made.head.optimizer.drop_gradient()
    values(made.head, made.rows[1:4])
    found = []
    for one in (made, other):
        passes.clear()
        found.append((values(one.head, one.rows).tolist(), tuple(passes)))
    assert found[0] == found[1]


def test_no_more_is_kept_than_allowed(passes: list[int]) -> None:
    made = played()
    made.snapshot.forget()
    expected = by_hand(made)
    different = sum(len(row.targets) for row in made.rows[1:])
    for most, is_kept in ((32 * different, True), (32 * different - 1, False)):
        made.head.shared = SharedStates(made.policy, most=most)
        np.testing.assert_allclose(values(made.head, made.rows), expected, atol=2e-5)
        passes.clear()
        made.head.backward(wished(made.rows), ValueLoss(None))
        assert (not passes) == is_kept


def test_rows_without_targets_are_read_for_nothing(passes: list[int]) -> None:
    made = played()
    empty = Row.of(ids(5, 6), np.zeros(0, np.int64))
    passes.clear()
    found = made.head.forward([empty, made.rows[0]], VALUES)
    assert found[0]["values"].shape == (0,) and len(found[1]["values"]) == len(made.rows[0].targets)
    assert made.head.forward([empty], VALUES)[0]["values"].shape == (0,) and passes == []


def test_equal_rows_are_computed_once(passes: list[int]) -> None:
    policy = engine(budget=FEW).model("policy", ModelSpec())
    rows = random_rows(4)
    passes.clear()
    alone = policy.forward(rows)
    size = sum(passes)
    passes.clear()
    found = policy.forward([*rows[::-1], replace(rows[0], label=3.0), *rows])
    assert sum(passes) == size
    for made, row in zip(found, [*rows[::-1], rows[0], *rows], strict=True):
        np.testing.assert_allclose(made["logprobs"], alone[[r is row for r in rows].index(True)]["logprobs"], atol=1e-5)


# -- what was said ---------------------------------------------------------------------------------------------------------------


class Spanning:
    """`(sum of log pi)^2`, and with `more` plus that of entropies: couples all rows."""

    spans_rows = True

    def __init__(self, wants: frozenset[str] = frozenset()) -> None:
        self.wants = wants

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        total = torch.where(batch.mask, outputs.logprobs, 0.0).sum() ** 2
        if outputs.entropy is not None:
            total = total + torch.where(batch.mask, outputs.entropy, 0.0).sum() ** 2
        return total, {}


def gradient(model: LocalModel, loss: Spanning, rows: Sequence[Row]) -> Tensor:
    model.optimizer.drop_gradient()
    model.backward(rows, loss)
    return torch.cat([weight.grad.flatten() for weight in model.params.values() if weight.grad is not None]).clone()


def speaker() -> tuple[LocalEngine, LocalModel]:
    made = engine(budget=FEW)
    return made, made.model("judge", ModelSpec())


@pytest.mark.parametrize("asked", [frozenset[str](), frozenset({"entropy"})])
def test_a_loss_that_spans_rows_takes_what_was_said(asked: frozenset[str], passes: list[int]) -> None:
    _, judge = speaker()
    rows, loss = random_rows(6), Spanning(asked)
    passes.clear()
    expected = gradient(judge, loss, rows)
    fresh = len(passes)
    judge.forward(rows[1:], asked)
    passes.clear()
    torch.testing.assert_close(gradient(judge, loss, rows), expected)
    assert len(passes) == fresh - 2, "only one row was not known: one pass for it in place of three for all"
    passes.clear()
    gradient(judge, Spanning(frozenset({"entropy", "certainty"})), rows)
    assert len(passes) == fresh, "what was not asked is not known"


class Plain(Spanning):
    """`sum of w log pi`."""

    spans_rows = False

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        return torch.where(batch.mask, batch.weight * outputs.logprobs, 0.0).sum(), {}


@pytest.mark.parametrize("loss", [Spanning(), Plain()], ids=["spans rows", "plain sum"])
def test_equal_rows_are_carried_back_once(loss: Spanning, passes: list[int]) -> None:
    """With the sum of their parts, though they weigh differently."""
    _, judge = speaker()
    rows = random_rows(5)
    rows = [*rows, *(replace(row, weight=3.0 * row.weight) for row in rows[::-1])]
    passes.clear()
    expected = gradient(judge, loss, rows)
    fresh = sum(passes)
    judge.forward(rows)
    passes.clear()
    torch.testing.assert_close(gradient(judge, loss, rows), expected, atol=1e-4, rtol=1e-4)
    assert sum(passes) < 0.75 * fresh


@pytest.mark.parametrize("between", ["other weights speak", "the judge learns", "new episodes are sampled"])
def test_what_was_said_is_the_judges_own_and_present(between: str, passes: list[int]) -> None:
    _, judge = speaker()
    reference = judge.keep()
    judge.backward(random_rows(3), CloningLoss())
    judge.step(3e-2)
    rows, loss = random_rows(6), Spanning()
    judge.forward(rows)
    passes.clear()
    if between == "other weights speak":
        reference.logprobs(rows)
    elif between == "the judge learns":
        judge.backward(random_rows(3), CloningLoss())
        judge.step(3e-2)
    else:
        judge.snapshot().sample([ids(3, 4)], [Sampling(max_tokens=1)], [0])
    passes.clear()
    found = gradient(judge, loss, rows)
    took = len(passes)
    judge.last_said.forget()
    passes.clear()
    torch.testing.assert_close(found, gradient(judge, loss, rows))
    assert (took < len(passes)) == (between == "other weights speak")
