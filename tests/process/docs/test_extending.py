"""The changes that docs/extending.md shows do what it says: each is applied to a copy of the source."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import msgspec
import pytest

from tests.helpers.environment import base_environment
from tests.helpers.http_server import loopback, whole

ROOT = Path(__file__).parents[3]
CHANGES = re.findall(r"```diff\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL)
OPTION = """
import msgspec
from parley import Options
from parley.cli.commands.help import help_text
from parley.evals.suite import EvalConfiguration
from parley.gateway.session_options import SessionOptions
from parley.protocol.options import CliOptions, parse
from parley.sdk.hooks import Registry
from parley.sdk.launch.args import build_launch
from parley.settings.env_vars import OptionValues, are_limits

assert parse(["--max-words=3"]).options.max_words == 3
assert "--max-words N" in help_text()
assert are_limits({"maxWords": 1}) and not are_limits({"maxWords": 0})
assert OptionValues(CliOptions(), {}, {"limits": {"maxWords": 2}}.get).get("max_words") == 2
assert msgspec.convert({"max_words": 3}, SessionOptions).max_words == 3
assert msgspec.convert({"max_words": 3}, EvalConfiguration).list_options() == {"max_words": 3}
assert "--max-words=3" in build_launch(Options(max_words=3, engine="local"), Registry(None), {}).argv
try:
    Options(max_words="many")
except TypeError as exc:
    print(exc)
"""

HOOK_EVENT = """
import parley
from parley.hooks.events import EVENTS

found = EVENTS["SessionRenamed"]
assert (found.matched, found.fields) == ("title", ("title",))
assert found.when == "after a client changed the title of the session"
assert "SessionRenamedHookInput" in parley.__all__ and "SessionRenamed" in parley.Hooks.__annotations__
"""
MESSAGE = """
from parley import Notice
from parley.protocol.base import Refused, Role, decode
from parley.protocol.connection import may_send
from parley.protocol.schema import build_schema
from parley.protocol.schema import to_typescript
from parley.sdk.runtime.message_parser import parse_message

line = b'{"degrees":21,"type":"weather"}'
found = decode(line)
assert found.degrees == 21 and isinstance(decode(b'{"type":"weather"}'), Refused)
assert may_send(Role.ENGINE, found) and not may_send(Role.HOST, found)
assert isinstance(parse_message(found), Notice)
assert "export interface Weather" in to_typescript(build_schema())
"""
REQUEST = """
import anyio
from parley import Client, Options
from parley.gateway.security.access import scope_of_request
from parley.protocol.messages.panel_requests import CountMessages

async def main():
    async with Client(Options(model="offline", engine="local")) as client:
        await client.run("say Hello")
        print(await client.request(CountMessages()), await client.request(CountMessages(role="user")))

print(scope_of_request("count_messages", None))
anyio.run(main)
"""
RENAMED = """
import json, subprocess, sys
def request(number, **fields):
    return json.dumps({"type": "control_request", "request_id": number, "request": fields})
hooks = {"SessionRenamed": [{"hookCallbackIds": ["h"]}]}
lines = [request("1", subtype="initialize", hooks=hooks), request("2", subtype="rename_session", title="New")]
argv = [sys.executable, "-m", "parley", "-p", "--model=offline", "--verbose"]
argv += ["--input-format=stream-json", "--output-format=stream-json"]
engine = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
engine.stdin.write("".join(line + chr(10) for line in lines))
engine.stdin.flush()
for line in map(json.loads, engine.stdout):
    if line["type"] == "control_request":
        print(line["request"]["input"]["title"])
        break
engine.stdin.close()
engine.wait()
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def apply(change: str, copy: Path) -> None:
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)}
    subprocess.run(["git", "apply", "-"], cwd=copy, env=environment, input=change.encode(), check=True)


def run(code: str, copy: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_option_is_one_row_and_a_field_for_type_checkers(copy: Path) -> None:
    [change] = [change for change in CHANGES if "protocol/options.py" in change]
    assert re.findall(r"^\+\+\+ b/(.*)", change, re.M) == [
        "src/parley/protocol/options.py",
        "src/parley/sdk/options.py",
    ]

    apply(change, copy)

    assert run(OPTION, copy) == "max_words must be a whole number, 0 or more, not str\n"


PIECES = ({"text": "Hel", "model": "anvil-2"}, {"text": "lo."}, {"end": "stop", "tokens": [12, 2]})
ANSWER = b"".join(b"data: %b\n\n" % msgspec.json.encode(piece) for piece in PIECES)
REJECTED = msgspec.json.encode({"error": {"message": "the field 'limit' is not supported"}})


async def test_a_model_provider_is_one_file_and_a_row(copy: Path) -> None:
    [change] = [change for change in CHANGES if "models/catalog.py" in change]
    assert re.findall(r"^\+\+\+ b/(.*)", change, re.M) == [
        "src/parley/models/backends/acme.py",
        "src/parley/models/catalog.py",
    ]

    apply(change, copy)

    async with loopback(whole(400, REJECTED), whole(200, ANSWER)) as server:
        environment = {
            **base_environment(),
            "HOME": str(copy),
            "PYTHONPATH": str(copy / "src"),
            "ACME_BASE_URL": server.url,
            "ACME_API_KEY": "key-of-acme",
        }
        words = ("-p", "--model", "acme:anvil-2", "--output-format", "json", "Say hello")
        engine = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "parley", *words, env=environment, cwd=copy, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        out, err = await engine.communicate()
        first, second = server.heard

    result = msgspec.json.decode(out)
    assert (result["result"], result["usage"]["output_tokens"]) == ("Hello.", 2), err
    assert first.line.startswith("POST /answers ")
    assert (first.headers["authorization"], first.headers["acme-version"]) == ("Bearer key-of-acme", "2")
    assert "limit" in msgspec.json.decode(first.body)
    assert "limit" not in msgspec.json.decode(second.body)


def test_a_hook_event_is_a_declaration_and_the_line_that_fires_it(copy: Path) -> None:
    [change] = [change for change in CHANGES if "event_types.py" in change]
    assert re.findall(r"^\+\+\+ b/(.*)", change, re.M) == [
        "src/parley/engine/control/session.py",
        "src/parley/hooks/event_types.py",
    ]

    apply(change, copy)

    run(HOOK_EVENT, copy)
    assert run(RENAMED, copy) == "New\n"


def test_a_message_is_its_class(copy: Path) -> None:
    [change] = [change for change in CHANGES if "notices.py" in change]
    assert len(re.findall(r"^\+\+\+ b/(.*)", change, re.M)) == 1

    apply(change, copy)

    run(MESSAGE, copy)


def test_a_control_request_is_its_class_and_the_function_that_answers_it(copy: Path) -> None:
    [change] = [change for change in CHANGES if "panel_requests.py" in change]
    assert len(re.findall(r"^\+\+\+ b/(.*)", change, re.M)) == 2

    apply(change, copy)

    assert run(REQUEST, copy) == "view\n{'count': 2} {'count': 1}\n"
