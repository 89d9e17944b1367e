"""Replaying recorded action strings: what `stepwell play webshop --replay FILE.jsonl` answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from stepwell.envs.shop.webshop.clean import CleanEnvironment
from stepwell.envs.shop.webshop.compat import CompatEnvironment, CompatSettings
from stepwell.envs.shop.webshop.domain import WebShopDomain
from stepwell.errors import DataError, nearest
from stepwell.types import JSON, Observation, Reply

__all__ = ["replay"]

_KEYS = ("goal", "mode", "actions", "show_attrs", "num_prev_obs", "num_prev_actions")


def replay(domain: WebShopDomain, lines: Iterable[str], source: str = "replay") -> Iterator[dict[str, JSON]]:
    """Plays each line's actions from the start of its goal, and says what happened.

    A line is `{"goal": index, "mode": "text" | "text_rich", "actions": [text, ...]}` with optional `show_attrs`, `num_prev_obs`,
    `num_prev_actions`. The answer is `{"goal": index, "steps": [{"observation", "reward", "done", "has_search_bar", "clickables", "valid",
    "state_key"}, ...]}`, the first step being the start. Empty lines are passed over.

    Args:
        lines: Of a JSONL file.
        source: Names the file in errors.

    Raises:
        DataError: With the line's number, where a line is not as described; nothing of it has been played then.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            request = _Request(line, f"{source}, line {number}", domain)
            yield {"goal": request.goal, "steps": _played(domain.replayed(request.goal, request.settings), request.actions)}


def _played(environment: CompatEnvironment | CleanEnvironment, actions: Iterable[str]) -> list[JSON]:
    steps: list[JSON] = [_step(environment, Reply(environment.start()))]
    steps.extend(_step(environment, environment.act(action)) for action in actions)
    return steps


def _step(environment: CompatEnvironment | CleanEnvironment, reply: Reply) -> JSON:
    observation: Observation = reply.observation
    return {
        "observation": observation.text,
        "reward": reply.reward,
        "done": reply.done,
        "has_search_bar": environment.has_search_bar,
        "clickables": list(environment.clickables),
        "valid": reply.valid,
        "state_key": observation.state_key,
    }


class _Request:
    """One line, checked."""

    def __init__(self, line: str, place: str, domain: WebShopDomain) -> None:
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{place}: not JSON ({error.msg} at column {error.colno}).") from None
        if not isinstance(record, Mapping):
            raise DataError(f"{place}: expected a JSON object with goal and actions, got {type(record).__name__}.")
        unknown = [key for key in record if key not in _KEYS]
        if unknown:
            raise DataError(f"{place}: unknown key {unknown[0]!r}; {nearest(unknown[0], _KEYS)}.")
        self._record: Mapping[str, JSON] = record
        self._place = place
        self.goal = self._count("goal", None)
        if self.goal >= len(domain.store.goals):
            raise DataError(f"{place}: goal is {self.goal}; the shop has goals 0 to {len(domain.store.goals) - 1}.")
        self.actions = self._actions()
        self.settings = self._settings(domain)

    def _actions(self) -> list[str]:
        actions = self._record.get("actions")
        if not isinstance(actions, list) or not all(isinstance(action, str) for action in actions):
            raise DataError(f"{self._place}: actions is {actions!r}; it must be a list of texts such as 'search[red shoes]'.")
        return [str(action) for action in actions]

    def _settings(self, domain: WebShopDomain) -> CompatSettings:
        given = [key for key in ("mode", "show_attrs", "num_prev_obs", "num_prev_actions") if key in self._record]
        if given and domain.settings.variant == "clean":
            raise DataError(f"{self._place}: {given[0]} belongs to variant=compat; this shop is variant=clean.")
        mode = self._record.get("mode", domain.settings.mode)
        if mode != "text" and mode != "text_rich":
            raise DataError(f"{self._place}: mode is {mode!r}; it must be 'text' or 'text_rich'.")
        show_attrs = self._record.get("show_attrs", domain.settings.show_attrs)
        if not isinstance(show_attrs, bool):
            raise DataError(f"{self._place}: show_attrs is {show_attrs!r}; it must be true or false.")
        return replace(
            domain.compat_settings,
            mode=mode,
            show_attrs=show_attrs,
            num_prev_obs=self._count("num_prev_obs", 0),
            num_prev_actions=self._count("num_prev_actions", 0),
        )

    def _count(self, key: str, default: int | None) -> int:
        value = self._record.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise DataError(f"{self._place}: {key} is {value!r}; it must be a whole number >= 0.")
        return value
