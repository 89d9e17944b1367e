"""The environment's contract holds for a right domain and catches each fault of a wrong one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from stepwell.envs.shop import ShopDomain
from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings
from stepwell.errors import EnvironmentFault
from stepwell.testing import ContractViolation, check_environment
from stepwell.types import Action, Episode, Invalid, Observation, Reply, Task, Tool, Verdict

TICKS = count()
SHARED: list[str] = []


def schema(*names: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names), **more}


class Corridor:
    """Walk right three times; `say` repeats a word. Faults are switched on by name."""

    def __init__(self, task: Task, faults: set[str]) -> None:
        self.task, self.faults = task, faults
        self.at = 0
        self.over = False

    @property
    def tools(self) -> Sequence[Tool]:
        tools = [Tool("right", "Go right.", schema()), Tool("say", "Say a word.", schema("word"))]
        broken = {
            "no tools": [],
            "same name": [*tools, tools[0]],
            "schema is no object": [Tool("right", "", {"type": "array"})],
            "schema is not JSON": [Tool("right", "", {"type": "object", "properties": {1j: 2}})],  # type: ignore[dict-item,list-item]
            "argument without type": [Tool("right", "", schema("a", properties={"a": {"type": "text"}}))],
            "required is undefined": [Tool("right", "", schema(required=["a"]))],
            "name with bracket": [Tool("right[", "", schema())],
        }
        for fault in self.faults & broken.keys():
            return broken[fault]
        return tools[: 1 if "tools change" in self.faults and self.at > 0 else 2]

    def see(self) -> Observation:
        text: Any = f"You ({self.task.prompt}) stand at {self.at} of 3."
        key: Any = str(self.at)
        admissible: Any = None
        if "observation draws" in self.faults:
            text += f" {next(TICKS)}"
        if "state key draws" in self.faults:
            key = f"{next(TICKS)}"
        if "shared state" in self.faults:
            text += f" {len(SHARED)}"
        if "text is bytes" in self.faults:
            text = text.encode()
        if "state key is a number" in self.faults:
            key = self.at
        if "start is empty" in self.faults:
            text = ""
        if "admissible is a list" in self.faults:
            admissible = ["right[]"]
        if "admissible is no call" in self.faults:
            admissible = ("fly[]",)
        if "payload type matters" in self.faults:
            text += str(type(self.task.payload["steps"]))
        return Observation(text, key, admissible)

    def start(self) -> Observation:
        if "shared state" in self.faults:
            SHARED.clear()
        if "tools change" in self.faults:
            self.at = 1
        return self.see()

    def step(self, action: Action | Invalid) -> Reply:
        has = self.faults.__contains__
        if self.over and not has("goes on after the end"):
            raise EnvironmentFault("over")
        if has("raises") and isinstance(action, Invalid):
            raise KeyError("action")
        if has("raises on long text") and isinstance(action, Action) and len(action.arguments.get("word", "")) > 1000:
            raise ValueError("too long")
        SHARED.append("x")
        if has("returns a tuple"):
            return (self.see(), 0.0)  # type: ignore[return-value]
        valid = isinstance(action, Action) and (action.name, tuple(action.arguments)) in {("right", ()), ("say", ("word",))}
        if has("garbage is valid"):
            valid = True
        self.at += valid and isinstance(action, Action) and action.name == "right"
        self.over = self.at == 3
        reward: Any = 1.0 if self.over else 0.0
        done: Any = self.over
        if has("reward draws"):
            reward = float(next(TICKS))
        if has("reward is NaN"):
            reward = float("nan")
        if has("done is a number"):
            done = int(self.over)
        return Reply(self.see(), reward, done, valid, "" if has("event is empty") else None)


class Corridors:
    def __init__(self, *faults: str) -> None:
        self.faults = set(faults)
        self.only: Corridor | None = None

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        steps: Any = (1, 2) if "payload holds a tuple" in self.faults else [1, 2]
        steps = {1, 2} if "payload holds a set" in self.faults else steps
        return Task("" if "key is empty" in self.faults else "corridor/0", "go right", difficulty, split, {"steps": steps})

    def tasks(self, split: str) -> Sequence[Task]:
        return ()

    def environment(self, task: Task, member: int) -> Corridor:
        made = Corridor(task, self.faults)
        if "one environment for all" in self.faults:
            self.only = made = self.only or made
        return made

    def grade(self, episode: Episode) -> Verdict:
        if "grade needs turns" in self.faults:
            return Verdict.of(episode.turns[-1].reply.reward)
        if "grade draws" in self.faults:
            return Verdict.of(1 / (1 + next(TICKS)), success=True)
        if "grade is a number" in self.faults:
            return 1.0  # type: ignore[return-value]
        return Verdict.of(sum(turn.reply.reward for turn in episode.turns))

    def expert(self, task: Task) -> Sequence[Action] | None:
        if "no expert" in self.faults:
            return None
        return [Action("right")] * (2 if "expert stops early" in self.faults else 0 if "expert is empty" in self.faults else 3)


FAULTS = {
    "key is empty": "key is empty",
    "payload holds a set": "not JSON-able",
    "payload holds a tuple": "not the same after JSON",
    "no tools": "offers no tool",
    "same name": "same name",
    "schema is no object": "has type 'array'",
    "schema is not JSON": "is not JSON-able",
    "argument without type": "has no JSON-schema type",
    "required is undefined": r"requires \['a'\]",
    "name with bracket": "no name for a tool",
    "tools change": "tools change",
    "observation draws": "gave another observation at the start",
    "state key draws": "gave another state key at the start",
    "reward draws": "gave another reward after step 1",
    "shared state": "While another is played, the same script gave another observation",
    "one environment for all": "returned one object twice",
    "text is bytes": "a text of type bytes",
    "state key is a number": "a state key of type int",
    "start is empty": "shows an empty text",
    "admissible is a list": "must be a tuple of strings",
    "admissible is no call": "none of the tools' calls",
    "raises": "raised KeyError: 'action'",
    "raises on long text": "raised ValueError: too long",
    "returns a tuple": "returned tuple, not a Reply",
    "garbage is valid": "says valid=True",
    "reward is NaN": "paid nan",
    "done is a number": "done=0; it must be True or False",
    "event is empty": "event=''",
    "goes on after the end": "the end is final",
    "grade needs turns": "grade of an empty episode raised IndexError",
    "grade draws": "is not repeatable",
    "grade is a number": "returned float, not a Verdict",
    "expert is empty": "offers no action",
    "expert stops early": "do not solve",
}


@pytest.mark.parametrize("faults", [(), ("no expert",)])
def test_a_right_domain_passes(faults: tuple[str, ...]) -> None:
    domain = Corridors(*faults)
    for seed in range(5):
        check_environment(domain, domain.task(0.5, 0, "test"), seed=seed)


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_is_caught(fault: str) -> None:
    domain = Corridors(fault)
    with pytest.raises(ContractViolation, match=FAULTS[fault]):
        check_environment(domain, domain.task(0.5, 0, "test"))


def test_a_violation_shows_as_a_failed_assertion() -> None:
    domain = Corridors("raises")
    with pytest.raises(AssertionError):
        check_environment(domain, domain.task(0.5, 0, "test"))


def test_generated_shop() -> None:
    domain = ShopDomain(products=100)
    begin = time.perf_counter()
    for difficulty in (0.0, 0.5, 1.0):
        check_environment(domain, domain.task(difficulty, 3, "test"))
    assert time.perf_counter() - begin < 10.0


@pytest.mark.parametrize("variant", ["compat", "clean"])
def test_webshop(shared_data: Path, variant: Literal["compat", "clean"]) -> None:
    domain = WebShopDomain(WebShopSettings(data=shared_data / "data" / "webshop", variant=variant))
    for task in domain.tasks("test")[:2]:
        check_environment(domain, task)
