"""Parley as the client of the official MCP suite: `mcp_client.py URL`, started by the suite for one scenario.

A session connects to the URL and does what the scenario is about: it calls tools, answers questions, or logs in as a
user with a browser would. The suite judges what its server sees.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from parley import Client, Options
from parley.models.script import Script, ScriptedTurn
from parley.protocol.messages.panel_requests import McpAuthenticate, McpOauthCallbackUrl
from parley.sdk.errors import ControlError
from parley.testing.model_server import ModelServer, running

SERVER = "suite"
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
FLOW_STEPS = 3
"""How often a login is repeated: a server may want further scopes."""


def accept(question: Any) -> Any:
    """Accept every question: switches are on, and fields with a default are left to it."""
    fields = (question.get("requested_schema") or {}).get("properties") or {}
    switches = {
        name: True for name, field in fields.items() if field.get("type") == "boolean" and "default" not in field
    }
    return {"action": "accept", "content": switches}


async def read_status(client: Client) -> Any:
    """The server's state when it has connected or failed."""
    while True:
        [server] = (await client.get_mcp_status())["mcpServers"]
        if server["status"] != "pending":
            return server
        await asyncio.sleep(0.05)


class KeepRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def visit(address: str) -> str:
    """Open the address that the user is asked to open; returns where the suite redirects the browser."""
    try:
        urllib.request.build_opener(KeepRedirect).open(address)
    except urllib.error.HTTPError as redirect:
        return str(redirect.headers["Location"])
    raise SystemExit("the authorization page did not redirect")


async def log_in(client: Client) -> None:
    """Raises ControlError if the login fails."""
    answer = await client.request(McpAuthenticate(serverName=SERVER, redirectUri="http://localhost:3999/callback"))
    if answer.get("authUrl"):
        redirected = await asyncio.to_thread(visit, answer["authUrl"])
        await client.request(McpOauthCallbackUrl(serverName=SERVER, callbackUrl=redirected))


async def connect(client: Client) -> Any:
    for _ in range(FLOW_STEPS):
        server = await read_status(client)
        if server["status"] != "needs-auth":
            break
        await log_in(client)
    return server


async def call(client: Client, tool: str, arguments: Any = None) -> None:
    """Call a tool; if the server wants another login for it, log in and call it again."""
    for _ in range(FLOW_STEPS):
        try:
            await client.mcp_call(f"mcp__{SERVER}__{tool}", arguments or {})
            return
        except ControlError as exc:
            sys.stderr.write(f"{tool}: {exc}\n")
            if "login" not in str(exc) and "authorization" not in str(exc):
                return
            await log_in(client)


async def call_all(client: Client) -> None:
    """Call every tool, with the arguments that the suite gives or with none."""
    given = CONTEXT.get("toolCalls") or []
    for one in given:
        await call(client, one["name"], one.get("arguments"))
    if not given:
        for tool in (await connect(client))["tools"]:
            await call(client, tool["name"], ARGUMENTS.get(tool["name"]))


async def echo_schema(client: Client, model: ModelServer) -> None:
    """Send back the schema of a tool as a model gets it."""
    await client.query("Hello.")
    async for _ in client.receive_response():
        pass
    offered = {tool["name"]: tool for tool in model.exchanges[-1].body["tools"]}
    schema = offered[f"mcp__{SERVER}__json_schema_2020_12_tool"]["input_schema"]
    await call(client, "json_schema_echo", {"schema": schema})


ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}


def make_config(scenario: str, url: str) -> Any:
    """How a user configures the server of a scenario."""
    config: dict[str, Any] = {"type": "http", "url": url}
    if scenario == "auth/basic-cimd":
        config["oauth"] = {"clientMetadataUrl": "https://conformance-test.local/client-metadata.json"}
    elif "client_id" in CONTEXT and "client_secret" in CONTEXT:
        config["oauth"] = {"clientId": CONTEXT["client_id"], "clientSecret": CONTEXT["client_secret"]}
        if scenario == "auth/client-credentials-basic":
            config["oauth"]["issuer"] = read_issuer(url)
    return config


def read_issuer(url: str) -> str:
    """The issuer that the operator of the server would tell its users."""
    origin, _, path = url.partition("/mcp")
    with urllib.request.urlopen(f"{origin}/.well-known/oauth-protected-resource/mcp{path}") as response:
        return str(json.load(response)["authorization_servers"][0])


async def main(url: str) -> int:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    with running(Script(turn=[ScriptedTurn(text="Done.")], at_end="repeat")) as model:
        folder = Path(os.environ["HOME"])
        options = Options(
            mcp_servers={SERVER: make_config(scenario, url)},
            cli_path=str(Path(sys.executable).with_name("parley")),
            cwd=str(folder),
            env={"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "a-key-for-tests"},
            on_elicitation=accept,
        )
        async with Client(options) as client:
            try:
                server = await connect(client)
            except ControlError as exc:
                raise SystemExit(str(exc)) from None
            if server["status"] != "connected":
                raise SystemExit(str(server))
            if scenario == "json-schema-2020-12-preservation":
                await echo_schema(client, model)
            else:
                await call_all(client)
    return 0


sys.exit(asyncio.run(main(sys.argv[-1])))
