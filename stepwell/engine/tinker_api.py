"""The Tinker API over its SDK: the only module that imports `tinker`.

About ten of the SDK's methods are used, which are the same from 0.25 on.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stepwell.engine.carrier import Datum
from stepwell.engine.patience import Patience, Watch
from stepwell.engine.servers import UNCLIPPED, ServerKind
from stepwell.engine.service import Asked, Said, check_count
from stepwell.engine.web import Web
from stepwell.errors import CapabilityError, ConfigError, MissingExtraError, ServerError
from stepwell.protocols import OptimizerSpec
from stepwell.types import Floats, Metrics

__all__ = ["TinkerService", "TinkerSpeaker", "TinkerTrainee"]

_UNKNOWN = "Whether it was applied is not known, so it is not sent again; go on from the last checkpoint with --resume."
_AGAIN = "Nothing was trained by it; run again, or go on from the last checkpoint with --resume."
_CALL_DATA, _CALL_BYTES = 1024, 5_000_000
"""What the SDK sends in one call, at most."""


def _sdk() -> Any:
    os.environ.setdefault("TINKER_TELEMETRY", "0")  # it would send every error, with the headers of the request, to the server
    try:
        import tinker
    except ImportError as error:
        raise MissingExtraError("tinker", "remote") from error
    return tinker


class TinkerService:
    """`service.Service` on a server of the Tinker API.

    Args:
        web: The server's address and key.
        kind: What kind of server it is.
        base: Name of the base model, which must be the server's.
        patience: How long calls may take.

    Raises:
        MissingExtraError: The SDK is not installed.
        ConfigError: The server serves other models, or refuses the key.
        ServerError: It does not answer.
    """

    def __init__(self, web: Web, kind: ServerKind, base: str, patience: Patience) -> None:
        self._tinker = _sdk()
        web.check_key(kind)
        self._web, self.kind, self.base = web, kind, base
        self.url = web.url
        self._watch = Watch(patience, web.is_alive, self._passes, f"The server at {web.url}")
        facts = web.served_models()
        if base not in facts:
            served = ", ".join(facts) or "none"
            raise ConfigError(f"engine.model is {base!r}, and the server at {web.url} serves {served}; set engine.model to what it serves.")
        self.max_length = facts[base]
        self.notice = web.version_notice(kind)
        self._client = self._open()

    def _open(self) -> Any:
        """The SDK's client, with a session of its own."""
        service = self._tinker.ServiceClient(base_url=self.url, api_key=self._web.key)

        def holder() -> Any:
            return service.holder

        try:
            found = self._watch.safely("open a session", holder)
        except ServerError as error:
            if isinstance(error.__cause__, self._tinker.AuthenticationError | self._tinker.PermissionDeniedError):
                raise ConfigError(f"The server at {self.url} refuses the key in the environment variable {self._web.key_name}.") from None
            raise
        if not self.kind.recognises_repeats:
            _send_once(found)
        return service

    def create(self, rank: int, seed: int) -> TinkerTrainee:
        """See `service.Service.create`.

        Raises:
            CapabilityError: The server has no adapter of this rank, or no place for one more.
        """
        try:
            client = self._watch.once(
                f"make an adapter of rank {rank}",
                _settled(lambda: self._client.create_lora_training_client(base_model=self.base, rank=rank, seed=seed)),
                after="Look at engine.rank and at how many models the server holds.",
            )
        except ServerError as error:
            if "rank" in str(error.__cause__).lower():
                raise CapabilityError(
                    f"The server at {self.url} has no adapters of rank {rank}: {_said(error)} Set engine.rank to what it offers."
                ) from error
            raise
        return TinkerTrainee(client, self)

    def restore(self, path: str, rank: int, *, optimizer: bool) -> TinkerTrainee:
        """See `service.Service.restore`."""
        if self.kind.restores == "new":
            make = "create_training_client_from_state_with_optimizer" if optimizer else "create_training_client_from_state"
            ask: Callable[[], Any] = lambda: getattr(self._client, make)(path)  # noqa: E731
            return TinkerTrainee(self._watch.once(f"restore {path}", _settled(ask), after=_AGAIN), self)
        trainee = self.create(rank, 0)
        load = trainee.client.load_state_with_optimizer if optimizer else trainee.client.load_state
        self._watch.once(f"restore {path}", _settled(lambda: load(path)), after=_AGAIN)
        return trainee

    def close(self) -> None:
        """Ends the session and its connections."""
        self._client.holder.close()

    def once(self, what: str, ask: Callable[[], Any], after: str) -> Any:
        """See `patience.Watch.once`."""
        return self._watch.once(what, _settled(ask), after=after)

    def safely(self, what: str, ask: Callable[[], Any]) -> Any:
        """See `patience.Watch.safely`."""
        return self._watch.safely(what, _settled(ask))

    def unload(self, model: str) -> None:
        """Asks the server to forget a model; one that does not know how keeps it until the session ends."""
        self._web.post("/api/v1/unload_model", {"model_id": model, "type": "unload_model"})

    def _passes(self, error: BaseException) -> bool:
        known = self._tinker
        if isinstance(error, known.APIStatusError):
            return error.status_code in (408, 429) or error.status_code >= 500
        return isinstance(error, known.APIConnectionError | ConnectionError | TimeoutError) or type(error).__name__ == "RetryableException"

    # -- words of the SDK -----------------------------------------------------------------------------------------------------

    def data(self, data: Sequence[Datum]) -> list[Any]:
        """Data as the SDK takes them."""
        types = self._tinker.types

        def tensor(values: Floats, kind: str) -> Any:
            return types.TensorData(data=np.ascontiguousarray(values), dtype=kind, shape=[len(values)])

        return [
            types.Datum(
                model_input=types.ModelInput.from_ints(datum.tokens.tolist()),
                loss_fn_inputs={"target_tokens": tensor(datum.target_tokens.astype(np.int64), "int64")}
                | {name: tensor(values.astype(np.float32), "float32") for name, values in datum.inputs.items()},
            )
            for datum in data
        ]

    def adam(self, optimizer: OptimizerSpec, lr: float) -> Any:
        """The settings of a step."""
        clip = optimizer.max_grad_norm if self.kind.clips == "asked" and optimizer.max_grad_norm < UNCLIPPED else 0.0
        return self._tinker.types.AdamParams(
            learning_rate=lr,
            beta1=optimizer.betas[0],
            beta2=optimizer.betas[1],
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            grad_clip_norm=clip,
        )

    def prompt(self, asked: Asked) -> tuple[Any, Any]:
        """Prompt and settings of a completion."""
        types = self._tinker.types
        settings = types.SamplingParams(
            max_tokens=asked.max_tokens, temperature=asked.temperature, seed=asked.seed, stop=list(asked.stop) or None
        )
        return types.ModelInput.from_ints(asked.context.tolist()), settings


