"""Load what a session loads up to its first result before there is one: for a resident engine and the gateway."""

from __future__ import annotations

import asyncio
from importlib import import_module

from parley.compose.tools import load_definitions
from parley.models.base import read_event
from parley.models.catalog import read_built_in
from parley.protocol.base import decode
from parley.protocol.options import parse

MODULES = (
    "parley.compose.certificates",
    "parley.engine.control.initialize",
    "parley.engine.turn.structured_output",
    "parley.engine.turn.turn",
    "parley.models.backends.anthropic",
    "parley.protocol.dialects.base",
    "parley.settings.files.memory_files",
    "parley.settings.files.output_styles",
    "parley.tools.agent",
    "json",
    "asyncio.staggered",
    "concurrent.futures.thread",
)
"""None of them may read the environment, start a thread or open a file that stays open."""
SERVED_MODULES = (
    "parley.compose.sandbox",
    "parley.engine.control.dispatcher",
    "parley.engine.session.recover",
    "parley.engine.session.session",
    "parley.permissions.command",
    "parley.permissions.decision",
    "parley.permissions.policy",
    "parley.permissions.proven_command",
    "parley.permissions.boundary",
    "parley.permissions.shell.mentions",
    "parley.permissions.shell.prefix_rules",
    "parley.settings.writer",
    "parley.tools.bash",
    "parley.workspace.sandbox.launcher",
    "parley.workspace.web",
)
"""What the first tool call and the first interrupted turn load besides. In a server, all other sessions would wait."""


FLAGS = ("--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
LINES = (
    b'{"type":"control_request","request_id":"1","request":{"subtype":"initialize"}}',
    b'{"type":"user","message":{"role":"user","content":"hi"},"parent_tool_use_id":null,"session_id":""}',
)
EVENTS = (
    b'{"type":"message_start","message":{"role":"assistant","content":[],"usage":{"input_tokens":1}}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}',
    b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}',
)


def preload() -> None:
    for name in MODULES:
        getattr(import_module(name), "__all__", None)  # an attribute loads a deferred module (cli/lazy_imports.py)

    load_definitions()
    read_built_in()
    warm_up()


def preload_served() -> None:
    """The same for a process with many sessions."""
    preload()
    for name in SERVED_MODULES:
        import_module(name)


def warm_up() -> None:
    """Do what every session does first, where it needs nothing of the session.

    Decoders of messages and events are created on first use, which takes a fifth of the instructions of a session
    until its first result.
    """

    parse(FLAGS)
    for line in LINES:
        decode(line)
    for event in EVENTS:
        read_event(event)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
