"""Servers of the program's own tools, called with JSON-RPC as an engine does."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import anyio
import pytest

from parley import SdkMcpTool, ToolAnnotations, create_sdk_mcp_server, tool
from parley.sdk.runtime.mcp_servers import to_hosted
from parley.sdk.schema import schema_of_input
from tests.helpers.sdk import run

Json = dict[str, Any]


class Point(TypedDict):
    x: int
    y: NotRequired[Annotated[float, "how far up"]]


@dataclass
class Box:
    width: int


@pytest.mark.parametrize(
    ("given", "properties", "required"),
    [
        ({"a": str, "b": int}, {"a": {"type": "string"}, "b": {"type": "integer"}}, ["a", "b"]),
        ({"a": Annotated[bool, "whether"]}, {"a": {"type": "boolean", "description": "whether"}}, ["a"]),
        ({"a": list[float]}, {"a": {"type": "array", "items": {"type": "number"}}}, ["a"]),
        ({"a": str | None}, {"a": {"type": "string"}}, ["a"]),
        ({"a": int | str}, {"a": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}, ["a"]),
        ({"a": dict[str, int]}, {"a": {"type": "object"}}, ["a"]),
        ({"a": Literal["x", "y"]}, {"a": {"enum": ["x", "y"]}}, ["a"]),
        ({"a": complex}, {"a": {"type": "string"}}, ["a"]),
        (Point, {"x": {"type": "integer"}, "y": {"type": "number", "description": "how far up"}}, ["x"]),
        (Box, {"width": {"type": "integer"}}, ["width"]),
        ({"type": "object", "properties": {"z": {}}, "required": []}, {"z": {}}, []),
    ],
)
def test_schemas_come_from_types(given: Any, properties: Json, required: list[str]) -> None:
    made = schema_of_input(given)

    assert (made["properties"], made["required"]) == (properties, required)


@tool
def move(to: Point, steps: int = 1, box: Box | None = None) -> str:
    """Move something."""
    return f"{to['x']} {steps} {box}"


@tool("echo", "Say it again.", {"text": str}, annotations=ToolAnnotations(read_only_hint=True, maxResultSizeChars=9))
async def echo(args: Json) -> Json:
    return {"content": [{"type": "text", "text": args["text"]}], "is_error": args["text"] == "bad"}


@tool("all", "Every kind of content.", {"type": "object", "properties": {}})
async def everything(args: Json) -> Json:
    return {
        "content": [
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "resource_link", "name": "n", "uri": "file:///n"},
            {"type": "resource", "resource": {"uri": "u", "text": "inside"}},
            {"type": "audio", "data": ""},
        ]
    }


SERVER = create_sdk_mcp_server("mine", "2.0", [move, echo, everything])


async def asked(*messages: Json) -> list[Json]:
    server = to_hosted(SERVER["instance"])
    return [await server.handle(message) for message in messages]


def request(method: str, number: int = 1, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def result(message: Json) -> Json:
    [answer] = run("asyncio", asked, message)
    found: Json = answer["result"]
    return found


def call(name: str, **arguments: Any) -> Json:
    return result(request("tools/call", name=name, arguments=arguments))


def test_a_server_greets_and_lists_its_tools() -> None:
    greeting = result(request("initialize", protocolVersion="2025-06-18"))
    tools = {one["name"]: one for one in result(request("tools/list"))["tools"]}

    assert greeting["serverInfo"] == {"name": "mine", "version": "2.0"}
    assert greeting["protocolVersion"] == "2025-06-18"
    assert set(tools) == {"move", "echo", "all"}
    assert tools["echo"]["annotations"] == {"readOnlyHint": True}
    assert tools["echo"]["_meta"] == {"anthropic/maxResultSizeChars": 9}
    assert tools["move"]["inputSchema"]["required"] == ["to"]
    assert tools["move"]["inputSchema"]["properties"]["steps"] == {"type": "integer", "default": 1}


def test_arguments_become_values_of_their_types() -> None:
    assert call("move", to={"x": 1}, box={"width": 2})["content"][0]["text"] == "1 1 Box(width=2)"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("move", {}, "'to' is a required property"),
        ("move", {"to": {"x": "one"}}, "is not of type 'integer'"),
        ("echo", {"text": 5}, "is not of type 'string'"),
        ("nothing", {}, "unknown tool"),
        ("echo", {"text": "bad"}, "bad"),
    ],
)
def test_what_a_tool_cannot_do_is_reported_to_the_model(
    name: str, arguments: Json, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    answer = call(name, **arguments)

    assert answer["isError"]
    assert words in answer["content"][0]["text"]


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (KeyError("rome"), "KeyError: 'rome'"),
        (ValueError("rome is not a city"), "rome is not a city"),
        (ValueError(" "), "ValueError"),
        (NotImplementedError(), "NotImplementedError"),
    ],
    ids=repr,
)
def test_the_model_can_tell_what_a_tool_raised(raised: Exception, text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    def population(city: str) -> int:
        raise raised

    server = to_hosted(create_sdk_mcp_server("s", tools=[population])["instance"])
    answer = run("asyncio", server.handle, request("tools/call", name="population", arguments={"city": "rome"}))

    assert answer["result"] == {"content": [{"type": "text", "text": text}], "isError": True}


@pytest.mark.parametrize("content", ["text", ["text"], {"type": "text", "text": "text"}], ids=["text", "list", "block"])
def test_content_that_is_invalid_is_reported_and_not_lost(content: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    server = to_hosted(
        create_sdk_mcp_server("s", tools=[tool("t", "T.", {})(lambda args: {"content": content})])["instance"]
    )
    answer = run("asyncio", server.handle, request("tools/call", name="t"))["result"]

    assert answer["isError"]
    assert "must be a list of dicts" in answer["content"][0]["text"]


def test_a_handler_need_not_be_async_and_may_return_an_awaitable() -> None:
    async def later(n: int) -> int:
        return n

    tools = [
        tool("plain", "P.", {"text": str})(lambda args: say(args["text"])),
        tool("late", "L.")(lambda n: later(2 * n)),
    ]
    server = to_hosted(create_sdk_mcp_server("s", tools=tools)["instance"])
    plain = run("asyncio", server.handle, request("tools/call", name="plain", arguments={"text": "a"}))
    late = run("asyncio", server.handle, request("tools/call", name="late", arguments={"n": 5}))

    assert [one["result"]["content"][0]["text"] for one in (plain, late)] == ["a", "10"]


def say(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_clients_that_share_a_server_do_not_share_its_calls(loop: str) -> None:
    async def play() -> list[Json]:
        began, go_on, answers = anyio.Event(), anyio.Event(), []

        @tool("wait", "Wait.", {})
        async def wait(args: Json) -> Json:
            began.set()
            await go_on.wait()
            return say("waited")

        config = create_sdk_mcp_server("s", tools=[wait])
        one, two = to_hosted(config["instance"]), to_hosted(config["instance"])

        async def ask() -> None:
            answers.append(await one.handle(request("tools/call", name="wait")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await began.wait()
            answers.append(await two.handle(request("tools/call", name="nothing")))
            await two.close()
            go_on.set()
        return answers

    other, waited = run(loop, play)

    assert "unknown tool" in other["result"]["content"][0]["text"]  # the other client's call has the same id
    assert waited["result"]["content"][0]["text"] == "waited"


def test_content_that_a_model_can_read_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    content = call("all")["content"]

    assert [one["type"] for one in content] == ["image", "text", "text"]
    assert [one.get("text") for one in content[1:]] == ["n\nfile:///n", "inside"]
    assert "audio" in caplog.text


def test_whatever_is_asked_is_answered() -> None:
    answers = run(
        "asyncio",
        asked,
        request("resources/list"),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"id": 1},
        {},
        request("ping"),
    )

    assert answers[0]["error"]["code"] == -32601
    assert answers[1] == answers[3] == {"jsonrpc": "2.0", "result": {}}
    assert "error" in answers[2]
    assert answers[4]["result"] == {}


def test_a_call_ends_when_it_is_cancelled_and_its_id_is_not_used_twice() -> None:
    async def play() -> tuple[Json, Json]:
        started = anyio.Event()

        @tool
        async def wait() -> None:
            started.set()
            await anyio.sleep_forever()

        server = to_hosted(create_sdk_mcp_server("slow", tools=[wait])["instance"])
        answers: list[Json] = []

        async def ask() -> None:
            answers.append(await server.handle(request("tools/call", name="wait")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await started.wait()
            again = await server.handle(request("tools/call", name="wait"))
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            await server.handle(cancel)
        return answers[0], again

    cancelled, again = run("asyncio", play)

    assert cancelled["result"]["isError"]
    assert "still pending" in again["error"]["message"]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_server_of_the_mcp_package_works_as_well(loop: str) -> None:
    from mcp.server import MCPServer

    theirs = MCPServer("theirs")

    @theirs.tool()
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    async def play() -> list[Json]:
        server = to_hosted(theirs)
        early = await server.handle(request("tools/list"))
        info = {"name": "t", "version": "1"}
        greeting = request("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        answers = [early, await server.handle(greeting)]
        await server.handle({"jsonrpc": "2.0", "method": "notifications/initialized"})
        answers.append(await server.handle(request("tools/list", 2)))
        answers.append(await server.handle(request("tools/call", 3, name="double", arguments={"number": 4})))
        await server.close()
        return answers

    early, greeting, tools, called = run(loop, play)

    assert "not running" in early["error"]["message"]
    assert greeting["result"]["serverInfo"]["name"] == "theirs"
    assert [one["name"] for one in tools["result"]["tools"]] == ["double"]
    assert called["result"]["content"][0]["text"] == "8"


@pytest.mark.parametrize("wrong", [lambda *names: names, lambda one, /: one])
def test_a_function_whose_parameters_have_no_names_is_not_a_tool(wrong: Any) -> None:
    with pytest.raises(TypeError, match="by name"):
        tool(wrong)


def test_a_tool_is_a_plain_object() -> None:
    assert isinstance(echo, SdkMcpTool)
    assert (echo.name, echo.description, echo.input_schema) == ("echo", "Say it again.", {"text": str})
    assert echo.annotations.readOnlyHint is True
    with pytest.raises(TypeError, match="is not an MCP server"):
        to_hosted(object())
