"""The contract of a domain and its environments."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import cast

import numpy as np

from stepwell.engine.codec import BRACKET
from stepwell.errors import ContractViolation
from stepwell.protocols import Domain, Environment
from stepwell.seeding import generator
from stepwell.testing.demand import demand
from stepwell.types import JSON, Action, Ending, EndingKind, Episode, Invalid, Observation, Reply, Stop, Task, Tool, Turn, Verdict

__all__ = ["check_environment"]

_SCHEMA_TYPES = {"string", "number", "integer", "boolean", "array", "object", "null"}


def check_environment(domain: Domain, task: Task, *, member: int = 0, turns: int = 12, seed: int = 0) -> None:
    """Checks what rollouts, credit and replays rely on, for one task.

    - The task survives JSON, and the environment built from the copy is the same world.
    - Tools have distinct names and JSON schemas of type object.
    - An invalid text, an unknown tool, wrong arguments or a huge text is answered with `valid=False`; it never raises and has no effect
      on types.
    - Replies have the promised types; rewards are finite.
    - Replaying the same actions gives the same observations, rewards, state keys and ends, also while another environment of the task is
      played at the same time.
    - The end is final: a step after `done` raises, or answers `done` again and pays nothing.
    - `grade` returns a verdict for a finished, an unfinished and an empty episode, twice the same; the expert's actions succeed.

    Args:
        domain: The domain.
        task: One of its tasks.
        member: Which member of the group plays.
        turns: Steps of the random walk.
        seed: Of the random walk.

    Raises:
        ContractViolation: A promise is broken; the sentence says which.
    """
    _check_task(task)
    _check_tools(domain.environment(task, member))
    walk = _random_walk(domain.environment(task, member), turns, seed)
    scripts: list[Sequence[Action | Invalid]] = [walk]
    expert = domain.expert(task)
    if expert is not None:
        demand(len(expert) > 0, f"The expert of task {task.key!r} offers no action; return None where there is no expert.")
        scripts.append(list(expert))
    for script in scripts:
        _check_replay(domain, task, member, script)
    _check_garbage(domain, task, member)
    _check_grades(domain, task, member, walk, expert)


# -- task and tools -----------------------------------------------------------------------------------------------------------


def _copy(task: Task) -> Task:
    return Task(**json.loads(json.dumps(asdict(task), allow_nan=False)))


def _check_task(task: Task) -> None:
    demand(bool(task.key), "A task's key is empty; groups are told apart by it.")
    try:
        copy = _copy(task)
    except (TypeError, ValueError) as error:
        raise ContractViolation(f"Task {task.key!r} is not JSON-able: {error}. A payload holds only what JSON knows.") from error
    demand(copy == task, f"Task {task.key!r} is not the same after JSON; a payload holds lists, not tuples, and keys that are strings.")


def _check_tools(environment: Environment) -> None:
    tools = environment.tools
    demand(len(tools) > 0, "The environment offers no tool.")
    names = [tool.name for tool in tools]
    demand(len(set(names)) == len(names), f"Two tools have the same name: {names}.")
    for tool in tools:
        _check_tool(tool)
    environment.start()
    demand(list(environment.tools) == list(tools), "The tools change when the episode starts; they are part of the prompt and must stay.")


def _check_tool(tool: Tool) -> None:
    where = f"The schema of tool {tool.name!r}"
    demand(bool(tool.name) and not set(tool.name) & set("[] \n"), f"{tool.name!r} is no name for a tool: no brackets or white space.")
    try:
        schema = json.loads(json.dumps(tool.schema))
    except (TypeError, ValueError) as error:
        raise ContractViolation(f"{where} is not JSON-able: {error}.") from error
    demand(schema.get("type") == "object", f"{where} has type {schema.get('type')!r}; it must be 'object'.")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    demand(isinstance(properties, dict), f"{where}: properties must be a mapping from argument to schema; got {properties!r}.")
    demand(isinstance(required, list), f"{where}: required must be a list of names; got {required!r}.")
    for name, about in properties.items():
        kind = about.get("type", "string") if isinstance(about, dict) else None
        kinds = kind if isinstance(kind, list) else [kind]
        demand(all(k in _SCHEMA_TYPES for k in kinds), f"{where}: argument {name!r} has no JSON-schema type; got {about!r}.")
    missing = [name for name in required if name not in properties]
    demand(not missing, f"{where} requires {missing}, which it does not define.")


# -- playing ------------------------------------------------------------------------------------------------------------------


def _step(environment: Environment, action: Action | Invalid) -> Reply:
    """One step, with the types that replies promise."""
    where = f"step({_shown(action)})"
    try:
        reply = environment.step(action)
    except Exception as error:
        raise ContractViolation(f"{where} raised {type(error).__name__}: {error}. What a policy writes is answered, not raised.") from error
    demand(isinstance(cast(object, reply), Reply), f"{where} returned {type(reply).__name__}, not a Reply.")
    _check_observation(reply.observation, where)
    reward, event = cast(object, reply.reward), cast(object, reply.event)
    number = isinstance(reward, float | int | np.floating) and bool(np.isfinite(reward))
    demand(number, f"{where} paid {reward!r}; a reward is a finite number.")
    for name, value in {"done": cast(object, reply.done), "valid": cast(object, reply.valid)}.items():
        demand(isinstance(value, bool), f"{where} has {name}={value!r}; it must be True or False.")
    demand(event is None or (isinstance(event, str) and event != ""), f"{where} has event={event!r}; it must be a name or None.")
    return reply


def _start(environment: Environment) -> Observation:
    observation = environment.start()
    _check_observation(observation, "start()")
    demand(observation.text != "", "start() shows an empty text; it must show all that the policy needs, the instruction too.")
    return observation


def _check_observation(observation: Observation, where: str) -> None:
    demand(isinstance(cast(object, observation), Observation), f"{where} shows {type(observation).__name__}, not an Observation.")
    text, key, admissible = cast(tuple[object, object, object], (observation.text, observation.state_key, observation.admissible))
    demand(isinstance(text, str), f"{where} shows a text of type {type(text).__name__}.")
    demand(isinstance(key, str), f"{where} has a state key of type {type(key).__name__}; it must be a string.")
    listed = isinstance(admissible, tuple) and all(isinstance(entry, str) for entry in admissible)
    demand(admissible is None or listed, f"{where} lists admissible actions as {admissible!r:.80}; it must be a tuple of strings, or None.")


def _random_walk(environment: Environment, turns: int, seed: int) -> list[Action | Invalid]:
    """Admissible actions where they are listed, else calls with words of what is shown; some invalid texts in between."""
    draw = generator(seed, "check_environment")
    observation = _start(environment)
    walk: list[Action | Invalid] = []
    for _ in range(turns):
        tool = environment.tools[int(draw.integers(len(environment.tools)))]
        words = observation.text.split() or ["x"]
        action: Action | Invalid = Action(tool.name, {name: words[int(draw.integers(len(words)))] for name in tool.arguments})
        if observation.admissible:
            text = observation.admissible[int(draw.integers(len(observation.admissible)))]
            action = BRACKET.parse(text, environment.tools)
            demand(isinstance(action, Action), f"The admissible action {text!r} is none of the tools' calls: {action}.")
        if draw.random() < 0.15:
            action = Invalid("hm", "no action")
        reply = _step(environment, action)
        walk.append(action)
        observation = reply.observation
        if reply.done:
            break
    return walk


def _play(environment: Environment, script: Sequence[Action | Invalid], between: Callable[[int], object] = lambda _: None) -> list[Reply]:
    """Replies to the script, up to the end; the first is a stand-in for the start."""
    replies = [Reply(_start(environment))]
    for index, action in enumerate(script):
        if replies[-1].done:
            break
        between(index)
        replies.append(_step(environment, action))
    return replies


def _check_replay(domain: Domain, task: Task, member: int, script: Sequence[Action | Invalid]) -> None:
    first = domain.environment(task, member)
    demand(domain.environment(task, member) is not first, "environment() returned one object twice; an environment is for one episode.")
    played = _play(first, script)
    _compare(played, _play(domain.environment(task, member), script), script, "Replaying the same actions")
    _compare(played, _play(domain.environment(_copy(task), member), script), script, "The environment of the task after JSON")
    other = domain.environment(task, member)
    _start(other)
    over = False

    def disturb(index: int) -> None:
        nonlocal over
        over = over or _step(other, script[-1 - index]).done

    _compare(played, _play(domain.environment(task, member), script, disturb), script, "While another is played, the same script")
    if played[-1].done:
        _check_end(first, script[-1])


def _compare(played: list[Reply], again: list[Reply], script: Sequence[Action | Invalid], what: str) -> None:
    for index, (before, after) in enumerate(zip_longest(played, again)):
        where = "at the start" if index == 0 else f"after step {index}, {_shown(script[index - 1])}"
        if before is None or after is None:
            raise ContractViolation(f"{what} gave an episode of {len(again) - 1} steps, not {len(played) - 1}.")
        for name, one, two in _fields(before, after):
            demand(one == two, f"{what} gave another {name} {where}: {two!r:.200}, before {one!r:.200}.")


def _fields(before: Reply, after: Reply) -> list[tuple[str, object, object]]:
    return [
        ("observation", before.observation.text, after.observation.text),
        ("state key", before.observation.state_key, after.observation.state_key),
        ("list of admissible actions", before.observation.admissible, after.observation.admissible),
        ("reward", before.reward, after.reward),
        ("done", before.done, after.done),
        ("valid", before.valid, after.valid),
        ("event", before.event, after.event),
    ]


def _check_end(environment: Environment, action: Action | Invalid) -> None:
    try:
        reply = environment.step(action)
    except Exception:
        return
    final = reply.done and reply.reward == 0
    demand(final, f"A step after the end was answered with done={reply.done}, reward={reply.reward}; the end is final.")


def _check_garbage(domain: Domain, task: Task, member: int) -> None:
    tools = domain.environment(task, member).tools
    garbage: list[Action | Invalid] = [
        Invalid("", "no action"),
        Invalid("\x00\ufffd\u202e <|im_end|> \n\t", "no action"),
        Invalid("x" * 1_000_000, "no action"),
        Action("no_such_tool_exists", {}),
        Action("no_such_tool_exists", {"query": "y" * 1_000_000}),
    ]
    garbage += [Action(tool.name, {"no_such_argument_exists": "z"}) for tool in tools]
    for action in garbage:
        environment = domain.environment(task, member)
        _start(environment)
        reply = _step(environment, action)
        demand(not reply.valid, f"step({_shown(action)}) says valid=True; what has no meaning here must be valid=False.")
    for tool in tools:
        for text in ("", "q" * 1_000_000, "\x00\ufffd[];=\\ <|im_end|>"):
            environment = domain.environment(task, member)
            _start(environment)
            _step(environment, Action(tool.name, dict.fromkeys(tool.arguments, text)))


# -- grades -------------------------------------------------------------------------------------------------------------------


def _episode(domain: Domain, task: Task, member: int, script: Sequence[Action | Invalid]) -> Episode:
    replies = _play(domain.environment(task, member), script)
    ids = np.zeros(1, np.int64)
    pairs = zip(script, replies[1:], strict=False)
    turns = tuple(Turn(ids, ids, np.zeros(1), _shown(action), action, reply, Stop.EOS, version=0) for action, reply in pairs)
    ending = Ending(EndingKind.TERMINATED if replies[-1].done else EndingKind.TURN_LIMIT)
    return Episode(task, member, replies[0].observation, turns, ending, Verdict.unscored("not graded"))


def _check_grades(domain: Domain, task: Task, member: int, walk: Sequence[Action | Invalid], expert: Sequence[Action] | None) -> None:
    scripts = {"an empty episode": (), "a random episode": walk}
    if expert is not None:
        scripts["the expert's episode"] = expert
    for what, script in scripts.items():
        episode = _episode(domain, task, member, script)
        try:
            verdict = domain.grade(episode)
        except Exception as error:
            raise ContractViolation(f"grade of {what} raised {type(error).__name__}: {error}; use Verdict.unscored(reason).") from error
        demand(isinstance(cast(object, verdict), Verdict), f"grade of {what} returned {type(verdict).__name__}, not a Verdict.")
        again = domain.grade(episode)
        demand(again == verdict, f"grade of {what} is not repeatable: {verdict}, then {again}.")
        if script is expert:
            demand(verdict.success is True, f"The expert's actions do not solve task {task.key!r}: {verdict}.")


def _shown(action: Action | Invalid) -> str:
    if isinstance(action, Invalid):
        return f"Invalid({action.text[:40]!r})"
    arguments: dict[str, JSON] = {name: value[:40] for name, value in action.arguments.items()}
    return f"{action.name}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
