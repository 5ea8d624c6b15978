"""`parley sessions`: list, read and manage stored sessions.

The store is chosen as for a session (`--store`, `--db`, PARLEY_STORE). Without one, a session is
looked up by its id in every supported layout of files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from parley.cli.commands.subcommand import Commands, parse_subcommand, wants_help, write_all
from parley.cli.stdio import read_stdin, warn
from parley.compose import memory
from parley.compose.launch_context import LaunchContext, working_directory
from parley.compose.paths import forget_history
from parley.compose.stores import SessionStores
from parley.errors import SessionBusy, SessionError, UnknownSession, UsageError
from parley.protocol.base import Struct, encode_json
from parley.protocol.options import CliOptions
from parley.settings.base import printable
from parley.stores.base import AgentInfo, Entry, Info, SearchHit, Store, copy_entries
from parley.stores.export import import_session, pack, set_labels, unpack
from parley.stores.search_text import entry_text
from parley.stores.session_open import is_uuid
from parley.workspace import private_files

USAGE = """\
usage: parley sessions list [--all] [--limit N] [--offset N]     list sessions of this or all directories, latest first
       parley sessions show SESSION                              print the conversation
       parley sessions agents SESSION [AGENT]                    list subagents, or print the conversation of one
       parley sessions search TEXT [--limit N]                   find messages that contain all these words
       parley sessions export SESSION [FILE]                     write the session as JSON lines to FILE or stdout
       parley sessions import FILE [--session-id ID]             import exported lines; - reads stdin
       parley sessions fork SESSION [--session-id ID]            copy a session
       parley sessions rename SESSION TITLE                      set the title
       parley sessions tag SESSION [TAG]                         set the tag; without TAG, remove it
       parley sessions delete SESSION                            delete a session
       parley sessions repair SESSION                            keep the records before the damage, back up the rest

