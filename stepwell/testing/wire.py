"""A server of the Tinker API that computes next to nothing: for tests of what clients do when answers are late, lost or refused.

It speaks the protocol of the SDK (extra `remote`) on 127.0.0.1. A model is one number: a step adds lr x (the sum of all advantages and
weights since the last one), so that a gradient that is applied twice, or not at all, shows.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import numpy as np

from stepwell.types import JSON

__all__ = ["Wire"]

_PROTO = "application/x-protobuf"
_API = "/api/v1/"


@dataclass
class _Held:
    """A model: its number, the gradient that waits, and how many gradients were applied."""

    weight: float = 0.0
    waiting: float = 0.0
    applied: int = 0


@dataclass
class Wire:
    """The server; use it as a context manager.

    Attributes:
        base: Name of its base model.
        key: Which key it wants; None is any.
        recognises: Whether a training call with a sequence number that it knows is answered as before, and not applied again.
        latency_s: Seconds of each call, by its name (`forward_backward`, `asample`, ...).
        lose: Names of calls whose next answers are lost after they were carried out; each loss takes one name away.
        refuse: (name, status) of calls that are answered with an error before they are carried out; each takes one away.
        tokens: How many tokens a sample has; None is as many as are asked for.
        samples: How many samples a request gets; None is as many as are asked for.
        bytes_in, bytes_out: Bodies so far.
        calls: How often each call arrived.
        sampled: For how many samples each request for samples asked.
    """

    base: str = "base"
    key: str | None = None
    recognises: bool = True
    latency_s: Mapping[str, float] = field(default_factory=dict)
    lose: list[str] = field(default_factory=list)
    refuse: list[tuple[str, int]] = field(default_factory=list)
    tokens: int | None = None
    samples: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    sampled: list[int] = field(default_factory=list)
    models: dict[str, _Held] = field(default_factory=dict)
    states: dict[str, _Held] = field(default_factory=dict)
    port: int = 0
    _answers: list[JSON | bytes] = field(default_factory=list)
    _known: dict[tuple[str, int], int] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)
    _links: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Wire:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """It is gone: nobody answers any more, and open connections break."""
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # -- calls ----------------------------------------------------------------------------------------------------------------

    def get(self, path: str) -> JSON | None:
        """The answer to a GET; None where there is none of this path."""
        if path == f"{_API}healthz":
            return {"status": "ok"}
        if path == f"{_API}get_server_capabilities":
            return {"supported_models": [{"model_name": self.base, "max_context_length": 16384}]}
        if path.startswith(f"{_API}samplers/"):
            return {"sampler_id": path.rpartition("/")[2], "base_model": self.base, "model_path": None}
        return None

    def post(self, name: str, body: bytes) -> JSON | bytes | None:
        """The answer to a POST; None where there is none of this name."""
        if name == "forward_backward":
            return self._future(*self._gradient(body))
        asked = json.loads(body) if body else {}
        model = str(asked.get("model_id", ""))
        plain: dict[str, Callable[[], JSON]] = {
            "client/config": lambda: {"pjwt_auth_enabled": False, "parallel_fwdbwd_chunks": False},
            "client/dynamic_config": dict,
            "create_session": lambda: {"type": "create_session", "session_id": "session"},
            "session_heartbeat": lambda: {"type": "session_heartbeat"},
            "create_sampling_session": lambda: {"type": "create_sampling_session", "sampling_session_id": "speaker"},
            "telemetry": lambda: {"status": "accepted"},
            "get_info": lambda: {"model_id": model, "model_data": {"model_name": self.base}},
            "weights_info": lambda: {"base_model": self.base, "is_lora": True, "lora_rank": 4},
        }
        if name in plain:
            return plain[name]()
        seq = int(asked.get("seq_id") or 0)
        kept: dict[str, Callable[[], JSON]] = {
            "create_model": lambda: self._create(asked),
            "unload_model": lambda: {"model_id": model, "type": "unload_model"},
            "optim_step": lambda: self._step(model, asked),
            "save_weights": lambda: self._save(model, str(asked["path"])),
            "load_weights": lambda: self._load(model, str(asked["path"])),
            "save_weights_for_sampler": lambda: {"type": "save_weights_for_sampler", "path": None, "sampling_session_id": "speaker"},
        }
        if name in kept:
            return self._future(model, seq, kept[name])
        if name == "asample":
            return self._future("", 0, lambda: self._sample(asked))
        if name == "retrieve_future":
            return self._answers[int(asked["request_id"])]
        return None

    def _future(self, model: str, seq: int, carry_out: Callable[[], JSON | bytes]) -> JSON:
        with self._lock:
            known = self._known.get((model, seq)) if self.recognises and model and seq else None
            if known is None:
                self._answers.append(carry_out())
                known = len(self._answers) - 1
                self._known[model, seq] = known
            return {"request_id": str(known), "future_id": str(known), "status": "pending", "model_id": model or None}

    def _create(self, asked: Mapping[str, Any]) -> JSON:
        name = f"model-{len(self.models)}"
        self.models[name] = _Held()
        return {"model_id": name, "base_model": self.base, "type": "create_model"}

    def _step(self, model: str, asked: Mapping[str, Any]) -> JSON:
        held = self.models[model]
        held.weight += float(asked["adam_params"]["learning_rate"]) * held.waiting
        held.waiting, held.applied = 0.0, held.applied + 1
        return {"metrics": {"wire/grad_norm": abs(held.weight)}, "type": "optim_step"}

    def _save(self, model: str, name: str) -> JSON:
        path = f"tinker://{model}/weights/{name}"
        self.states[path] = _Held(self.models[model].weight)
        return {"path": path, "type": "save_weights"}

    def _load(self, model: str, path: str) -> JSON:
        self.models[model] = _Held(self.states[path].weight)
        return {"path": path, "type": "load_weights"}

    def _gradient(self, body: bytes) -> tuple[str, int, Callable[[], bytes]]:
        from tinker.proto import tinker_public_pb2 as words

        asked = words.ForwardBackwardRequest()
        asked.ParseFromString(body)
        lengths = [len(datum.loss_fn_inputs["target_tokens"].dense) // 8 for datum in asked.data]
        forces = [
            float(np.frombuffer(datum.loss_fn_inputs[name].dense, np.float32).sum())
            for datum in asked.data
            for name in ("advantages", "weights")
            if name in datum.loss_fn_inputs
        ]

        def carry_out() -> bytes:
            held = self.models[asked.model_id]
            if not asked.forward_only:
                held.waiting += sum(forces)
            return _packed([np.full(n, -1.0 - 0.01 * np.tanh(held.weight), np.float32) for n in lengths])

        return asked.model_id, int(asked.seq_id), carry_out

    def _sample(self, asked: Mapping[str, Any]) -> bytes:
        from tinker.proto import tinker_public_pb2 as words

        made, settings = words.SampleResponse(), asked["sampling_params"]
        n = int(settings["max_tokens"]) if self.tokens is None else min(self.tokens, int(settings["max_tokens"]))
        self.sampled.append(int(asked.get("num_samples", 1)))
        for index in range(self.sampled[-1] if self.samples is None else self.samples):
            draw = np.random.default_rng(int(settings.get("seed") or 0) + index)
            made.sequences.append(
                words.SampledSequence(
                    stop_reason=words.STOP_REASON_LENGTH,
                    tokens=draw.integers(5, 60, n).astype(np.int32).tobytes(),
                    logprobs=np.full(n, -1.0, np.float32).tobytes(),
                )
            )
        packed: bytes = made.SerializeToString()
        return packed


def _packed(arrays: Sequence[np.ndarray[Any, np.dtype[np.float32]]]) -> bytes:
    """Log-probs of all data, as the SDK reads them."""
    from tinker.proto import tinker_public_pb2 as words

    made = words.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    record = made.loss_fn_outputs.add()
    record.num_datums = len(arrays)
    offsets = np.concatenate([[0], np.cumsum([array.nbytes for array in arrays])]).astype(np.int64)
    record.fields["logprobs"].CopyFrom(
        words.BatchedTensor(data=b"".join(array.tobytes() for array in arrays), offsets=offsets.tobytes(), dtype=words.DTYPE_FLOAT32)
    )
    packed: bytes = made.SerializeToString()
    return packed


def _handler(wire: Wire) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            wire._links.append(self.request)
            super().setup()

        def log_message(self, *args: object) -> None:
            return

        def do_GET(self) -> None:
            if self._refused(self.path.removeprefix(_API)):
                return
            said = wire.get(self.path)
            self._say(404 if said is None else 200, {"detail": "Not Found"} if said is None else said)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            name = self.path.removeprefix(_API)
            wire.bytes_in += len(body)
            if self._refused(name):
                return
            time.sleep(wire.latency_s.get(name, 0.0))
            said = wire.post(name, body)
            if name in wire.lose:
                wire.lose.remove(name)
                self.close_connection = True
                return
            self._say(404 if said is None else 200, {"detail": "Not Found"} if said is None else said)

        def _refused(self, name: str) -> bool:
            wire.calls[name] += 1
            if wire.key is not None and self.headers.get("X-API-Key") != wire.key and name != "healthz":
                self._say(401, {"detail": "wrong key"})
                return True
            for at, (refused, status) in enumerate(wire.refuse):
                if refused == name:
                    del wire.refuse[at]
                    self._say(status, {"detail": f"no {name} now"})
                    return True
            return False

        def _say(self, status: int, said: JSON | bytes) -> None:
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", _PROTO if isinstance(said, bytes) else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            wire.bytes_out += len(body)

    return Handler
