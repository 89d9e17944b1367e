"""Text -> action, by tables and by laws."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.engine.codec import BRACKET, TOOL_CALL, Codec, codec
from stepwell.errors import ConfigError
from stepwell.types import JSON, Action, Invalid, Tool


def tool(name: str, *arguments: str, required: tuple[str, ...] | None = None) -> Tool:
    properties: dict[str, JSON] = {argument: {"type": "string"} for argument in arguments}
    return Tool(
        name, f"does {name}", {"type": "object", "properties": properties, "required": list(arguments if required is None else required)}
    )


TOOLS = [
    tool("search", "query"),
    tool("click", "target"),
    tool("buy"),
    tool("move", "start", "end", required=("start",)),
    tool("page", "n", required=()),
]


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("search[red shirt]", Action("search", {"query": "red shirt"})),
        ("  search [ red \t shirt ]  \n\n", Action("search", {"query": "red shirt"})),
        ("Action: search[red shirt]", Action("search", {"query": "red shirt"})),
        ("action :search [ red ]", Action("search", {"query": "red"})),
        ("I need a shirt, so\nI search[blue] or so.\nsearch[red]", Action("search", {"query": "red"})),
        ("buy[]", Action("buy")),
        ("buy [ ]", Action("buy")),
        ("buy", Action("buy")),
        ("page[]", Action("page")),
        ("page[3]", Action("page", {"n": "3"})),
        ("click[size [xl] wide]", Action("click", {"target": "size [xl] wide"})),
        (r"click[size \[xl]", Action("click", {"target": "size [xl"})),
        (r"search[\frac{1}{2} a=b; c]", Action("search", {"query": r"\frac{1}{2} a=b; c"})),
        ("move[start=a b; end=c=d]", Action("move", {"start": "a b", "end": "c=d"})),
        (r"move[ end = x\;y ;start=z; ]", Action("move", {"start": "z", "end": "x;y"})),
        ("move[start=a]", Action("move", {"start": "a"})),
        ("<think>\nsearch[blue]\n</think>\n\nsearch[red]", Action("search", {"query": "red"})),
        # U59: the prompt opened the block
        ("maybe search[blue]\nsearch[green]\n</think>\nsearch[red]", Action("search", {"query": "red"})),
        ("<think>a</think><think>b</think>search[red]", Action("search", {"query": "red"})),
    ],
)
def test_bracket_reads_one_call(text: str, action: Action) -> None:
    assert BRACKET.parse(text, TOOLS) == action


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no action"),
        ("  \n ", "no action"),
        ("hello", "is no action"),
        ("2", "is no action"),
        ("I search[red]", "is no action"),
        ("search[red].", "After search[...] stands '.'"),
        ("search[red] and so on", "stands 'and so on'"),
        ("search[red] click[blue]", "exactly one call"),
        ("search[red]]", "stands ']'"),
        ("search[red]\nclick[blue]", "several calls"),
        ("search[red]\nI did it.", "is no action"),
        ("search[red", "never closed"),
        (r"search[red\]", "never closed"),
        ("search", "needs its argument in brackets"),
        ("search[]", "'query', which is missing"),
        ("search[  ]", "'query', which is missing"),
        ("serch[red]", "did you mean 'search'"),
        ("SEARCH[red]", "no tool 'SEARCH'"),
        ("[red]", "is no action"),
        ("buy[now]", "takes no argument"),
        ("move[a]", "key=value"),
        ("move[end=a]", "'start', which is missing"),
        ("move[start=; end=a]", "'start', which is empty"),
        ("move[start=a; start=b]", "twice"),
        ("move[start=a; where=b]", "no argument 'where'"),
        # U57, U58: a call inside the reasoning, or a cut-off one, is no call
        ("<think>I could search[red]", "</think> is missing"),
        ("<think>\nsearch[red]", "</think> is missing"),
        ("Well.\n<think>\nsearch[red]", "</think> is missing"),
        ("<think>search[red]</think>", "no action"),
        ("<think>done: buy</think> The end", "is no action"),
        ("search[red]\n<think>hm</think>", "no action"),
    ],
)
def test_bracket_never_guesses(text: str, reason: str) -> None:
    read = BRACKET.parse(text, TOOLS)
    assert isinstance(read, Invalid)
    assert read.text == text
    assert reason in read.reason


def call(**value: object) -> str:
    return f"<tool_call>\n{json.dumps(value)}\n</tool_call>"


SEARCH = call(name="search", arguments={"query": "red"})


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (SEARCH, Action("search", {"query": "red"})),
        (f"I look for it.\n{SEARCH}\n", Action("search", {"query": "red"})),
        (f"<think>{SEARCH}</think>{SEARCH}", Action("search", {"query": "red"})),
        (f"hm {SEARCH}</think>{SEARCH}", Action("search", {"query": "red"})),
        ('<tool_call>{"name":"buy","arguments":{}}</tool_call>', Action("buy")),
        (call(name="search", arguments={"query": "  two  spaces\n"}), Action("search", {"query": "  two  spaces\n"})),
        ('<tool_call>{"name":"page","arguments":{"n":1.50}}</tool_call>', Action("page", {"n": "1.50"})),
        (call(name="page", arguments={"n": True}), Action("page", {"n": "true"})),
        ('<tool_call>{"name":"page","arguments":{"n":' + "9" * 5000 + "}}</tool_call>", Action("page", {"n": "9" * 5000})),
    ],
)
def test_tool_call_reads_one_call(text: str, action: Action) -> None:
    assert TOOL_CALL.parse(text, TOOLS) == action


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no <tool_call>"),
        ("search[red]", "no <tool_call>"),
        (SEARCH + SEARCH, "2 <tool_call>"),
        (SEARCH + " done", "After </tool_call> stands 'done'"),
        (SEARCH.removesuffix("</tool_call>"), "never closed"),
        ("</tool_call>" + SEARCH.removesuffix("</tool_call>"), "never closed"),
        ("<tool_call>search</tool_call>", "no JSON object"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "no JSON object"),
        ("<tool_call>[1]</tool_call>", "exactly name and arguments"),
        (call(name="search"), "exactly name and arguments"),
        (call(name="search", arguments={"query": "a"}, id=1), "exactly name and arguments"),
        (call(name="serch", arguments={}), "did you mean 'search'"),
        (call(name=["search"], arguments={}), "must be a string; got an array"),
        (call(name="search", arguments='{"query": "a"}'), "must be a JSON object"),
        (call(name="search", arguments={}), "'query', which is missing"),
        (call(name="search", arguments={"query": " "}), "'query', which is empty"),
        (call(name="search", arguments={"query": "a", "page": 2}), "no argument 'page'"),
        (call(name="search", arguments={"query": ["a"]}), "got an array"),
        (call(name="search", arguments={"query": {"a": 1}}), "got an object"),
        (call(name="search", arguments={"query": None}), "got null"),
        ('<tool_call>{"name":"search","arguments":{"query":NaN}}</tool_call>', "NaN is not JSON"),
        ('<tool_call>{"name":"search","arguments":{"query":"a","query":"b"}}</tool_call>', "twice"),
        (call(name="search", arguments={"query": "\ud800"}), "surrogate"),
        (f"<think>{SEARCH}", "</think> is missing"),
        (f"<think>{SEARCH}</think>", "no <tool_call>"),
    ],
)
def test_tool_call_never_guesses(text: str, reason: str) -> None:
    read = TOOL_CALL.parse(text, TOOLS)
    assert isinstance(read, Invalid)
    assert read.text == text
    assert reason in read.reason


raw = st.text(st.characters(exclude_categories=("Cs",)), max_size=30) | st.text("[]\\;= ab", max_size=12)
words = raw.map(lambda text: " ".join(text.split())).filter(bool)


def actions(values: st.SearchStrategy[str]) -> st.SearchStrategy[Action]:
    names = st.sampled_from([("search", "query"), ("click", "target"), ("page", "n")])
    one = st.builds(lambda name, value: Action(name[0], {name[1]: value}), names, values)
    two = st.builds(lambda a, b: Action("move", {"start": a, "end": b}), values, values)
    return one | two | st.builds(lambda a: Action("move", {"start": a}), values) | st.just(Action("buy")) | st.just(Action("page"))


@given(actions(words))
def test_bracket_round_trip(action: Action) -> None:
    assert BRACKET.parse(BRACKET.format(action, TOOLS), TOOLS) == action


@given(actions(raw.filter(str.strip) | st.sampled_from(["</tool_call>", "<think>", "a</think>b", "<tool_call>"])))
def test_tool_call_round_trip(action: Action) -> None:
    assert TOOL_CALL.parse(TOOL_CALL.format(action), TOOLS) == action


def test_bracket_says_what_it_cannot_carry() -> None:
    with pytest.raises(ValueError, match="think tag"):
        BRACKET.format(Action("search", {"query": "a</think>b"}))


PARTS = [
    "search",
    "move",
    "[",
    "]",
    "\\",
    ";",
    "=",
    "\n",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    '{"name": "buy"',
    "}",
    "Action:",
    "é",
]
fragments = st.lists(st.sampled_from(PARTS)).map("".join)


@given(st.text() | fragments)
def test_parse_never_raises(text: str) -> None:
    for form in (BRACKET, TOOL_CALL):
        read = form.parse(text, TOOLS)
        if isinstance(read, Invalid):
            assert read.text == text
            assert read.reason
        else:
            assert read.name in {tool.name for tool in TOOLS}


UNITS = ["\\", "[", "]", "search[", "search[a]\n", ";", "start=", " ", "\n", "<think>", "</think>", "<tool_call>", '{"a":', "Action:"]


@pytest.mark.parametrize("unit", UNITS)
def test_huge_texts_are_fast(unit: str) -> None:
    huge = unit * (1_000_000 // len(unit))
    begin = time.perf_counter()
    for text in (huge, f"move[{huge}", f"move[start={huge}]", f"<tool_call>{huge}</tool_call>"):
        for form in (BRACKET, TOOL_CALL):
            read = form.parse(text, TOOLS)
            assert not isinstance(read, Invalid) or len(read.reason) < 400
    assert time.perf_counter() - begin < 5.0


def test_describe_names_every_tool_and_argument() -> None:
    told = BRACKET.describe(TOOLS)
    assert "- search[query]: does search" in told
    assert "- buy[]: does buy" in told
    assert "- move[start=...; end=...]: does move\n  end (optional)" in told
    lines = TOOL_CALL.describe(TOOLS).splitlines()
    signatures = [json.loads(line) for line in lines[lines.index("<tools>") + 1 : lines.index("</tools>")]]
    assert [s["function"]["name"] for s in signatures] == ["search", "click", "buy", "move", "page"]
    assert signatures[0]["function"]["parameters"] == TOOLS[0].schema


def test_codec_by_name() -> None:
    assert codec("bracket") is BRACKET
    assert codec("tool_call") is TOOL_CALL
    with pytest.raises(ConfigError, match="did you mean 'bracket'"):
        codec("brackets")


@pytest.mark.parametrize("codec", [BRACKET, TOOL_CALL], ids=lambda codec: codec.name)
def test_form_is_read_from_the_completion_alone_and_repeats_do_not_count(codec: Codec) -> None:
    """U60: the system message shows the form, and that earns nothing; the form written several times is no action."""
    shown = codec.describe(TOOLS)
    assert "search" in shown
    assert isinstance(codec.parse("idk", TOOLS), Invalid)
    once = codec.format(Action("search", {"query": "red"}), TOOLS)
    assert codec.parse(once, TOOLS) == Action("search", {"query": "red"})
    assert isinstance(codec.parse("\n".join([once] * 4), TOOLS), Invalid)
