"""Weights of a remote model, frozen at a version: what samples, and where they are kept."""

from __future__ import annotations

import bisect
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepwell.engine.carrier import Carrier
from stepwell.engine.local import Text
from stepwell.engine.policy import check_temperature
from stepwell.engine.remote_requests import request_seed, shared
from stepwell.engine.service import Asked, Said, Speaker, Trainee, check_count
from stepwell.errors import CapabilityError, DataError, RunError, ServerError, StaleWeightsError
from stepwell.files import read_json, write_atomic
from stepwell.protocols import OptimizerSpec
from stepwell.types import Completion, Floats, Ids, Row, Sampling, Stop

if TYPE_CHECKING:
    from stepwell.engine.remote import RemoteModel

__all__ = ["AheadPolicy", "RemotePolicy", "completed", "note_path", "noted_path", "put_by", "stops"]

_FILE = "remote.json"


class RemotePolicy:
    """Weights frozen at a version: `protocols.Policy`, and where they are kept `protocols.KeptPolicy`."""

    def __init__(self, model: RemoteModel, kept: Trainee | None) -> None:
        self._model, self._kept, self._stamp = model, kept, model.stamp
        self._speaker: Speaker | None = None
        self.version = model.version

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        """See `protocols.Policy.sample`. All requests are in flight together; rows of one prompt whose seeds are siblings (`seeding.among`:
        members of a group in a turn, continuations of one prefix) share a request, which sends the prompt once.

        On servers whose samples follow each other (`ServerKind.samples_follow`) a row's tokens depend on its context and its seed alone,
        as those of every engine do. On the others they depend on the seed of the first row of its request and on its place there: the same
        call gives the same tokens, but a call with fewer siblings may give others.

        Raises:
            ServerError: The server gave another number of samples.
        """
        self._check_present()
        check_temperature(1.0, sampling)
        if not len(contexts) == len(sampling) == len(seeds):
            raise ValueError(f"sample got {len(contexts)} contexts, {len(sampling)} samplings and {len(seeds)} seeds; all must be equal.")
        text = self._model.engine.text
        asked = [
            Asked(np.asarray(context, np.int64), s.max_tokens, s.temperature, stops(s, text), request_seed(seed))
            for context, s, seed in zip(contexts, sampling, seeds, strict=True)
        ]
        for one in asked:
            if not len(one.context) or len(one.context) + one.max_tokens > self._model.engine.max_length:
                raise ValueError(
                    f"A context of {len(one.context)} tokens with max_tokens {one.max_tokens} does not fit: 1 to "
                    f"{self._model.engine.max_length} tokens in all (engine.max_length)."
                )
        requests = shared(asked, self._model.service.kind.most_samples)
        said = self._speak().sample([one.asked for one in requests]) if asked else []
        rows = [row for one in requests for row in one.rows]
        check_count(len(said), len(rows))
        by_row = dict(zip(rows, said, strict=True))
        return [completed(by_row[row], s, text) for row, s in enumerate(sampling)]

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        """See `protocols.Policy.logprobs`."""
        self._check_present()
        if self._kept is None:
            return [made["logprobs"] for made in self._model.forward(rows)]
        return [made["logprobs"] for made in self._carrier(self._kept).forward(rows)]

    def save(self, path: Path) -> None:
        """Has the server write the kept weights, and notes where."""
        if self._kept is None:
            raise CapabilityError("Only a policy that keeps its weights can be saved; call model.keep().")
        note_path(path, {"path": put_by(self._kept, "kept", self.version), "version": self.version}, self._model)

    def load(self, path: Path) -> None:
        """Takes kept weights from what `save` wrote."""
        if self._kept is None:
            raise CapabilityError("Only a policy that keeps its weights can be loaded; call model.keep().")
        facts = noted_path(path, self._model)
        old, self._speaker = self._kept, None
        self._kept = self._model.service.restore(str(facts["path"]), self._model.spec.rank, optimizer=False)
        self.version = int(str(facts["version"]))
        old.close()

    def _carrier(self, kept: Trainee) -> Carrier:
        return Carrier(kept, self._model.service.kind.dialect, OptimizerSpec())

    def _speak(self) -> Speaker:
        if self._kept is None:
            return self._model.speaker()
        if self._speaker is None:
            self._speaker = self._kept.speaker()
        return self._speaker

    def _check_present(self) -> None:
        if self._kept is None and self._stamp is not self._model.stamp:
            raise StaleWeightsError(
                f"This policy is version {self.version}, and its model has moved on to version {self._model.version}; "
                "take a new snapshot, or keep() for a reference."
            )


