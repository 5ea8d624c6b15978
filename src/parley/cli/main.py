"""The entry point of the executable: parse the command line and run a session or a subcommand.

`--version` is answered before anything else is imported, because some clients ask before every start.

See also: `run.py` runs the session, `handshake.py` handles messages before it, `commands/` has the subcommands.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

from parley.cli.stdio import STDIN_WAIT_SECONDS, read_stdin, reopen_closed_streams, restore_sigint, warn, write
from parley.version import PROTOCOL_LEVEL, __version__

TYPE_CHECKING = False  # importing typing takes 10 ms, during which Ctrl-C would print a traceback
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from parley.protocol.options import CliOptions, ParsedArgs

SUBCOMMAND_NAMES = """
    acp agents attach auth auto-mode cluster completion config conform conform-client console context doctor eval
    fake help host init inspect install link man mcp memory model-server models permissions plugin plugins project
    purge replay resident schema serve sessions tap trust update upgrade workspace
"""
SUBCOMMANDS = frozenset(SUBCOMMAND_NAMES.split())
"""The subcommands (`commands/catalog.py`), here because a start without one does not read the catalogue."""
BACKGROUND = "Parley has no background sessions; `parley sessions list` lists sessions, `parley attach ID` follows one"
CLOUD = "it is a service of Anthropic, which Parley does not use"
KEYS_ONLY = "Parley uses API keys only; set ANTHROPIC_API_KEY, and see `parley auth status`"
REFUSED = {
    "daemon": BACKGROUND,
    "gateway": CLOUD,
    "import": "the configuration of other agents cannot be imported",
    "kill": BACKGROUND,
    "login": KEYS_ONLY,
    "logout": KEYS_ONLY,
    "logs": BACKGROUND,
    "migrate-installer": "use `parley update`",
    "rc": CLOUD,
    "remote-control": CLOUD,
    "respawn": BACKGROUND,
    "rm": BACKGROUND,
    "self-hosted-runner": CLOUD,
    "setup-token": KEYS_ONLY,
    "stop": BACKGROUND,
    "sync": CLOUD,
    "ultrareview": CLOUD,
}
"""Subcommands of Claude Code that Parley does not have, and why. They must not be sent to a model as prompts."""
VERSION_LINE = f"{PROTOCOL_LEVEL} (Parley {__version__}, compatible with Claude Code)"
"""Clients read the number at the start; some look for "Claude Code" as well."""

SIGTERM_WAIT_MILLISECONDS = 50
"""How long `-v` stays alive after its answer. Without other work, a client needs less than 1 ms."""


RESIDENT = "PARLEY_RESIDENT"
"""Set to 1 by clients whose sessions a resident engine may run (`resident/`)."""


def run() -> None:
    words = [decode_word(word) for word in sys.argv[1:]]
    if RESIDENT in os.environ:
        try_resident(words)
    leave(main(words))


def run_miriad() -> None:
    """`parley-miriad` is `parley --stdio`, with a help of its own."""
    words = [decode_word(word) for word in sys.argv[1:]]
    if "--help" in words or "-h" in words:
        from parley.cli.commands.help import MIRIAD_HELP

        leave(write_text(MIRIAD_HELP))
    words = ["--stdio", *words]
    if RESIDENT in os.environ:
        try_resident(words)
    leave(main(words))


def try_resident(words: list[str]) -> None:
    """Run a session in a resident engine if the client asks for it. Returns if this process must run the words."""
    if words and (words[0] in SUBCOMMANDS or words[0] in REFUSED or words[0] in ("--version", "-v")):
        return
    wanted = os.environ.pop(RESIDENT)  # what the session starts does not inherit it
    if wanted not in ("", "0", "1"):
        warn(f"warning: {RESIDENT} must be 0 or 1; starting without a resident engine")
    if wanted == "1" and sys.platform == "linux":
        from parley.resident.launcher import launch

        launch(words, hide_secrets)


def hide_secrets() -> None:
    """Hide the secrets of a process that only waits for a session, as a session hides its own."""
    from parley.cli.process_secrets import erase
    from parley.workspace.process.tree import hide_memory

    erase()
    hide_memory()


def leave(code: int, report: Callable[[int], None] | None = None) -> NoReturn:
    """Exit without clearing all modules, which takes as long as a turn. Exit handlers run as usual.

    `report` is called with the exit code right before the end.
    """
    if (threading := sys.modules.get("threading")) is not None:
        others = set(threading.enumerate()) - {threading.main_thread()}
        if not all(thread.daemon for thread in others):
            sys.exit(code)  # waits for them
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # reports it
    if report is not None:
        report(code)
    os._exit(code)


def decode_word(word: str) -> str:
    """Replace bytes that are not valid text, because they could not be encoded in messages."""
    return os.fsencode(word).decode(sys.getfilesystemencoding(), "replace")


def main(argv: list[str]) -> int:
    """Run the engine; returns the exit code."""
    restore_sigint()
    reopen_closed_streams()
    if argv and argv[0] in ("--version", "-v"):
        code = write_text(VERSION_LINE + "\n")
        if argv[0] == "-v":
            wait_for_sigterm()
        return code
    gc.disable()  # collecting while modules load finds nothing and takes 5 ms
    from parley.cli.bundle import install

    install()
    from parley.cli.lazy_imports import defer

    defer()
    from parley.errors import SessionError, UnknownCommand, UsageError
    from parley.protocol.options import parse

    try:
        if argv and argv[0] in SUBCOMMANDS:
            from parley.cli.commands.subcommand import run_subcommand

            return run_subcommand(argv[0], argv[1:])
        if argv and argv[0] in REFUSED:
            raise UnknownCommand(
                f"the command `{argv[0]}` is not available: {REFUSED[argv[0]]} "
                f"(to send it as a prompt: parley -p {argv[0]})"
            )
        parsed = parse(argv)
        if argv and argv[0] in parsed.words[:1]:
            check_mistyped(argv[0], parsed)
        if parsed.unknown:
            from parley.cli.nearest import check_unknown

            check_unknown(parsed)
        for warning in parsed.warnings:
            warn(warning)
        return start(parsed.options, " ".join(parsed.words), parsed.warnings)
    except (UsageError, SessionError) as exc:
        warn(f"Error: {exc}")
        return exc.exit_code if isinstance(exc, UsageError) else 1


def check_mistyped(word: str, parsed: ParsedArgs) -> None:
    """Raises UnknownCommand if the name of a subcommand was probably mistyped, by a person or in a script."""
    options = parsed.options
    is_word = word.isascii() and word.replace("-", "").isalpha() and word.islower()
    if not is_word or options.print or is_driven(options) or options.output_format:
        return
    from shlex import quote

    from parley.cli.nearest import find_mistyped_command
    from parley.errors import UnknownCommand

    if (name := find_mistyped_command(parsed.words)) is not None:
        prompt = quote(" ".join(parsed.words))
        raise UnknownCommand(
            f"unknown command `{word}` (did you mean {name}?); to send it as a prompt: parley -p {prompt}"
        )


def is_driven(options: CliOptions) -> bool:
    """Whether a client exchanges messages with us."""
    streams = ("stream-json", "message")
    return bool(
        options.stdio
        or options.dialect
        or options.sdk_url
        or options.input_format in streams
        or options.output_format in streams
    )


def write_text(text: str) -> int:
    """Write to stdout; returns the exit code."""
    return 0 if write(text.encode()) else 1


def wait_for_sigterm() -> None:
    """Give a client that terminates us after it has read the version the time to do so.

    Older Python SDKs call `-v`, read the line and call `terminate()`. If this process has just exited, asyncio of
    Python 3.11 loses the exit status and prints a warning about an unknown child process.
    """
    if os.isatty(1):
        return
    import select

    reader = select.poll()
    reader.register(1, 0)  # reports only that the reader has closed the pipe
    reader.poll(SIGTERM_WAIT_MILLISECONDS)


def start(options: CliOptions, prompt: str, warned: tuple[str, ...] = ()) -> int:
    """`warned`: what was wrong with the command line. Raises UsageError."""
    from parley.errors import MissingPrompt, UsageError

    if options.version:
        return write_text(VERSION_LINE + "\n")
    if options.help:
        from parley.cli.commands.help import write_help

        return write_help()
    if options.background:  # a client would take the end of the run for that of its start
        raise UsageError(f"--bg is not available: {BACKGROUND}")
    if options.sdk_url is not None:
        return start_dialed_out(options, prompt, warned)
    over_stdio = options.stdio or (options.dialect is not None and serves_stdio(options))
    streaming_in = options.input_format == "stream-json" or over_stdio
    streaming_out = options.output_format in ("stream-json", "message") or over_stdio
    if over_stdio and prompt.strip():
        raise UsageError("with --stdio or this --dialect, send prompts on stdin, not on the command line")
    check_formats(options, streaming_in, streaming_out)
    warn_of_visible_secrets(options)
    if not streaming_in and not prompt.strip() and can_ask_prompt(options) and can_converse(options):
        from parley.cli.conversation import start_conversation

        return start_conversation(options)
    if options.resume is not None and not options.resume.strip():
        from parley.cli.commands.sessions import describe_choices

        raise UsageError(describe_choices(options))
    if not streaming_in:
        prompt = read_prompt(prompt, options)
        if not prompt.strip() and not (options.resume or options.continue_conversation or can_ask_prompt(options)):
            from parley.cli.nearest import describe_missing_prompt

            raise UsageError(describe_missing_prompt(options))
    if options.await_claim and (over_stdio or not streaming_in):
        raise UsageError("--await-claim requires --input-format=stream-json, because claim_session arrives on stdin")
    pending = None
    if over_stdio:
        from parley.cli.handshake import accept

        pending = accept(options)
        if pending is None:
            return 0
        options = pending.options
    elif options.await_initialize or options.managed_settings_in_initialize:
        from parley.cli.handshake import receive_initialize

        pending = receive_initialize(options)
        if pending is None:
            return 1
        options = pending.options
    if options.await_claim:
        from parley.cli.spare import run_spare

        return run_spare(options, pending, warned)
    from parley.cli.run import run_session

    try:
        return run_session(options, None if streaming_in else prompt, pending, warned)
    except MissingPrompt as exc:
        from parley.cli.nearest import describe_missing_prompt

        raise UsageError(describe_missing_prompt(options, str(exc))) from None


def warn_of_visible_secrets(options: CliOptions) -> None:
    """Other users of the machine can read the command line."""
    if options.api_key:
        warn("warning: --api-key exposes the key in the process list; use ANTHROPIC_API_KEY instead")
    if options.store and "://" in options.store:
        from parley.stores.selection import has_password

        if has_password(options.store):
            warn("warning: --store exposes the password in the process list; use PARLEY_STORE instead")


def start_dialed_out(options: CliOptions, prompt: str, warned: tuple[str, ...]) -> int:
    """Serve a session to the server of `--sdk-url`. Raises UsageError, SessionError."""
    from parley.cli.dial_out import dialed_out

    assert options.sdk_url is not None
    if prompt.strip():  # some hosts give one to satisfy --print
        ignored = "the prompt on the command line is ignored: with --sdk-url, the server sends the prompts"
        warn(ignored)
        warned = (*warned, ignored)
    defaults = {
        "input_format": options.input_format or "stream-json",
        "output_format": options.output_format or "stream-json",
        "permission_prompt_tool": options.permission_prompt_tool or "stdio",
    }
    with dialed_out(options.sdk_url):
        return start(options.replace(sdk_url=None, print=True, verbose=True, **defaults), "", warned)


def can_ask_prompt(options: CliOptions) -> bool:
    """Whether a person at a terminal can be asked for the prompt."""
    from parley.cli.output import is_for_person

    return os.isatty(0) and is_for_person(options)


def can_converse(options: CliOptions) -> bool:
    """Whether a conversation can be held at the terminal: a process in the background would be stopped."""
    from parley.terminal.interfaces.keyboard import can_read_keys

    return can_read_keys() and not (options.fork_session and not (options.resume or options.continue_conversation))


def check_formats(options: CliOptions, streaming_in: bool, streaming_out: bool) -> None:
    """Raises UsageError for an option that the formats of input and output leave without effect."""
    from parley.errors import UsageError

    if streaming_in and not streaming_out:
        raise UsageError("--input-format=stream-json requires output-format=stream-json.")
    if options.include_partial_messages and not streaming_out:
        raise UsageError("--include-partial-messages requires --print and --output-format=stream-json.")
    if options.replay_user_messages and not (streaming_in and streaming_out):
        raise UsageError(
            "--replay-user-messages requires both --input-format=stream-json and --output-format=stream-json."
        )
    if options.print and options.output_format == "stream-json" and not options.verbose:
        raise UsageError("When using --print, --output-format=stream-json requires --verbose")


def serves_stdio(options: CliOptions) -> bool:
    """Whether the dialect takes prompts as lines, or is found by the first one. Raises UsageError."""
    from parley.compose.registry import AUTO, get_profile

    return options.dialect == AUTO or get_profile(options).over_stdio


def interrupts_early(options: CliOptions) -> bool:
    """Whether an interrupt is answered while the prompt is read. Raises UsageError."""
    from parley.compose.registry import get_profile

    return get_profile(options).interrupts_early and options.output_format in ("stream-json", "message", "json")


def read_prompt(prompt: str, options: CliOptions) -> str:
    """Return the prompt followed by the data piped into stdin. Raises UsageError."""
    from parley.errors import UsageError

    if os.isatty(0):
        return prompt
    try:
        if options.dialect is not None and interrupts_early(options):
            from parley.cli.handshake import answer_interrupts

            with answer_interrupts(options) as woken:
                data = read_stdin(woken=woken)
        else:
            data = read_stdin()
    except OSError as exc:
        raise UsageError(f"cannot read stdin: {exc.strerror}") from None
    if data is None:
        warn(
            f"warning: no data on stdin within {STDIN_WAIT_SECONDS} s; continuing without it "
            "(redirect stdin with < /dev/null to skip the wait)"
        )
        return prompt
    piped = data.decode("utf-8", "replace").strip("\n")
    return "\n".join(part for part in (prompt, piped) if part)
