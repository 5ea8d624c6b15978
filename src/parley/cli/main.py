"""The executable: read the command line, compose a session, serve it.

`--version` answers before anything else is imported: some clients ask before every start.
"""

from __future__ import annotations

import gc
import os
import sys

from parley.cli.stdio import STDIN_PATIENCE_SECONDS, complain, mend, read_stdin, write
from parley.version import PROTOCOL_LEVEL, __version__

TYPE_CHECKING = False  # typing takes 10 ms to load, and Ctrl-C would end in a traceback for as long
if TYPE_CHECKING:
    from parley.protocol.options import Options

SUBCOMMANDS = {
    "attach": "parley.cli.commands.attach",
    "memory": "parley.cli.commands.memory",
    "model-server": "parley.cli.commands.model_server",
    "models": "parley.cli.commands.models",
    "permissions": "parley.cli.commands.permissions",
    "sessions": "parley.cli.commands.sessions",
    "trust": "parley.cli.commands.trust",
}
"""What the first word may be, and the module whose `main` takes the rest."""
VERSION_LINE = f"{PROTOCOL_LEVEL} (Parley {__version__})"


def run() -> None:
    sys.exit(main([readable(word) for word in sys.argv[1:]]))


def run_miriad() -> None:
    """`parley-miriad` is `parley --stdio`."""
    sys.exit(main(["--stdio", *(readable(word) for word in sys.argv[1:])]))


def readable(word: str) -> str:
    """A word of the command line without the bytes that are no text: they could not be told to anybody."""
    return os.fsencode(word).decode(sys.getfilesystemencoding(), "replace")


def main(argv: list[str]) -> int:
    """Run the engine; returns the exit code."""
    let_ctrl_c_end_us()
    mend()
    if argv and argv[0] in ("--version", "-v"):
        return told(VERSION_LINE + "\n")
    gc.disable()  # collecting while modules load finds nothing and takes 5 ms
    from parley.cli.lazy_imports import defer

    defer()
    from parley.errors import SessionError, UsageError
    from parley.protocol.options import parse

    try:
        if argv and argv[0] in SUBCOMMANDS:
            from importlib import import_module

            return int(import_module(SUBCOMMANDS[argv[0]]).main(argv[1:]))
        parsed = parse(argv)
        for warning in parsed.warnings:
            complain(warning)
        return start(parsed.options, " ".join(parsed.words))
    except (UsageError, SessionError) as flaw:
        complain(f"Error: {flaw}")
        return 1


def let_ctrl_c_end_us() -> None:
    """Where no session listens for it, Ctrl-C ends the process as every other signal does.

    Python would only note it, and a read or write that begins just then waits on for ever.
    """
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def told(text: str) -> int:
    """Say it on stdout; the exit code."""
    return 0 if write(text.encode()) else 1


def start(options: Options, prompt: str) -> int:
    """Raises UsageError."""
    from parley.errors import UsageError

    if options.version:
        return told(VERSION_LINE + "\n")
    if options.help:
        from parley.cli.help import text

        return told(text())
    over_stdio = options.stdio or options.dialect in ("miriad", "jsonrpc", "auto")
    streaming_in = options.input_format == "stream-json" or over_stdio
    streaming_out = options.output_format in ("stream-json", "message") or over_stdio
    if over_stdio and prompt.strip():
        raise UsageError(
            "--stdio and --dialect miriad, jsonrpc or auto take prompts as lines on stdin, not from the command line"
        )
    if streaming_in and not streaming_out:
        raise UsageError("--input-format=stream-json requires output-format=stream-json.")
    if options.print and options.output_format == "stream-json" and not options.verbose:
        raise UsageError("When using --print, --output-format=stream-json requires --verbose")
    if options.api_key:
        complain("warning: --api-key shows the key on the process list; ANTHROPIC_API_KEY does not")
    if options.store and "://" in options.store:
        from parley.stores.selection import has_password

        if has_password(options.store):
            complain("warning: --store shows the password on the process list; PARLEY_STORE does not")
    if not streaming_in:
        prompt = with_stdin(prompt, options)
        if not prompt.strip():
            raise UsageError(
                "Input must be provided either through stdin or as a prompt argument when using --print "
                f"(parley has no interactive screen: give a prompt, or --input-format stream-json{swallowers(options)})"
            )
    guest = None
    if over_stdio:
        from parley.cli.handshake import welcome

        guest = welcome(options)
        if guest is None:
            return 0
        options = guest.options
    from parley.cli import run as door

    return door.enter(options, None if streaming_in else prompt, guest)


def swallowers(options: Options) -> str:
    """Which options may have taken the prompt for a value of theirs; empty if there are none."""
    from parley.protocol.options import ROWS

    greedy = [row for row in ROWS if row.kind.words in ("many", "maybe") and row.field in options.given]
    if not greedy:
        return ""
    names = ", ".join(row.flags[0] for row in greedy)
    return f"; what stands behind {names} belongs to that option, so put the prompt before it, or behind --"


def with_stdin(prompt: str, options: Options) -> str:
    """The prompt, with what was piped in behind it. Raises UsageError."""
    from parley.errors import UsageError

    if os.isatty(0):
        return prompt
    try:
        if options.dialect == "spec001" and options.output_format in ("stream-json", "message", "json"):
            from parley.cli.early_interrupt import waiting

            with waiting(options) as woken:
                data = read_stdin(needed=not prompt.strip(), woken=woken)
        else:
            data = read_stdin(needed=not prompt.strip())
    except OSError as flaw:
        raise UsageError(f"stdin cannot be read: {flaw.strerror}") from None
    if data is None:
        complain(
            f"warning: nothing came from stdin in {STDIN_PATIENCE_SECONDS} s, so the prompt goes without it "
            "(< /dev/null says that nothing will come)"
        )
        return prompt
    piped = data.decode("utf-8", "replace").strip("\n")
    return "\n".join(part for part in (prompt, piped) if part)
