"""Models that learn and speak on a server: policy and judges as adapters over its base."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stepwell.engine.carrier import Carrier, Datum
from stepwell.engine.local import Text
from stepwell.engine.remote_policy import AheadPolicy, RemotePolicy, note_path, noted_path, put_by
from stepwell.engine.servers import check_clips
from stepwell.engine.service import Service, Speaker, Trainee
from stepwell.errors import CapabilityError, ConfigError
from stepwell.protocols import Capabilities, Loss, ModelSpec, OptimizerSpec
from stepwell.seeding import derive
from stepwell.types import Floats, Metrics, Row

__all__ = ["RemoteEngine", "RemoteModel", "RemotePolicy", "check_spec"]

NOTHING: frozenset[str] = frozenset()
_POLICY = "policy"
_SEEDS = 2**31
_ROUNDING = 1e-5


class RemoteEngine:
    """Adapters on one server, or the policy on one and all judges on another.

    Args:
        service: The server.
        text: How to decode and when a turn ends; of the server's base.
        max_length: Tokens of the longest sequence.
        judges: Where all models but `policy` live; None is the same server.
        seed: Of freshly made adapters.
    """

    def __init__(self, service: Service, text: Text, max_length: int, *, judges: Service | None = None, seed: int = 0) -> None:
        self.service, self.text, self.max_length, self.seed = service, text, max_length, seed
        self._judges = judges or service
        self._models: dict[str, RemoteModel] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(kinds=frozenset({"lora"}), entropy=False, values=False)

    @property
    def notice(self) -> str:
        """What a user should know about the servers, or ""."""
        return "\n".join(dict.fromkeys(filter(None, (self.service.notice, self._judges.notice))))

    def check_vocabulary(self, size: int) -> None:
        """Asks every server for the log-prob of the last token that the tokenizer can say, under a passing adapter.

        Raises:
            ConfigError: The base has fewer tokens.
        """
        for service in [self.service, *([] if self._judges is self.service else [self._judges])]:
            trainee = service.create(1, 0)
            last = np.full(2, size - 1)
            (said,) = trainee.forward([Datum(np.array([0, size - 1]), last, {"weights": np.ones(2)})])
            trainee.close()
            if not bool(np.all(np.isfinite(said)) and np.all(said <= _ROUNDING)):
                raise ConfigError(
                    f"The tokenizer has {size} tokens, and {service.base} at {service.url} gives the last of them the log-probs {said}: "
                    "its vocabulary is another. Set engine.tokenizer to that of the base."
                )

    def model(self, name: str, spec: ModelSpec) -> RemoteModel:
        """A new trainable adapter; see `ModelSpec`.

        Raises:
            ConfigError: A name that is taken or unknown.
            CapabilityError: What the server cannot do; names the setting and the way out.
        """
        if name in self._models:
            raise ConfigError(f"The engine already has a model named {name!r}; choose another name.")
        if spec.of is not None and spec.of not in self._models:
            raise ConfigError(f"Model {name!r} starts from {spec.of!r}, which does not exist; known: {', '.join(self._models) or 'none'}.")
        service = self.service if name == _POLICY else self._judges
        self.check_room(name, service)
        check_spec(name, spec, service)
        of = None if spec.of is None else self._models[spec.of]
        made = RemoteModel(self, service, name, spec, self._start(name, spec, service, of))
        self._models[name] = made
        return made

    def as_it_is(self) -> RemotePolicy:
        """The base as it is served: an adapter that changes nothing."""
        return self.model("as-it-is", ModelSpec(kind="lora", rank=1, alpha=self._judges.kind.alpha)).snapshot()

    def check_room(self, name: str, service: Service) -> None:
        """Raises `CapabilityError` where the server holds as many models as it can."""
        there = [other for other, model in self._models.items() if model.service is service]
        if service.kind.models is not None and len(there) >= service.kind.models:
            raise CapabilityError(
                f"Model {name!r} finds no place: a server of kind {service.kind.name!r} holds {service.kind.models}, and {service.url} has "
                f"{', '.join(there)}; give judges a server of their own (engine.judge_url), or choose a reward without a model."
            )

    def _start(self, name: str, spec: ModelSpec, service: Service, of: RemoteModel | None) -> Trainee:
        if of is None or of.is_fresh:
            return service.create(spec.rank, derive(self.seed, "adapter", name) % _SEEDS)
        if of.service is not service:
            raise CapabilityError(
                f"Model {name!r} starts as {spec.of!r}, which {of.service.url} has trained, and weights do not travel to {service.url}; "
                "leave engine.judge_url out, or make judges before the policy learns (cloning.steps=0)."
            )
        if of.spec.rank != spec.rank:
            raise ConfigError(
                f"Model {name!r} has rank {spec.rank} and starts from {spec.of!r} of rank {of.spec.rank}; give both the same."
            )
        return service.restore(of.put_by(), spec.rank, optimizer=False)


def check_spec(name: str, spec: ModelSpec, service: Service) -> None:
    """Refuses what a server of this kind cannot do.

    Raises:
        CapabilityError: Says what, and the way out.
    """
    kind = service.kind
    if spec.kind != "lora":
        setting = "a head, which reads hidden states: choose a reward and a credit rule without one"
        setting = setting if spec.kind == "head" else "full weights: set engine.policy and reward.model to lora"
        raise CapabilityError(f"Model {name!r} is to be {setting}; the Tinker API trains adapters.")
    if spec.rank < 1:
        raise ConfigError(f"The rank of adapter {name!r} is {spec.rank}; it needs at least 1.")
    if spec.alpha != kind.alpha:
        raise CapabilityError(
            f"engine.alpha is {spec.alpha:g}; servers of kind {kind.name!r} have adapters of alpha {kind.alpha:g} alone: set it to that."
        )
    if spec.temperature != 1.0:
        raise CapabilityError(
            f"rollout.temperature is {spec.temperature:g}; the log-probs of a server are those at temperature 1: set it to 1, "
            "or use a local engine."
        )
    setting = "optimizer.max_grad_norm" if name == _POLICY else "reward.max_grad_norm"
    check_clips(kind, spec.optimizer.max_grad_norm, setting)


class RemoteModel:
    """One adapter on a server: `protocols.Model`.

    Attributes:
        stamp: Another object whenever the weights are others.
        trainee: The adapter on the server.
    """

    def __init__(self, engine: RemoteEngine, service: Service, name: str, spec: ModelSpec, trainee: Trainee) -> None:
        self.engine, self.service, self.name, self.spec = engine, service, name, spec
        self.version = 0
        self.stamp = object()
        self.trainee = trainee
        self._carrier = Carrier(trainee, service.kind.dialect, spec.optimizer)
        self._moved = self._stepped = False
        self._speaker: Speaker | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether it still is what any fresh adapter is: the base."""
        return not self._moved

    # -- outputs --------------------------------------------------------------------------------------------------------------

    def forward(self, rows: Sequence[Row], want: frozenset[str] = NOTHING) -> list[dict[str, Floats]]:
        """See `protocols.Model.forward`; log-probs alone."""
        return self._carrier.forward(rows, want)

    def speaker(self) -> Speaker:
        """What samples with the present weights; made once for each version."""
        if self._speaker is None:
            self._speaker = self.trainee.speaker()
        return self._speaker

    # -- learning -------------------------------------------------------------------------------------------------------------

    def backward(self, rows: Sequence[Row], loss: Loss) -> Metrics:
        """See `protocols.Model.backward`."""
        return self._carrier.backward(rows, loss)

    def step(self, lr: float) -> Metrics:
        """See `protocols.Model.step`."""
        metrics = self._carrier.step(lr)
        self._moved = self._stepped = True
        self._move_to(self.version + 1)
        return metrics

    def restart_optimizer(self, spec: OptimizerSpec) -> None:
        """Fresh optimiser state, and no gradient; the weights stay. Where there was a step, they move into a new adapter."""
        setting = "optimizer.max_grad_norm (and cloning.optimizer.max_grad_norm)"
        check_clips(self.service.kind, spec.max_grad_norm, setting if self.name == _POLICY else "reward.max_grad_norm")
        trainee = self.trainee
        if self._stepped:
            trainee = self.service.restore(self.put_by(), self.spec.rank, optimizer=False)
            self._stepped = False
        self._use(trainee, spec)

    # -- weights --------------------------------------------------------------------------------------------------------------

    def snapshot(self) -> RemotePolicy:
        """See `protocols.Model.snapshot`."""
        return RemotePolicy(self, None)

    def ahead(self) -> RemotePolicy:
        """See `protocols.SamplesAhead.ahead`: a server samples with a copy that was made for it."""
        return AheadPolicy(self)

    def keep(self) -> RemotePolicy:
        """See `protocols.Model.keep`. An adapter of its own on the server."""
        self.engine.check_room(f"{self.name}-kept", self.service)
        return RemotePolicy(self, self.service.restore(self.put_by(), self.spec.rank, optimizer=False))

    def put_by(self) -> str:
        """Saves on the server's side, under a name that nothing else has; returns the path."""
        return put_by(self.trainee, self.name, self.version)

    def save(self, path: Path) -> None:
        """Has the server write weights and optimiser, and notes where; see `load`."""
        note_path(path, {"path": self.put_by(), "version": self.version, "moved": self._moved, "stepped": self._stepped}, self)

    def load(self, path: Path) -> None:
        """Restores what `save` wrote, in a new adapter.

        Raises:
            RunError: It was saved on another server, or for another base or rank.
        """
        facts = noted_path(path, self)
        trainee = self.service.restore(str(facts["path"]), self.spec.rank, optimizer=True)
        self._moved, self._stepped = bool(facts["moved"]), bool(facts["stepped"])
        self._use(trainee, self._carrier.optimizer)
        self._move_to(int(str(facts["version"])))

    def close(self) -> None:
        """Gives its place on the server back; it is of no use afterwards."""
        self.trainee.close()

    def _use(self, trainee: Trainee, optimizer: OptimizerSpec) -> None:
        self._carrier = Carrier(trainee, self.service.kind.dialect, optimizer)
        if trainee is not self.trainee:
            self.trainee.close()
            self.trainee, self._speaker = trainee, None

    def _move_to(self, version: int) -> None:
        self.version, self.stamp, self._speaker = version, object(), None
