"""A fake engine as a process: stdin, stdout, and the command line of a client.

    line = read_command_line(["--output-format", "stream-json", "--input-format", "stream-json"], cwd)
    code = serve_scenario(scenario, line, stderr)

It follows the flags that change the form of the conversation, and ignores all others.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from parley.errors import UsageError
from parley.fake.engine import FakeEngine
from parley.fake.link import FakeOptions
from parley.fake.scenario import Scenario
from parley.inspector.recorder import ConversationRecorder, RecordedTransport
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions, parse
from parley.transports.base import Transport
from parley.transports.stdio import StdioTransport

SIGNAL_EXIT_CODE = 128


class FakeCommandLine(Struct, frozen=True, kw_only=True):
    """What a client asks of a fake engine on its command line."""

    options: FakeOptions
    prompt: str | None = None
    """None: prompts come from stdin."""
    output: str = "text"
    reads_lines: bool = False
    wants_version: bool = False


def read_command_line(argv: Sequence[str], cwd: str) -> FakeCommandLine:
    """Without arguments, lines are read and written. Flags that are unknown or have invalid values are ignored."""
    try:
        parsed = parse(argv)
        options, words = parsed.options, parsed.words
    except UsageError:
        options, words = CliOptions(), tuple(argv[argv.index("--") + 1 :] if "--" in argv else ())
    partial = bool(options.include_partial_messages) or "--include-partial-messages" in argv
    return FakeCommandLine(
        options=FakeOptions(
            cwd=cwd,
            partial=partial,
            sdk_servers=find_sdk_servers(argv),
            session_id=options.session_id or options.resume,
        ),
        prompt=" ".join(words) or None,
        output=last_value(argv, "--output-format") or "text",
        reads_lines=not argv or last_value(argv, "--input-format") == "stream-json",
        wants_version=any(word in ("--version", "-v") for word in argv),
    )


def last_value(argv: Sequence[str], flag: str) -> str | None:
    """The value of a flag, as `--flag VALUE` or `--flag=VALUE`."""
    pairs = zip(argv, [*argv[1:], ""], strict=False)
    found = [word.partition("=")[2] if "=" in word else after for word, after in pairs if word.split("=")[0] == flag]
    return found[-1] if found else None


def find_sdk_servers(argv: Sequence[str]) -> frozenset[str]:
    """The MCP servers that live in the client's process, from `--mcp-config`."""
    try:
        config = msgspec.json.decode(last_value(argv, "--mcp-config") or "{}")
    except msgspec.DecodeError:
        return frozenset()  # the name of a file
    servers = config.get("mcpServers") if isinstance(config, dict) else None
    return frozenset(
        name for name, row in (servers or {}).items() if isinstance(row, dict) and row.get("type") == "sdk"
    )


def serve_scenario(
    scenario: Scenario,
    line: FakeCommandLine,
    stderr: Callable[[str], None],
    recorder: ConversationRecorder | None = None,
) -> int:
    """Play a scenario on stdin and stdout. Returns the exit code; a step may end the process instead."""
    if line.wants_version:
        os.write(1, scenario.version.encode() + b"\n")
        return 0
    code = asyncio.run(play_on_stdio(scenario, line, stderr, recorder))
    if recorder is not None:
        recorder.end(code)
    if code < 0:
        end_by_signal(-code)
    return code


async def play_on_stdio(
    scenario: Scenario, line: FakeCommandLine, stderr: Callable[[str], None], recorder: ConversationRecorder | None
) -> int:
    transport: Transport = StdioTransport()
    if not line.reads_lines:
        transport = OnePrompt(transport, line.prompt, line.output)
    if recorder is not None:
        transport = RecordedTransport(transport, recorder)
    return await FakeEngine(scenario, transport, line.options, stderr).run()


def end_by_signal(number: int) -> None:
    """End this process by a signal, as a crash would."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(SIGNAL_EXIT_CODE + number)  # a signal that does not end a process


class OnePrompt:
    """The transport of a run with one prompt, from the command line or stdin, in the output format of `--print`."""

    def __init__(self, inner: Transport, prompt: str | None, output: str) -> None:
        self._inner = inner
        self._prompt = prompt
        self._output = output

    async def chunks(self) -> AsyncIterator[bytes]:
        prompt = self._prompt
        if prompt is None:
            prompt = b"".join([chunk async for chunk in self._inner.chunks()]).decode(errors="replace")
        message = {"type": "user", "message": {"role": "user", "content": prompt}}
        yield msgspec.json.encode(message) + b"\n"

    def write(self, data: bytes) -> None:
        if self._output == "stream-json":
            self._inner.write(data)
            return
        result = find_result(data)
        if result is not None:
            text = msgspec.json.encode(result) if self._output == "json" else str(result.get("result", "")).encode()
            self._inner.write(text + b"\n")
        elif not data.lstrip().startswith(b"{"):
            self._inner.write(data)  # a raw text of the scenario

    async def drain(self) -> None:
        await self._inner.drain()

    def close(self) -> None:
        self._inner.close()


def find_result(data: bytes) -> Json | None:
    """The result message, if this line is one."""
    try:
        message: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return message if isinstance(message, dict) and message.get("type") == "result" else None
