"""`parley tap`: pass a conversation between a client and an engine on, and show and record it.

This process passes the bytes on; a second one, which is forked before the engine starts, looks at a copy of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from parley.cli.commands.kit.recordings import choose_path
from parley.cli.commands.subcommand import GivenArgs, write_lines
from parley.cli.stdio import StderrWriter, warn
from parley.errors import InvalidArguments, UsageError
from parley.inspector.observer import LineObserver, LineSink
from parley.inspector.recorder import make_header
from parley.inspector.relay import REPORT_SECONDS, STARTED, CopyPipe, Relay, exit_like, start_engine
from parley.inspector.report import ReportFile
from parley.protocol.base import Struct
from parley.settings.base import printable
from parley.stores.wire_recording import WireRecorder
from parley.stores.wire_redaction import WireRedactor
from parley.testing.launcher_script import write_launcher

TERMINAL = "tty"
STDERR_PREFIX = "tap: "
"""The engine writes to stderr as well."""


class TapFiles(Struct, frozen=True, kw_only=True):
    """Where the observer writes; None if nowhere."""

    record: Path | None
    html: Path | None
    show: int | None
    """A descriptor."""


def run_tap(given: GivenArgs) -> int:
    if given.has("install"):
        return install(given)
    command = list(given.words)
    if command[-1] in ("-v", "--version"):  # clients ask before they start a conversation
        try:
            os.execvp(command[0], list(command))
        except OSError as exc:
            raise UsageError(f"cannot start the engine {printable(command[0])!r}: {exc.strerror}") from None
    if given.has("quiet") and given.has("show"):
        raise InvalidArguments("--quiet and --show cannot be combined; use one")
    files = TapFiles(
        record=choose_path(given.one("record"), ".jsonl") if given.has("record") else None,
        html=choose_path(given.one("html"), ".html") if given.has("html") else None,
        show=open_show(given.one("show")) if given.has("show") else None if given.has("quiet") else 2,
    )
    observe = prepare_observer(command, files)
    ours, theirs = socket.socketpair()
    observer = os.fork()
    if observer == 0:
        ours.close()
        run_observer(observe, theirs, keeps_stderr=files.show == 2)
    theirs.close()
    if files.show is not None and files.show > 2:
        os.close(files.show)
    copies = CopyPipe(ours)
    try:
        engine = start_engine(command)
    except OSError as exc:
        copies.finish(127, REPORT_SECONDS)
        raise UsageError(f"cannot start the engine {printable(command[0])!r}: {exc.strerror}") from None
    copies.send(STARTED)
    code = Relay(engine, copies).run()
    if not copies.finish(code, REPORT_SECONDS):
        warn(f"{STDERR_PREFIX}the report is not finished after {REPORT_SECONDS:.0f} s; it will be in its file later")
    exit_like(code)
    return code


def open_show(given: str) -> int:
    """The descriptor for the text. Raises UsageError."""
    path = "/dev/tty" if given == TERMINAL else given
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise UsageError(f"option '--show': cannot write to {printable(path)}: {exc.strerror}") from None


def prepare_observer(command: Sequence[str], files: TapFiles) -> Callable[[socket.socket], None]:
    """Open the files, so that a wrong name is reported before the engine starts. Raises UsageError."""
    redactor = WireRedactor(os.environ)
    header = make_header(command, redactor, cwd=os.getcwd(), env=sorted(os.environ))
    sinks: list[LineSink] = []
    if files.record is not None:
        sinks.append(WireRecorder(files.record, header))
    if files.html is not None:
        sinks.append(ReportFile(files.html, list(header.command), header.started_at))
    show = make_show(files.show)

    def observe(line: socket.socket) -> None:
        observer = LineObserver(show, sinks, redactor)
        try:
            observer.run(line)
        finally:
            for sink in sinks:
                sink.close()
            for name, path in (("recording", files.record), ("report", files.html)):
                if path is not None:
                    show(f"  {name}: {printable(str(path))}")

    return observe


def make_show(descriptor: int | None) -> Callable[[str], None]:
    if descriptor is None:
        return lambda text: None
    write = StderrWriter(descriptor)
    return (lambda text: write(STDERR_PREFIX + text)) if descriptor == 2 else write


def run_observer(observe: Callable[[socket.socket], None], line: socket.socket, *, keeps_stderr: bool) -> NoReturn:
    """In the forked process: it holds no stream of the client, and no signal to the client's group ends it."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in (0, 1) if keeps_stderr else (0, 1, 2):
            os.dup2(nothing, descriptor)
        observe(line)
        code = 0
    except BaseException as exc:
        with suppress(Exception):
            warn(f"{STDERR_PREFIX}stopped by an internal error ({exc!r}); the conversation continues without it")
    finally:
        os._exit(code)


def install(given: GivenArgs) -> int:
    """Write a script that runs the same command. Raises UsageError."""
    path = Path(given.one("install")).absolute()
    found = shutil.which(given.words[0])
    if found is None:
        raise UsageError(f"cannot find the engine {printable(given.words[0])!r} on the PATH; name an executable file")
    engine = Path(found).absolute()
    if engine == path:
        raise UsageError(f"{printable(str(path))} is the engine itself; name another file")
    words = ["tap"]
    for name in ("record", "html", "show"):
        if given.has(name):
            value = given.one(name)
            folder = os.sep if value.endswith(os.sep) else ""
            words += [f"--{name}", value if value == TERMINAL else f"{Path(value).absolute()}{folder}"]
    words += ["--quiet"] if given.has("quiet") else []
    write_launcher(path, [*words, "--", str(engine), *given.words[1:]])
    return write_lines([str(path)])
