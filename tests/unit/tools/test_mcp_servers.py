"""What MCP servers have to read, by way of the context."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.errors import ToolError
from parley.protocol.base import Json
from parley.tools.base import ToolOutput
from parley.tools.mcp_servers import ListMcpResources, ReadMcpResource, ReadMcpResourceDir
from tests.helpers.tools import ToolHarness


class Shelf:
    """A server whose resources are in memory."""

    def __init__(self, **texts: str) -> None:
        self._texts = texts

    async def resources(self) -> list[Json]:
        return [{"uri": f"mem://{name}", "name": name} for name in self._texts]

    async def read(self, uri: str) -> list[Json]:
        name = uri.removeprefix("mem://")
        if name not in self._texts:
            raise ToolError(f"no resource {uri}")
        return [{"uri": uri, "mimeType": "text/plain", "text": self._texts[name]}]

    async def directory(self, uri: str) -> list[Json]:
        if uri != "mem://":
            raise ToolError(f"no directory {uri}")
        return await self.resources()


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    harness = ToolHarness(tmp_path)
    harness.offer(resource_servers=lambda: {"one": Shelf(a="alpha"), "two": Shelf(b="beta")})
    return harness


def test_all_servers_are_listed_or_one(harness: ToolHarness) -> None:
    a, b = ({"uri": f"mem://{name}", "name": name, "server": server} for name, server in (("a", "one"), ("b", "two")))
    assert harness.call(ListMcpResources()).detail == [a, b]
    listed = harness.call(ListMcpResources(), server="two")
    assert listed == ToolOutput(content='[{"uri":"mem://b","name":"b","server":"two"}]', detail=[b])


def test_a_resource_is_read(harness: ToolHarness) -> None:
    contents = [{"uri": "mem://a", "mimeType": "text/plain", "text": "alpha"}]
    assert harness.call(ReadMcpResource(), server="one", uri="mem://a").detail == {"contents": contents}


def test_a_directory_is_listed(harness: ToolHarness) -> None:
    listed = harness.call(ReadMcpResourceDir(), server="one", uri="mem://")
    assert listed.detail == {"resources": [{"uri": "mem://a", "name": "a"}]}
    harness.offer(resource_servers=lambda: {"empty": Shelf()})
    listed = harness.call(ReadMcpResourceDir(), server="empty", uri="mem://")
    assert listed.content == "The directory 'mem://' has no children."


def test_a_directory_that_cannot_be_listed_says_why(harness: ToolHarness) -> None:
    listed = harness.call(ReadMcpResourceDir(), server="one", uri="mem://a")
    assert listed == ToolOutput(
        content="no directory mem://a", detail={"resources": [], "error": "no directory mem://a"}, is_error=True
    )
    assert "one, two" in harness.refusal(ReadMcpResourceDir(), server="three", uri="mem://")


def test_where_there_are_no_servers_there_are_no_resources(tmp_path: Path) -> None:
    harness = ToolHarness(tmp_path)
    assert harness.call(ListMcpResources()) == ToolOutput(content="There are no resources.", detail=[])
    assert "Servers with resources: none." in harness.refusal(ReadMcpResource(), server="one", uri="mem://a")


def test_what_is_not_there_is_refused(harness: ToolHarness) -> None:
    assert "one, two" in harness.refusal(ListMcpResources(), server="three")
    assert harness.refusal(ReadMcpResource(), server="one", uri="mem://b") == "no resource mem://b"


class Broken(Shelf):
    async def resources(self) -> list[Json]:
        raise ToolError("the shelf fell down")


def test_a_server_that_fails_does_not_hide_what_others_have(harness: ToolHarness) -> None:
    servers = harness.context.session.resource_servers()
    harness.offer(resource_servers=lambda: {**servers, "three": Broken()})
    listed = harness.call(ListMcpResources())
    assert [one["name"] for one in listed.detail] == ["a", "b"]
    assert str(listed.content).endswith("]\nthe shelf fell down")
    assert harness.refusal(ListMcpResources(), server="three") == "the shelf fell down"
