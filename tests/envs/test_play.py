"""A person at the terminal."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.engine.codec import BRACKET
from stepwell.envs.play import play
from stepwell.envs.shop import ShopDomain
from stepwell.types import Reply

DOMAIN = ShopDomain(products=200, num_test_tasks=5)
TASK = DOMAIN.tasks("test")[0]


def reader(lines: list[str]) -> Callable[[str], str]:
    rest = iter(lines)

    def read(prompt: str) -> str:
        for line in rest:
            return line
        raise EOFError

    return read


def run(lines: list[str]) -> tuple[list[Reply], list[str]]:
    shown: list[str] = []
    return play(DOMAIN, TASK, reader(lines), shown.append, BRACKET), shown


def test_the_experts_lines_win() -> None:
    replies, shown = run([BRACKET.format(action) for action in DOMAIN.expert(TASK)])
    assert replies[-1].done
    assert sum(reply.reward for reply in replies) == 1.0
    assert shown[0] == TASK.prompt
    assert shown[-1] == f"Over after {len(replies)} actions, 0 of them invalid. Reward 1.000"


def test_mistakes_are_said_and_counted() -> None:
    search, *rest = [BRACKET.format(action) for action in DOMAIN.expert(TASK)]
    replies, shown = run(["", "hello", "click[p9]", "?", search, *rest])
    assert [reply.valid for reply in replies[:3]] == [False, False, True]
    assert any(text.startswith("(The last line is no action: 'hello'") for text in shown)
    assert "(without meaning here)" in shown
    assert any("- filter[constraint]: " in text for text in shown), "as it is to be typed"
    assert shown[1] == "(type an action, such as search[...]; ? explains, q leaves)"
    assert "2 of them invalid" in shown[-1]


def test_leaving_and_the_end_of_the_input_end_the_game() -> None:
    for lines in (["search[soft]", "q", "buy[]"], ["search[soft]"]):
        replies, shown = run(lines)
        assert len(replies) == 1
        assert shown[-1] == "You left."
