"""The executable: read the command line, compose a session, serve it.

`--version` answers before anything else is imported: some clients ask before every start.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from parley.version import PROTOCOL_LEVEL, __version__

if TYPE_CHECKING:
    from parley.protocol.options import Options

VERSION_LINE = f"{PROTOCOL_LEVEL} (Parley {__version__})"


def run() -> None:
    sys.exit(main(sys.argv[1:]))


def run_miriad() -> None:
    """`parley-miriad` is `parley --stdio`."""
    sys.exit(main(["--stdio", *sys.argv[1:]]))


def main(argv: list[str]) -> int:
    """Run the engine; returns the exit code."""
    if argv and argv[0] in ("--version", "-v"):
        sys.stdout.write(VERSION_LINE + "\n")
        return 0
    from parley.errors import UsageError
    from parley.protocol.options import parse

    try:
        parsed = parse(argv)
        for warning in parsed.warnings:
            complain(warning)
        return start(parsed.options, " ".join(parsed.words))
    except UsageError as flaw:
        complain(f"Error: {flaw}")
        return 1


def complain(text: str) -> None:
    """stderr, in one write, whatever state it is in."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def start(options: Options, prompt: str) -> int:
    """Raises UsageError."""
    from parley.errors import UsageError

    if options.version:
        sys.stdout.write(VERSION_LINE + "\n")
        return 0
    if options.help:
        from parley.cli.help import text

        sys.stdout.write(text())
        return 0
    streaming_in = options.input_format == "stream-json" or options.stdio
    streaming_out = options.output_format in ("stream-json", "message") or options.stdio
    if streaming_in and not streaming_out:
        raise UsageError("--input-format=stream-json requires output-format=stream-json.")
    if options.print and options.output_format == "stream-json" and not options.verbose:
        raise UsageError("When using --print, --output-format=stream-json requires --verbose")
    if options.api_key:
        complain("warning: --api-key shows the key on the process list; ANTHROPIC_API_KEY does not")
    if not streaming_in:
        prompt = with_stdin(prompt)
        if not prompt.strip():
            raise UsageError(
                "Input must be provided either through stdin or as a prompt argument when using --print "
                "(parley has no interactive screen: give a prompt, or --input-format stream-json)"
            )
    from parley.cli import door

    return door.enter(options, None if streaming_in else prompt)


def with_stdin(prompt: str) -> str:
    """The prompt, with what was piped in behind it."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return prompt
    piped = sys.stdin.buffer.read().decode("utf-8", "replace").strip("\n")
    return "\n".join(part for part in (prompt, piped) if part)