class AheadPolicy(RemotePolicy):
    """The sampler of a version, which the model may leave behind; for sampling alone."""

    def __init__(self, model: RemoteModel) -> None:
        super().__init__(model, None)
        self._speaker = model.speaker()

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        """Not of these weights: the trainer has others by now."""
        raise CapabilityError("What samples ahead has no forward path; ask a snapshot for log-probs.")

    def _speak(self) -> Speaker:
        assert self._speaker is not None
        return self._speaker

    def _check_present(self) -> None:
        """The sampler's copy does not move."""


def stops(sampling: Sampling, text: Text) -> tuple[str, ...] | tuple[int, ...]:
    """All that ends a turn in one list: the end tokens' ids, or with stop strings the end tokens as texts."""
    ends = sorted(text.eos_ids)
    return (*sampling.stop, *(text.decode([end]) for end in ends)) if sampling.stop else tuple(ends)


def completed(said: Said, sampling: Sampling, text: Text) -> Completion:
    """What was sampled up to the first end, which is looked for here, whatever the server says.

    Raises:
        ServerError: Nothing, too much, or no log-probs.
    """
    ids, logprobs = said.token_ids, said.logprobs
    if not 1 <= len(ids) <= sampling.max_tokens or len(logprobs) != len(ids):
        raise ServerError(
            f"The server sampled {len(ids)} tokens with {len(logprobs)} log-probs; 1 to {sampling.max_tokens} were asked for, "
            "with one each. Run stepwell engine check on it."
        )
    ends = [n for n, token in enumerate(ids.tolist(), 1) if token in text.eos_ids][:1]
    length, stop = (ends[0], Stop.EOS) if ends else (len(ids), Stop.STRING if said.stopped else Stop.LENGTH)
    words = sampling.stop

    def spoken(n: int) -> bool:
        shown = text.decode(ids[:n].tolist())
        return any(word in shown for word in words)

    before = length - 1 if stop is Stop.EOS else length
    if words and spoken(before):
        length, stop = bisect.bisect_left(range(1, before + 1), True, key=spoken) + 1, Stop.STRING
    if math.isnan(float(logprobs[:length].sum())):
        raise RunError("The server's log-probs are not numbers (NaN): its weights hold NaN or infinity. Lower the learning rate.")
    shown = ids[: length - 1] if stop is Stop.EOS else ids[:length]
    return Completion(ids[:length], logprobs[:length], text.decode(shown.tolist()), stop)


def put_by(trainee: Trainee, name: str, version: int) -> str:
    """Saves on the server's side, under a name that nothing else has; returns the path."""
    return trainee.save(f"stepwell-{name}-{version}-{secrets.token_hex(4)}")


def note_path(path: Path, facts: Mapping[str, object], model: RemoteModel) -> None:
    """Writes down where a server keeps weights."""
    path.mkdir(parents=True, exist_ok=True)
    where = {"url": model.service.url, "base": model.service.base, "rank": model.spec.rank}
    write_atomic(path / _FILE, json.dumps({**facts, **where}))


def noted_path(path: Path, model: RemoteModel) -> Mapping[str, object]:
    """What `note_path` wrote; `RunError` where it is of another base or rank."""
    try:
        facts = read_json(path / _FILE)
    except DataError as error:
        raise RunError(f"{path} holds no weights of a remote engine: {error} Use the engine that the run was made with.") from error
    if (facts["base"], facts["rank"]) != (model.service.base, model.spec.rank):
        raise RunError(
            f"{path} notes weights over {facts['base']} of rank {facts['rank']}, and the engine has {model.service.base} of rank "
            f"{model.spec.rank}; resume with the config that it was made with."
        )
    return facts