class TinkerTrainee:
    """`service.Trainee`: one adapter and its optimiser on the server."""

    def __init__(self, client: Any, service: TinkerService) -> None:
        self.client, self._service = client, service

    def forward(self, data: Sequence[Datum]) -> list[Floats]:
        """See `carrier.Remote.forward`."""
        found: list[Floats] = []
        for part in _parts(data):
            sent = self._service.data(part)
            made = self._service.safely("compute log-probs", lambda: self.client.forward(sent, "cross_entropy"))  # noqa: B023 - used at once
            found += _logprobs(made, len(part))
        return found

    def forward_backward(self, data: Sequence[Datum], loss_fn: str, loss_fn_config: Mapping[str, float]) -> list[Floats]:
        """See `carrier.Remote.forward_backward`."""
        size = sum(4 * len(d.tokens) + sum(4 * len(values) for values in (d.target_tokens, *d.inputs.values())) for d in data)
        if self._service.kind.dialect.reduction == "token_mean" and (len(data) > _CALL_DATA or 2 * size > _CALL_BYTES):
            raise CapabilityError(
                f"{len(data)} rows of {size} bytes do not go into one call, and a server of kind {self._service.kind.name!r} averages over "
                "each call, so that their sum cannot be had; make rollout.groups or rollout.context smaller."
            )
        config = dict(loss_fn_config) or None
        found: list[Floats] = []
        for part in _parts(data):
            sent = self._service.data(part)

            def ask(sent: list[Any] = sent) -> Any:
                return self.client.forward_backward(sent, loss_fn, loss_fn_config=config)

            found += _logprobs(self._service.once("compute a gradient", ask, after=_UNKNOWN), len(part))
        return found

    def optim_step(self, optimizer: OptimizerSpec, lr: float) -> Metrics:
        """See `carrier.Remote.optim_step`. Of the server's metrics the gradient's norm is kept."""
        params = self._service.adam(optimizer, lr)
        made = self._service.once("apply a gradient", lambda: self.client.optim_step(params), after=_UNKNOWN)
        metrics: Mapping[str, float] = made.metrics or {}
        norms = [float(value) for name, value in metrics.items() if name.rpartition("/")[2].partition(":")[0] == "grad_norm"]
        return {"grad_norm": norms[0]} if norms else {}

    def speaker(self) -> TinkerSpeaker:
        """See `service.Trainee.speaker`."""
        made = self._service.once("make its weights speak", self.client.save_weights_and_get_sampling_client, after=_AGAIN)
        return TinkerSpeaker(made, self._service)

    def save(self, name: str) -> str:
        """See `service.Trainee.save`."""
        made = self._service.once(f"save {name}", lambda: self.client.save_state(name), after=_AGAIN)
        return str(made.path)

    def close(self) -> None:
        """See `service.Trainee.close`."""
        self._service.unload(str(self.client.model_id))


