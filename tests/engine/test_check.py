"""Every fault that servers have is caught by name, and a server without one passes."""

from __future__ import annotations

import pytest
from faulty_service import TEXT, faulty
from speakers import SMALL, loud

from stepwell.engine.check import Bench, Finding, check, failed
from stepwell.engine.checked import served_base
from stepwell.engine.reduction import measure_reduction
from stepwell.engine.servers import SERVERS
from stepwell.engine.tiny import tiny_model
from stepwell.protocols import ModelSpec

CAUGHT = {
    "loss replaced": ("ppo, ratio 3, advantage +1", "the loss is replaced"),
    "mean instead of sum": ("reduction", "what advantages are multiplied by"),
    "clipped importance sampling": ("importance_sampling, ratio 3, advantage +1", "importance sampling is clipped"),
    "capped importance sampling": ("importance_sampling, ratio 3, advantage +1", "importance sampling is capped"),
    "shifted targets": ("shift", "targets are not shifted"),
    "stale sampler": ("stale sampler", "episodes are of the policy that learns from them"),
    "wrong sign": ("sign", "a wrong sign"),
    "state lost": ("save and load", "a run can be resumed"),
    "optimiser lost": ("optimiser restored", "the same numbers"),
    "padding seen": ("prefix", "changes nothing"),
    "mask ignored": ("reduction", "what advantages are multiplied by"),
    "last call alone": ("accumulation", "several calls"),
    "clipping ignored": ("clip", "max_grad_norm arrives"),
    "clips unasked": ("unclipped", "unclipped"),
    "rate ignored": ("step size", "lr and eps arrive"),
    "gradient kept": ("cleared", "a step forgets"),
    "seeds ignored": ("seed", "a run can be repeated"),
    "one seed for all calls": ("seed", "a run can be repeated"),
    "neighbours heard": ("concurrency", "its own seed"),
    "never greedy": ("greedy", "temperature 0 is greedy"),
    "tempered log-probs": ("sampler", "ratios start at 1"),
    "copies of one sample": ("samples of one request", "draws of their own"),
    "one sample of several": ("samples of one request", "the server refuses or fails"),
    "samples without a seed": ("samples of one request", "draws of their own"),
    "log-probs of another sample": ("samples of one request", "draws of their own"),
    "places not cleared": ("fresh", "a new judge says exactly nothing"),
    "refuses": ("answers", "nothing else can be asked"),
}
"""Fault -> what fails, and what is said."""


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


@pytest.mark.parametrize("fault", CAUGHT)
def test_a_fault_is_caught_by_name(fault: str) -> None:
    findings = list(check(Bench(faulty(fault))))
    name, words = CAUGHT[fault]
    assert name in failed(findings)
    assert words in by_name(findings)[name].means


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_is_what_its_row_says_passes(kind: str) -> None:
    findings = list(check(Bench(faulty(kind=SERVERS[kind]))))
    assert failed(findings) == []
    skipped = {finding.check for finding in findings if finding.passed is None}
    assert ("importance_sampling, ratio 3, advantage +1" in skipped) == ("importance_sampling" not in SERVERS[kind].dialect.native)


def test_numbers_by_hand() -> None:
    """Movements are shares of the first one, as the formulas of the losses say."""
    found = by_name(list(check(Bench(faulty()))))
    assert found["importance_sampling, ratio 3, advantage +1"].measured == "share 3.008"
    assert found["ppo, ratio 3, advantage +1"].measured == "share 0.000"
    assert found["cispo, ratio 3, advantage +1"].measured == "share 1.501"
    assert found["accumulation"].measured == "share -0.998"


@pytest.mark.parametrize("kind", ["tinker", "skyrl-jax", "hatchery"])
def test_the_reduction_is_measured(kind: str) -> None:
    """Under a mean over sequences, a row of 1 and a row of 4 positions cancel to 3/8; under the others to nothing."""
    wanted = SERVERS[kind].dialect.reduction
    found = measure_reduction(faulty(kind=SERVERS[kind]).create(4, 1), (5, 9, 13, 7, 17))
    assert found.reduction == wanted
    assert found.cancelled == pytest.approx(0.375 if wanted == "sequence_mean" else 0.0, abs=0.02)
    assert found.beside == pytest.approx({"sum": 1.0, "sequence_mean": 0.5, "token_mean": 0.2}[wanted], abs=0.02)


def test_lots_of_questions_at_once_find_the_same() -> None:
    """And in the same order, each lot on adapters of its own."""
    alone, together = (list(check(Bench(faulty("stale sampler"), together=n))) for n in (1, 4))
    assert [finding.check for finding in together] == [finding.check for finding in alone]
    assert failed(together) == failed(alone) == ["stale sampler"]


def test_adapters_are_few() -> None:
    """Servers compile for each one that learns: two are restored, and two of the others never learn."""
    service = faulty()
    list(check(Bench(service)))
    assert len(service.left) == 9


def test_a_transformer_of_this_machine_passes() -> None:
    """With full weights; where adapters can be had, they are asked by the command."""
    service = served_base(loud(tiny_model(40, SMALL, 0)), TEXT, ModelSpec())
    findings = list(check(Bench(service)))
    assert failed(findings) == []
    assert len(findings) > 20


# -- several samples of one request -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SERVERS)
def test_samples_follow_each_other_where_the_row_says_so(kind: str) -> None:
    """Where it does not say so, other draws will do; where requests are of one sample, nobody asks."""
    found = by_name(list(check(Bench(faulty("samples that do not follow", kind=SERVERS[kind])))))["samples of one request"]
    wanted = None if SERVERS[kind].most_samples == 1 else not SERVERS[kind].samples_follow
    assert found.passed is wanted
    if wanted is not None:
        assert found.measured.startswith("8 different of 8, 8 again by the same seed, 1 as single requests give")


def test_what_is_wrong_with_the_samples_of_a_request_is_measured() -> None:
    def measured(fault: str) -> str:
        return by_name(list(check(Bench(faulty(fault, kind=SERVERS["skyrl-jax"])))))["samples of one request"].measured

    assert measured("").startswith("8 different of 8, 8 again by the same seed, 8 as single requests give")
    assert measured("copies of one sample").startswith("1 different of 8, 8 again by the same seed, 1 as single")
    assert measured("one sample of several").startswith("The server gave 1 samples where 8 were asked for")
