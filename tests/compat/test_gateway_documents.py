"""The documents of the gateway, checked by their own tools, and the server checked against its document."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

from parley.gateway.http.documents import build_asyncapi, build_openapi, encode
from tests.compat.harness import installed
from tests.compat.install import ASYNCAPI, DOCUMENT_TOOLS, Client
from tests.helpers import paths
from tests.helpers.gateway import Server

LEFT_OUT = "events|lines|wire"
"""Paths of event streams, which do not end, and of replies with rows, whose `prefixItems` schemathesis misreads."""
OUR_CHOICE = "ignored_auth,positive_data_acceptance"
"""Wrong tokens are limited, and unknown control requests refused: both is more than a schema says."""


def run(client: Client, *arguments: str) -> str:
    program = client.program()
    assert program is not None
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_the_openapi_document_is_valid(tmp_path: Path) -> None:
    document = tmp_path / "openapi.json"
    document.write_bytes(encode(build_openapi))
    run(installed(DOCUMENT_TOOLS), "-m", "openapi_spec_validator", "--schema", "3.1", str(document))


def test_the_asyncapi_document_is_valid(tmp_path: Path) -> None:
    client, document = installed(ASYNCAPI), tmp_path / "asyncapi.json"
    document.write_bytes(encode(build_asyncapi))
    driver = Path(__file__).parent / "drivers" / "asyncapi.mjs"
    found = json.loads(run(client, str(driver), str(client.place), str(document)))
    assert found == {"version": "3.0.0", "channels": 5, "problems": []}


def test_the_compose_file_follows_the_compose_specification() -> None:
    schema = ("--builtin-schema", "vendor.compose-spec")
    run(installed(DOCUMENT_TOOLS), "-m", "check_jsonschema", *schema, str(paths.ROOT / "deploy" / "compose.yaml"))


async def test_the_server_answers_as_its_document_says(tmp_path: Path) -> None:
    client = installed(DOCUMENT_TOOLS)
    async with Server(tmp_path) as server:
        await asyncio.to_thread(
            run,
            client,
            *("-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
            *("--header", f"Authorization: Bearer {server.token}", "--exclude-path-regex", LEFT_OUT),
            *("--exclude-checks", OUR_CHOICE, "--max-examples", "5", "--seed", "1", "--no-color"),
        )
        assert (await server.request("GET", "/healthz"))[0] == 200
        assert [line for line in server.stderr if not line.startswith(("created the token file", "listening on"))] == []