class TinkerSpeaker:
    """`service.Speaker`: all requests are in flight together, which a server batches; each has its own seed, and is sent again whole."""

    def __init__(self, client: Any, service: TinkerService) -> None:
        self._client, self._service = client, service

    def sample(self, asked: Sequence[Asked]) -> list[Said]:
        """See `service.Speaker.sample`."""

        def send(one: Asked) -> Any:
            prompt, settings = self._service.prompt(one)
            return self._client.sample(prompt=prompt, num_samples=one.samples, sampling_params=settings)

        def result(future: Any, one: Asked) -> Any:
            held = [future]
            return self._service.safely("sample", lambda: held.pop() if held else send(one))

        futures = [send(one) for one in asked]
        return [said for future, one in zip(futures, asked, strict=True) for said in _said_tokens(result(future, one), one.samples)]


def _settled(ask: Callable[[], Any]) -> Callable[[], Any]:
    """A call whose future, if it gives one, is waited for: what is a future differs between versions of the SDK."""

    def run() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            made = ask()
            return made.result() if callable(getattr(made, "result", None)) else made

    return run


def _send_once(holder: Any) -> None:
    """Switches the SDK's own repeats off, for servers that would apply a repeated call twice; both of its layers repeat."""
    settings = getattr(holder, "_constructor_kwargs", None)
    if not callable(getattr(holder, "_is_retryable_exception", None)) or not isinstance(settings, dict):
        raise CapabilityError(
            "This version of the SDK (tinker) repeats calls in a way that cannot be switched off, and this kind of server would apply a "
            "repeated gradient twice; install tinker 0.25 to 0.38."
        )
    holder._is_retryable_exception = lambda error: False
    settings["max_retries"] = 0


def _parts(data: Sequence[Datum]) -> list[Sequence[Datum]]:
    """Data in parts that go one after the other, so that memory is bounded; a server adds their gradients up."""
    return [data[at : at + _CALL_DATA] for at in range(0, len(data), _CALL_DATA)]


def _logprobs(made: Any, wanted: int) -> list[Floats]:
    found = [np.asarray(output["logprobs"].data, np.float64) for output in made.loss_fn_outputs]
    if len(found) != wanted:
        raise ServerError(f"The server returned log-probs of {len(found)} sequences for {wanted}; run stepwell engine check on it.")
    return found


def _said_tokens(made: Any, wanted: int) -> list[Said]:
    """The samples of one request."""
    check_count(len(made.sequences), wanted)
    if any(sequence.logprobs is None for sequence in made.sequences):
        raise ServerError("The server sampled tokens without their log-probs, which training needs; run stepwell engine check on it.")
    return [
        Said(np.asarray(one.tokens, np.int64), np.asarray(one.logprobs, np.float64), str(one.stop_reason) == "stop")
        for one in made.sequences
    ]


def _said(error: ServerError) -> str:
    line = (str(error.__cause__).strip().splitlines() or ["it says no more"])[0]
    return line if line.endswith(".") else f"{line}."
