"""The tables of `docs/acp.md` and `scripts/reference/acp-schema.md` against the schema of the official libraries."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parley.acp.agent import CAPABILITIES, AcpAgent
from parley.acp.host import LocalSessions
from parley.jsonrpc import RpcConnection
from parley.protocol.options import CliOptions
from tests.compat.harness import installed
from tests.compat.install import ACP_TYPESCRIPT, LIBRARIES

TABLES = Path(__file__).parents[2] / "scripts" / "reference"
SIDES = {"agent": "Methods that editors call:", "client": "Methods that Parley calls:"}
PROXY = "proxy"


@cache
def load_schema() -> dict[str, Any]:
    """The types of version 1, with those that are not stable."""
    package = installed(ACP_TYPESCRIPT).place / "node_modules" / "@agentclientprotocol" / "sdk"
    types: dict[str, Any] = json.loads((package / "schema" / "v1" / "schema.unstable.json").read_text())["$defs"]
    return types


@cache
def python_methods() -> dict[str, list[str]]:
    program = installed(LIBRARIES).program()
    assert program is not None
    code = "import json; from acp import meta as m; print(json.dumps([m.AGENT_METHODS, m.CLIENT_METHODS]))"
    done = subprocess.run([program, "-c", code], check=True, capture_output=True, text=True)
    agent, client = json.loads(done.stdout)
    return {"agent": list(agent.values()), "client": list(client.values())}


def methods_of(side: str) -> set[str]:
    """The methods that one side implements, in either library. A proxy is called like an agent."""
    sides = (side, PROXY) if side == "agent" else (side,)
    found = {each["x-method"] for each in load_schema().values() if each.get("x-side") in sides}
    return found | set(python_methods()[side])


def read_table(page: str, after: str = "") -> dict[str, list[str]]:
    """The rows of the first table after a line, or of a file of tables: names, and the other cells."""
    text = f"\n{(TABLES / page).read_text()}".partition(after)[2] if after else f"\n{(TABLES / page).read_text()}"
    lines = text.split("\n|", 1)[1].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    return {row[0].strip().strip("`"): row[1:] for row in rows}


@pytest.mark.parametrize("side", SIDES)
def test_every_method_is_in_the_table(side: str) -> None:
    assert set(read_table("acp-methods.md", SIDES[side])) == methods_of(side)


def test_every_kind_of_update_is_in_the_table() -> None:
    kinds = {each["properties"]["sessionUpdate"]["const"] for each in load_schema()["SessionUpdate"]["oneOf"]}

    assert set(read_table("acp-methods.md", "Kinds of `session/update`:")) == kinds


def test_every_field_is_in_the_table() -> None:
    expected = {
        name: sorted(set(type["properties"]) - {"_meta"})
        for name, type in load_schema().items()
        if set(type.get("properties", ())) - {"_meta"}
    }
    listed = {
        name: sorted(re.findall(r"`(\w+)`", used + unused))
        for name, (used, unused) in read_table("acp-schema.md").items()
    }

    assert listed == expected


def test_the_agent_does_what_the_table_says() -> None:
    """Methods that work have a handler; the others are refused with a reason."""
    connection = RpcConnection(lambda line: None)
    AcpAgent(connection, LocalSessions(options=CliOptions(), environment={}, warn=print))
    for name, (said,) in read_table("acp-methods.md", SIDES["agent"]).items():
        reason = connection.refused.get(name) or connection.refused.get(name.partition("/")[0])
        if said.startswith("works"):
            assert name in connection.methods, name
        else:
            assert said.startswith("refused: "), name
            assert reason is not None or name == "authenticate", name
            assert name not in connection.methods or name == "authenticate", name


def test_the_capabilities_that_are_announced_are_in_the_schema() -> None:
    assert set(CAPABILITIES) <= set(load_schema()["SessionCapabilities"]["properties"])
