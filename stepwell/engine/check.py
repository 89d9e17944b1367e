"""Does a server compute what the losses here mean? A table with numbers, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from stepwell.engine.carrier import Datum
from stepwell.engine.probes import LEARNING, Bench, Finding, Probe, asked
from stepwell.engine.reduction import Call, Watched, said_at, sentence, step_size
from stepwell.engine.service import Asked, Said, Speaker, Trainee, check_count
from stepwell.errors import ServerError
from stepwell.types import Floats

__all__ = ["Bench", "Finding", "check", "failed"]

_TOKENS = 6
_SAMPLES = 8
_ONE_REQUEST = "samples of one request"


def check(bench: Bench) -> Iterator[Finding]:
    """Everything that can be asked from outside, one finding after the other. Takes about a minute where answers take tenths of a second.

    A question that the server refuses is a failed finding; the others are asked all the same. Up to `bench.together` lots of questions are
    asked at the same time, each lot of adapters of its own.
    """
    try:
        with bench.fresh() as trainee:
            bench.eta = step_size(trainee, bench.ids)
    except (ServerError, ValueError) as error:
        yield Finding("answers", False, str(error), "an adapter that learns", "nothing else can be asked")
        return
    yield Finding("answers", True, f"a small step is {bench.eta:.2g}", "an adapter that learns", "")
    probes = (Probe("speaking", _speaking), *LEARNING)
    if bench.together > 1:
        yield from _at_once(probes, bench)
    else:
        for probe in probes:
            yield from _found_by(probe, bench)


def _at_once(probes: Sequence[Probe], bench: Bench) -> Iterator[Finding]:
    pool = ThreadPoolExecutor(bench.together)
    running = {probe.name: pool.submit(_found_by, probe, bench) for probe in probes}
    try:
        for probe in probes:
            yield from running[probe.name].result()
    finally:
        pool.shutdown(cancel_futures=True)


def _found_by(probe: Probe, bench: Bench) -> list[Finding]:
    return list(asked(probe.name, lambda: probe.ask(bench)))


def failed(findings: Sequence[Finding]) -> list[str]:
    """Names of what did not pass."""
    return [finding.check for finding in findings if finding.passed is False]


# -- log-probs ----------------------------------------------------------------------------------------------------------------


def _log_probs(bench: Bench, trainee: Trainee) -> Iterator[Finding]:
    """A number at most 0 for each target, which depends on what is before it alone, and on that target."""
    long, short = bench.long, bench.short
    alone = said_at(trainee, [short])[0]
    beside, whole = said_at(trainee, [short, long])
    changed = _with_target(trainee, long, 1, bench.ids[8])
    fine = bool(np.all(np.isfinite(whole)) and np.all(whole <= 1e-5))
    yield Finding("log-probs", fine, f"{whole.min():.3f} to {whole.max():.3f} nats", "finite, at most 0", "what everything else is made of")
    apart = max(abs(float(alone[0] - beside[0])), abs(float(alone[0] - whole[0])))
    yield Finding("prefix", apart <= bench.tolerance, f"{apart:.2g} nats", "0", "what comes later, and what lies beside, changes nothing")
    moved = np.abs(changed - whole) > 1e-4
    where = ", ".join(str(at) for at in np.flatnonzero(moved)) or "nowhere"
    passed = bool(moved[1]) and int(moved.sum()) == 1
    yield Finding("shift", passed, f"another target at 1 changes the log-prob at {where}", "at 1", "targets are not shifted")


def _with_target(trainee: Trainee, datum: Datum, at: int, token: int) -> Floats:
    targets = datum.target_tokens.copy()
    targets[at] = token
    return said_at(trainee, [Datum(datum.tokens, targets, {})])[0]


# -- sampling -----------------------------------------------------------------------------------------------------------------


def _contexts(bench: Bench) -> list[tuple[int, ...]]:
    return [bench.ids[:3], bench.ids[3:5], bench.ids[4:9], bench.ids[:3]]


def _requests(bench: Bench) -> list[Asked]:
    return [Asked(np.array(ids, np.int64), _TOKENS, 1.0, (), 1000 + i) for i, ids in enumerate(_contexts(bench))]


def _parity(trainee: Trainee, asked: Sequence[Asked], said: Sequence[Said]) -> float:
    """Root of the mean square of sampler's minus trainer's log-probs, over all sampled tokens. nats"""
    data = [sentence([*one.context.tolist(), *got.token_ids.tolist()]) for one, got in zip(asked, said, strict=True)]
    trained = said_at(trainee, data)
    gaps = [got.logprobs - its[len(one.context) - 1 :] for one, got, its in zip(asked, said, trained, strict=True)]
    return float(np.sqrt(np.mean(np.concatenate(gaps) ** 2)))


def _sampler(bench: Bench, trainee: Trainee) -> Iterator[Finding]:
    """What is sampled, and how it depends on seed and neighbours."""
    asked = _requests(bench)
    speaker = trainee.speaker()
    said = speaker.sample(asked)
    gap = _parity(trainee, asked, said)
    same, other, single = _again(speaker, asked, said)
    greedy = [one._replace(temperature=0.0) for one in asked]
    best = speaker.sample(greedy)
    margin = _beaten(trainee, greedy, best, said)
    yield Finding("sampler", gap <= bench.tolerance, f"{gap:.2g} nats apart (rms)", "the trainer's log-probs", "ratios start at 1")
    yield Finding("seed", same and other, _words(same, other), "the same tokens; others by another seed", "a run can be repeated")
    yield Finding("greedy", margin <= bench.tolerance, f"a sampled token is {margin:+.2g} nats likelier", "none", "temperature 0 is greedy")
    passed = single >= 0.75
    yield Finding("concurrency", passed, f"{single:.0%} of requests answer alone as together", "all", "a row's tokens hang on its own seed")


def _again(speaker: Speaker, asked: Sequence[Asked], said: Sequence[Said]) -> tuple[bool, bool, float]:
    repeated = speaker.sample(asked)
    others = speaker.sample([one._replace(seed=one.seed + 500) for one in asked])
    singles = [speaker.sample([one])[0] for one in asked]
    same = all(np.array_equal(a.token_ids, b.token_ids) for a, b in zip(said, repeated, strict=True))
    other = any(not np.array_equal(a.token_ids, b.token_ids) for a, b in zip(said, others, strict=True))
    return same, other, float(np.mean([np.array_equal(a.token_ids, b.token_ids) for a, b in zip(said, singles, strict=True)]))


def _words(same: bool, other: bool) -> str:
    return f"{'the same' if same else 'other'} tokens by the same seed, {'others' if other else 'the same'} by another"


def _beaten(trainee: Trainee, asked: Sequence[Asked], best: Sequence[Said], said: Sequence[Said]) -> float:
    """By how much the likeliest first token that was sampled is likelier than the greedy one, at most. nats"""
    firsts = [
        sentence([*one.context.tolist(), int(got.token_ids[0])])
        for got_all in (best, said)
        for one, got in zip(asked, got_all, strict=True)
    ]
    ends = [float(logprobs[-1]) for logprobs in said_at(trainee, firsts)]
    return max(its - own for own, its in zip(ends[: len(asked)], ends[len(asked) :], strict=True))


def _samples(bench: Bench, trainee: Trainee) -> Iterator[Finding]:
    """One request for several samples, as members of a group share it."""
    kind, several = bench.service.kind, _requests(bench)[2]._replace(samples=_SAMPLES)
    wanted = f"{_SAMPLES} draws, the same by the same seed" + (", those of single requests" if kind.samples_follow else "")
    if kind.most_samples == 1:
        yield Finding(
            _ONE_REQUEST, None, "not used", wanted, "this kind of server is not trusted with it: each row is a request of its own"
        )
        return
    speaker = trainee.speaker()
    said, again = (_counted(speaker.sample([several])) for _ in range(2))
    singles = speaker.sample([several._replace(seed=several.seed + i, samples=1) for i in range(_SAMPLES)])
    gap = _parity(trainee, [several] * _SAMPLES, said)
    same, alone = (sum(np.array_equal(a.token_ids, b.token_ids) for a, b in zip(said, other, strict=True)) for other in (again, singles))
    distinct = len({tuple(one.token_ids.tolist()) for one in said})
    enough = 2 * distinct >= len({tuple(one.token_ids.tolist()) for one in singles})
    follow = alone >= 0.75 * _SAMPLES or not kind.samples_follow
    passed = enough and same == _SAMPLES and follow and gap <= bench.tolerance
    measured = f"{distinct} different of {_SAMPLES}, {same} again by the same seed, {alone} as single requests give, {gap:.2g} nats apart"
    yield Finding(_ONE_REQUEST, passed, measured, wanted, "members of a group share a request, and are draws of their own all the same")


def _counted(said: list[Said]) -> list[Said]:
    check_count(len(said), _SAMPLES)
    return said


def _fresh_weights(bench: Bench, trainee: Trainee) -> Iterator[Finding]:
    """After an update, what speaks has the new weights."""
    asked = _requests(bench)
    (first,) = trainee.speaker().sample(asked[:1])
    watched = Watched(trainee, [sentence([*asked[0].context.tolist(), *first.token_ids.tolist()])])
    before = watched.said[0]
    watched.move([Call(watched.pulls([np.ones(len(before))]))], 20 * bench.eta)
    gap = _parity(trainee, asked, trainee.speaker().sample(asked))
    far = float(np.max(np.abs(watched.said[0] - before)))
    passed = gap <= max(bench.tolerance, 0.02) and far > gap
    words = f"{gap:.2g} nats apart (rms) after an update of {far:.2g}"
    yield Finding("stale sampler", passed, words, "the updated trainer's log-probs", "episodes are of the policy that learns from them")


_ASKED = {"log-probs": _log_probs, "sampler": _sampler, _ONE_REQUEST: _samples, "stale sampler": _fresh_weights}
"""One after the other on one adapter, which the last of them moves."""


def _speaking(bench: Bench) -> Iterator[Finding]:
    with bench.fresh() as trainee:
        for name, ask in _ASKED.items():
            yield from asked(name, lambda: ask(bench, trainee))  # noqa: B023 - used at once
