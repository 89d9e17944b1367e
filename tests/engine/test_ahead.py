"""The next batch is sampled while this one is learnt from: with older weights, marked as such, corrected for, and the same after a stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from stepwell.build import _ahead
from stepwell.config import Config
from stepwell.configure import load
from stepwell.credit import LeaveOneOut, OutcomeOnly, by_turn
from stepwell.curriculum import Uniform
from stepwell.engine.carrier import Datum
from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET
from stepwell.engine.local import Text
from stepwell.engine.remote import RemoteEngine
from stepwell.engine.served import ServedService, ServedSpeaker, ServedTrainee
from stepwell.engine.service import Asked, Said
from stepwell.engine.spoken import SpokenTokenizer
from stepwell.engine.table import TableEngine
from stepwell.envs.cave import CaveDomain
from stepwell.errors import CapabilityError, ConfigError
from stepwell.losses import PolicyLoss, Truncated
from stepwell.protocols import Model, ModelSpec, OptimizerSpec, Saveable
from stepwell.rollout import Limits, Player
from stepwell.trainer import Learning, Parts, Schedule, StepResult, Trainer
from stepwell.training.plan import never
from stepwell.types import Episode, Floats, Group, Metrics, Row, Sampling, Scored

TOKENIZER = SpokenTokenizer(("left[]", "right[]", "stop[]"))
CHAT = Chat.of(TOKENIZER)
TEXT = Text(TOKENIZER.decode, CHAT.eos_ids)
NO_CLIP = OptimizerSpec(max_grad_norm=1e6)


@dataclass
class Server(ServedService):
    """One whose samplers have copies of the weights, and which notes what it is asked for."""

    asked: list[str] = field(default_factory=list)

    def create(self, rank: int, seed: int) -> ServedTrainee:
        return Trainee(self, self.make(replace(self.spec, rank=rank)), self.spec.optimizer)

    def restore(self, path: str, rank: int, *, optimizer: bool) -> ServedTrainee:
        return Trainee(self, super().restore(path, rank, optimizer=optimizer).model, self.specs[path])


class Trainee(ServedTrainee):
    service: Server

    def forward_backward(self, data: Sequence[Datum], loss_fn: str, loss_fn_config: Mapping[str, float]) -> list[Floats]:
        self.service.asked.append("learn")
        return super().forward_backward(data, loss_fn, loss_fn_config)

    def optim_step(self, optimizer: OptimizerSpec, lr: float) -> Metrics:
        self.service.asked.append("step")
        return super().optim_step(optimizer, lr)

    def speaker(self) -> ServedSpeaker:
        return Speaker(self.model.keep(), self.service)


class Speaker(ServedSpeaker):
    def __init__(self, policy: object, server: Server) -> None:
        super().__init__(policy, TEXT)  # type: ignore[arg-type]
        self._server = server

    def sample(self, asked: Sequence[Asked]) -> list[Said]:
        self._server.asked.append("sample")
        return super().sample(asked)


class Parity:
    """An outcome that any words have: whether the first token is even."""

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        def paid(episode: Episode) -> Scored:
            steps = by_turn(episode)
            even = float(episode.turns[0].token_ids[0] % 2 == 0)
            return Scored(episode, steps, even, {}, np.zeros(len(steps), np.bool_))

        return [Group(group.task, tuple(map(paid, group.members))) for group in groups]


def tables() -> Callable[[ModelSpec], Model]:
    engine, names = TableEngine(160, TEXT, spread=4.0, seed=1), count()
    return lambda spec: engine.model(f"model-{next(names)}", replace(spec, kind="full", of=None))


def trainer(ahead: Callable[[int], bool], steps: int = 6, server: Server | None = None) -> tuple[Trainer, Server]:
    server = server or Server(tables(), TEXT, spec=ModelSpec(kind="lora", optimizer=NO_CLIP))
    policy = RemoteEngine(server, TEXT, 100_000).model("policy", ModelSpec(kind="lora", optimizer=NO_CLIP))
    domain = CaveDomain(num_test_tasks=4)
    parts = Parts(
        domain=domain,
        policy=policy,
        player=Player(CHAT, BRACKET, Sampling(max_tokens=1), Limits(turns=3, context=100_000)),
        judge=Parity,
        assign=OutcomeOnly(LeaveOneOut()),
        curriculum=Uniform(domain, (0.0, 0.2), 3),
    )
    loss = PolicyLoss(old="given", correction=Truncated(2.0))
    learning = Learning(
        steps=steps, groups=4, group_size=4, loss=loss, schedule=Schedule(0.3), optimizer=NO_CLIP, old_logprobs="trainer", ahead=ahead
    )
    return Trainer(parts, seed=5, cloning=None, learning=learning), server


def told(results: Sequence[StepResult]) -> list[list[list[int]]]:
    return [[turn.token_ids.tolist() for g in r.groups for m in g.members for turn in m.scored.episode.turns] for r in results]


def test_the_next_batch_is_sampled_before_the_update_with_weights_that_are_one_update_old() -> None:
    made, server = trainer(lambda step: True)
    results = list(made.run())
    assert [r.metrics["rollout/lag"] for r in results] == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    first_update = server.asked.index("step")
    turns = max(len(m.scored.episode.turns) for g in results[0].groups for m in g.members)
    assert server.asked[:first_update].count("sample") > turns, "more than the first batch's turns"
    assert all(
        turn.version == n - 1 for n, r in enumerate(results[1:], 1) for g in r.groups for m in g.members for turn in m.scored.episode.turns
    )
    assert all("time/ahead_s" in r.metrics for r in results[:-1])


def test_never_ahead_is_the_loop_as_it_was() -> None:
    one, other = list(trainer(never)[0].run()), list(trainer(lambda step: False)[0].run())
    assert told(one) == told(other)
    assert all(r.metrics["rollout/lag"] == 0.0 and "time/ahead_s" not in r.metrics for r in one)


def test_it_is_deterministic_and_goes_on_behind_a_checkpoint_to_the_same_numbers(tmp_path: Path) -> None:
    ahead = lambda step: step % 3 != 0  # noqa: E731
    straight = list(trainer(ahead)[0].run())
    assert [r.metrics["rollout/lag"] for r in straight] == [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    assert told(straight) == told(list(trainer(ahead)[0].run()))
    first, server = trainer(ahead)
    run = first.run()
    begun = [next(run) for _ in range(3)]
    state = first.state()
    for name, model in first.models().items():
        model.save(tmp_path / name)
    second, _ = trainer(ahead, server=server)

    def restored(models: Mapping[str, Saveable]) -> None:
        for name, model in models.items():
            model.load(tmp_path / name)

    second.restore(state, restored)
    assert told(straight) == told([*begun, *second.run()])


def test_what_the_thread_meets_is_raised_in_the_next_step() -> None:
    made, _ = trainer(lambda step: True)
    run = made.run()
    next(run)

    def broken(n: int, step: int) -> list[object]:
        raise ConfigError("no more tasks")

    made.parts.curriculum.draw = broken  # type: ignore[method-assign, assignment]
    next(run)  # Was drawn before.
    with pytest.raises(ConfigError, match="no more tasks"):
        next(run)


def test_a_sampler_that_is_ahead_has_no_forward_path() -> None:
    made, _ = trainer(never)
    policy = made.parts.policy
    with pytest.raises(CapabilityError, match="no forward path"):
        policy.ahead().logprobs([Row.of(np.array([1, 2]), np.array([1]))])  # type: ignore[attr-defined]


REMOTE = (
    "engine.kind=remote",
    "engine.url=http://127.0.0.1:1",
    "engine.model=m",
    "rollout.ahead=true",
    "reward.kind=outcome",
    "credit.kind=rloo",
)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("rollout.ahead=true",), "engine.kind 'tiny', where sampling and learning share the weights"),
        (REMOTE, "loss.old_logprobs 'detached', by which samples of older weights count"),
        (
            (*REMOTE, "loss.old_logprobs=sampler", "reward.kind=implicit", "reward.model=lora", "credit.kind=istar"),
            r"the judge 'implicit' \(reward\) asks the policy that has played",
        ),
        ((*REMOTE, "loss.old_logprobs=trainer"), "or to 'trainer' with loss.correction=truncate"),
        (
            (*REMOTE, "loss.old_logprobs=sampler", "reward.kind=outcome", "credit.kind=counterfactual"),
            "that plays episodes of its own meanwhile",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: Sequence[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_base(settings)


def load_base(settings: Sequence[str]) -> Config:
    from stepwell.configure import parse

    return parse({}, settings)


def test_no_batch_behind_a_checkpoint_is_sampled_ahead() -> None:
    config = load_base((*REMOTE, "loss.old_logprobs=sampler", "checkpoint.every=4", "evaluation.every=6"))
    ahead = _ahead(config)
    assert [step for step in range(1, 13) if not ahead(step)] == [4, 6, 8, 12]
    assert _ahead(load("smoke")) is never