--json prints JSON lines. --store NAME[:LOCATION] or --db FILE selects the store (claude, folder, sqlite, postgres)."""
MAX_DIGITS = 15
MAX_NAME_CHARS = 1000
NUMBERS = ("--limit", "--offset")
Found = TypeVar("Found", Info, SearchHit, AgentInfo)


class SessionFlags(Struct, frozen=True, kw_only=True):
    """The flags of `parley sessions`."""

    as_json: bool = False
    all: bool = False
    limit: int | None = None
    offset: int = 0


class SessionsCommand:
    """The subcommands; each returns the lines to print."""

    def __init__(self, options: CliOptions, flags: SessionFlags) -> None:
        self.flags = flags
        self.options = options
        self.basis = LaunchContext(options, dict(os.environ), working_directory())
        self.basis.warn = warn
        self.sessions = SessionStores(self.basis)

    def store(self, session_id: str | None = None) -> Store:
        return self.sessions.store(session_id)

    def find(self, session_id: str) -> tuple[Store, Info]:
        """Raises UnknownSession."""
        store = self.store(session_id)
        info = store.info(session_id)
        if info is None:
            next(store.read(session_id), None)  # raises the reason if the session exists but is unreadable
            raise UnknownSession(session_id)
        return store, info

    def list(self) -> Iterator[bytes]:
        flags = self.flags
        found = self.store().list(None if flags.all else self.basis.cwd, flags.limit, flags.offset)
        return self.format_all(found, format_line)

    def show(self, session_id: str) -> Iterator[bytes]:
        store, info = self.find(session_id)
        if self.flags.as_json:
            yield encode_json(info) + b"\n"
            return
        yield from self.text_lines(format_info(info))
        for entry in store.read(session_id):
            yield from self.text_blocks(format_speech(entry))

    def agents(self, session_id: str, agent_id: str | None = None) -> Iterator[bytes]:
        store, _ = self.find(session_id)
        found = {agent.id: agent for agent in store.agents(session_id)}
        if agent_id is None:
            return self.format_all(found.values(), lambda agent: f"{agent.id}  {agent.meta.get('agentType', '')}")
        if agent_id not in found:
            raise UsageError(f"session {session_id} has no subagent {agent_id!r}")
        entries = store.read_agent(session_id, agent_id)
        if self.flags.as_json:
            return (encode_json(entry) + b"\n" for entry in entries)
        return self.text_blocks(text for entry in entries for text in format_speech(entry))

    def search(self, *words: str) -> Iterator[bytes]:
        found = self.store().search(" ".join(words), self.flags.limit or 20)
        return self.format_all(found, lambda hit: f"{hit.id}  {hit.seq:>6}  {hit.kind:9}  {hit.excerpt}")

    def export(self, session_id: str, path: str | None = None) -> Iterator[bytes]:
        store, info = self.find(session_id)
        agents = [(agent, store.read_agent(session_id, agent.id)) for agent in store.agents(session_id)]
        lines = pack(info, store.read(session_id), agents)
        if path is None:
            yield from lines
            return
        write_file(path, lines)

    def import_(self, path: str) -> Iterator[bytes]:
        parcel = unpack(read_input(path))
        session_id = self.new_id(parcel.info.id)
        store = self.store()
        if store.exists(session_id):
            raise UsageError(f"Session ID {session_id} is already in use. Use --session-id to import it under another.")
        import_session(store, session_id, copy_entries(parcel.entries, session_id), parcel.agents)
        set_labels(store, session_id, parcel.info.title, parcel.info.tag)
        return self.id_line(session_id)

    def fork(self, session_id: str) -> Iterator[bytes]:
        store, info = self.find(session_id)
        new = self.new_id(self.basis.clock.new_uuid())
        if store.exists(new):
            raise UsageError(f"Session ID {new} is already in use. Use --session-id to choose another.")
        import_session(store, new, copy_entries(store.read(session_id), new))
        set_labels(store, new, f"{info.title} (fork)" if info.title else None, info.tag)
        self.sessions.inherit(new, session_id)
        return self.id_line(new)

    def rename(self, session_id: str, title: str) -> Iterator[bytes]:
        if not title.strip():
            raise UsageError("the title must not be empty")
        check_length("the title", title)
        self.store(session_id).rename(session_id, title.strip())
        return iter(())

    def tag(self, session_id: str, tag: str | None = None) -> Iterator[bytes]:
        check_length("the tag", tag or "")
        self.store(session_id).tag(session_id, tag.strip() if tag else None)
        return iter(())

    def delete(self, session_id: str) -> Iterator[bytes]:
        self.store(session_id).delete(session_id)
        memory.forget(self.basis, session_id)
        # Without the session, its file checkpoints cannot be restored.
        forget_history(self.basis, session_id)
        return iter(())

    def repair(self, session_id: str) -> Iterator[bytes]:
        report = self.store(session_id).repair(session_id)
        if self.flags.as_json:
            return iter([encode_json({"id": session_id, "mended": report}) + b"\n"])
        if report is None:
            return self.text_lines([f"{session_id} is not damaged; nothing was changed"])
        kept = f"{session_id}: kept {report.kept_bytes} bytes before the damage"
        return self.text_lines([kept, f"moved {report.aside_bytes} bytes from the damage on to {report.aside}"])

    def new_id(self, default: str) -> str:
        """Return the id for a new session: `--session-id` or the default. Raises UsageError."""
        given = self.options.session_id
        if given is not None and not is_uuid(given):
            raise UsageError("Invalid session ID. Must be a valid UUID.")
        return given or default

    def id_line(self, session_id: str) -> Iterator[bytes]:
        return iter([encode_json({"id": session_id}) + b"\n"]) if self.flags.as_json else self.text_lines([session_id])

    def format_all(self, found: Iterable[Found], format_one: Callable[[Found], str]) -> Iterator[bytes]:
        if self.flags.as_json:
            return (encode_json(each) + b"\n" for each in found)
        return self.text_lines(format_one(each) for each in found)

    def text_lines(self, lines: Iterable[str]) -> Iterator[bytes]:
        return (f"{printable(line)}\n".encode(errors="replace") for line in lines)

    def text_blocks(self, lines: Iterable[str]) -> Iterator[bytes]:
        return (f"{printable(line, len(line))}\n".encode(errors="replace") for line in lines)


COMMANDS: Commands = {
    "list": (SessionsCommand.list, 0, 0),
    "show": (SessionsCommand.show, 1, 1),
    "agents": (SessionsCommand.agents, 1, 2),
    "search": (SessionsCommand.search, 1, 100),
    "export": (SessionsCommand.export, 1, 2),
    "import": (SessionsCommand.import_, 1, 1),
    "fork": (SessionsCommand.fork, 1, 1),
    "rename": (SessionsCommand.rename, 2, 2),
    "tag": (SessionsCommand.tag, 1, 2),
    "delete": (SessionsCommand.delete, 1, 1),
    "repair": (SessionsCommand.repair, 1, 1),
}


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    if wants_help(argv):
        return write_all([f"{USAGE}\n".encode()])
    flags, rest = parse_args(argv)
    options, name, words = parse_subcommand(rest, "sessions", USAGE, COMMANDS)
    try:
        return write_all(COMMANDS[name][0](SessionsCommand(options, flags), *words))
    except SessionBusy as exc:
        # The exception's own text suggests --fork-session and --steal, which do not apply here.
        busy = f"Session {exc.session_id} is in use by {exc.holder}."
        raise SessionError(f"{busy} `{name}` requires exclusive access; try again when it has exited.") from None


def parse_args(argv: Sequence[str]) -> tuple[SessionFlags, list[str]]:
    """Split off the flags of this command; the rest are session options. Raises UsageError."""
    end = argv.index("--") if "--" in argv else len(argv)
    rest: list[str] = []
    numbers: dict[str, int] = {}
    ours = iter(argv[:end])
    for word in ours:
        flag, equals, value = word.partition("=")
        if flag in NUMBERS:
            numbers[flag[2:]] = parse_number(flag, value if equals else next(ours, ""))
        elif word not in ("--json", "--all"):
            rest.append(word)
    return SessionFlags(as_json="--json" in argv[:end], all="--all" in argv[:end], **numbers), [*rest, *argv[end:]]


def check_length(name: str, text: str) -> None:
    """Limit titles and tags, which `list` looks for in only a part of the file. Raises UsageError."""
    if len(text) > MAX_NAME_CHARS:
        raise UsageError(f"{name} must not be longer than {MAX_NAME_CHARS} characters")


def parse_number(flag: str, value: str) -> int:
    """Raises UsageError."""
    if not (value.isascii() and value.isdigit()):
        raise UsageError(f"{flag} must be a whole number, not {value!r}")
    if len(value) > MAX_DIGITS:
        raise UsageError(f"{flag} must not have more than {MAX_DIGITS} digits")
    return int(value)


def write_file(path: str, lines: Iterable[bytes]) -> None:
    """Write a file atomically: an existing file stays until the new one is complete. Raises SessionError."""
    target = os.path.realpath(path)
    # A pipe or device cannot be replaced, so it is written directly.
    is_special = os.path.exists(target) and not os.path.isfile(target)
    temporary = target if is_special else f"{target}.{os.urandom(8).hex()}.new"
    try:
        # The user named the target, so it may be anything; the temporary file is ours.
        opened = os.open(target, os.O_WRONLY) if is_special else private_files.open_file(temporary, private_files.NEW)
        with open(opened, "wb") as file:
            file.writelines(lines)
        if not is_special:
            os.replace(temporary, target)
    except BaseException as exc:
        if not is_special:
            with suppress(OSError):
                os.unlink(temporary)
        if isinstance(exc, OSError):
            raise SessionError(f"cannot write {path}: {exc.strerror}") from None
        raise


def read_input(path: str) -> bytes:
    """Raises SessionError."""
    if path == "-":
        return read_stdin(needed=True) or b""
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise SessionError(f"cannot read {path}: {exc.strerror}") from None


def format_line(info: Info) -> str:
    title = info.title or info.first_prompt or ""
    tag = f" #{info.tag}" if info.tag else ""
    return f"{info.id}  {info.modified[:16].replace('T', ' ')}  {info.size_bytes:>10}{tag}  {title}"


def format_info(info: Info) -> Iterator[str]:
    for name in info.__struct_fields__:
        if (value := getattr(info, name)) is not None:
            yield f"{name:12} {value}"


def format_speech(entry: Entry) -> Iterator[str]:
    """Yield the text of an entry, line by line."""
    text = entry_text(entry.kind, entry.message)
    if text:
        first, *more = text.split("\n")
        yield f"[{entry.seq}] {entry.kind}: {first}"
        yield from (f"    {next}" for next in more)
