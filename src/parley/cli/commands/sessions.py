"""`parley sessions`: list, read and manage stored sessions.

The store is chosen as for a session (`--store`, `--db`, PARLEY_STORE). Without one, a session is
looked up by its id in every supported layout of files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from parley.cli import style
from parley.cli.commands.subcommand import GivenArgs, json_lines, open_launch, text_lines, write_all
from parley.cli.stdio import read_stdin, warn
from parley.compose import memory
from parley.compose.paths import forget_history
from parley.compose.stores import SessionStores
from parley.errors import InvalidArguments, SessionBusy, SessionError, UnknownSession, UsageError
from parley.protocol.base import Json, encode_json
from parley.protocol.options import CliOptions
from parley.settings.base import printable
from parley.stores.base import AgentInfo, Entry, Info, SearchHit, Store, copy_entries
from parley.stores.export import import_session, pack, set_labels, unpack
from parley.stores.search_text import entry_text
from parley.stores.session_open import is_uuid
from parley.terminal.rendering.tables import format_age, format_size, format_table
from parley.workspace import private_files

MAX_NAME_CHARS = 1000
SHORT_CHARS = 8
MAX_COLUMNS = 200
MAX_CHOICES = 20
"""How many sessions the error for `--resume` without a value lists."""
Found = TypeVar("Found", Info, SearchHit, AgentInfo)


class SessionsCommand:
    """The actions; each returns the lines to print."""

    def __init__(self, given: GivenArgs) -> None:
        self.given = given
        self.as_json = given.has("json")
        self.launch = open_launch(given.options)
        self.sessions = SessionStores(self.launch)

    def locate(self, name: str) -> tuple[str, Store]:
        """The id of a session that is named by its id, its title or the start of its id, and its store."""
        session_id = self.sessions.find(name)
        return session_id, self.sessions.store(session_id)

    def find(self, name: str) -> tuple[Store, Info]:
        """Raises UnknownSession."""
        session_id, store = self.locate(name)
        info = store.info(session_id)
        if info is None:
            next(store.read(session_id), None)  # raises the reason if the session exists but is unreadable
            raise UnknownSession(session_id)
        return store, info

    def list(self) -> Iterator[bytes]:
        given = self.given
        limit = given.number("limit", 0) if given.has("limit") else None
        project = None if given.has("all") else self.launch.cwd
        found = self.sessions.store().list(project, limit, given.number("offset", 0))
        if self.as_json:
            return json_lines(found)
        if not found:
            where = "" if given.has("all") else f" of {self.launch.cwd} (--all lists those of all directories)"
            warn(f"No sessions{where}.")
            return iter(())
        return text_lines(format_sessions(found, with_folder=given.has("all")))

    def show(self, name: str) -> Iterator[bytes]:
        store, info = self.find(name)
        if self.as_json:
            yield encode_json(info) + b"\n"
            return
        yield from text_lines(format_info(info))
        for entry in store.read(info.id):
            yield from text_lines(format_speech(entry), is_whole=True)

    def agents(self, name: str, agent_id: str | None = None) -> Iterator[bytes]:
        store, info = self.find(name)
        found = {agent.id: agent for agent in store.agents(info.id)}
        if agent_id is None:
            if not found and not self.as_json:
                warn(f"Session {info.id} has no subagents.")
                return iter(())
            return self.format_all(
                found.values(), ("ID", "TYPE"), lambda each: (each.id, each.meta.get("agentType", ""))
            )
        if agent_id not in found:
            raise UsageError(f"session {info.id} has no subagent {agent_id!r}")
        entries = store.read_agent(info.id, agent_id)
        if self.as_json:
            return json_lines(entries)
        return text_lines((text for entry in entries for text in format_speech(entry)), is_whole=True)

    def search(self, *words: str) -> Iterator[bytes]:
        found = [*self.sessions.store().search(" ".join(words), self.given.number("limit", 0) or 20)]
        if not found and not self.as_json:
            warn(f"No message contains {' '.join(words)!r}.")
            return iter(())
        return self.format_all(
            found,
            ("SESSION", "SEQ", "KIND", "TEXT"),
            lambda hit: (hit.id, str(hit.seq), hit.kind, printable(hit.excerpt)),
        )

    def export(self, name: str, path: str | None = None) -> Iterator[bytes]:
        store, info = self.find(name)
        agents = [(agent, store.read_agent(info.id, agent.id)) for agent in store.agents(info.id)]
        lines = pack(info, store.read(info.id), agents)
        if path is None:
            yield from lines
            return
        write_file(path, lines)

    def import_(self, path: str) -> Iterator[bytes]:
        parcel = unpack(read_input(path))
        session_id = self.new_id(parcel.info.id)
        store = self.sessions.store()
        if store.exists(session_id):
            raise UsageError(
                f"Session ID {session_id} is already in use. Use --session-id to import it under another id."
            )
        import_session(store, session_id, copy_entries(parcel.entries, session_id), parcel.agents)
        set_labels(store, session_id, parcel.info.title, parcel.info.tag)
        return self.report({"id": session_id}, session_id)

    def fork(self, name: str) -> Iterator[bytes]:
        store, info = self.find(name)
        new = self.new_id(self.launch.clock.new_uuid())
        if store.exists(new):
            raise UsageError(f"Session ID {new} is already in use. Use --session-id to choose another id.")
        import_session(store, new, copy_entries(store.read(info.id), new))
        set_labels(store, new, f"{info.title} (fork)" if info.title else None, info.tag)
        self.sessions.inherit(new, info.id)
        return self.report({"id": new}, new)

    def rename(self, name: str, title: str) -> Iterator[bytes]:
        if not title.strip():
            raise UsageError("the title must not be empty")
        check_length("the title", title)
        session_id, store = self.locate(name)
        store.rename(session_id, title.strip())
        return self.report(
            {"id": session_id, "title": title.strip()}, f"Session {session_id} has the title {title.strip()!r}"
        )

    def tag(self, name: str, tag: str | None = None) -> Iterator[bytes]:
        check_length("the tag", tag or "")
        session_id, store = self.locate(name)
        tag = tag.strip() if tag else None
        store.tag(session_id, tag)
        done = f"Session {session_id} has the tag {tag!r}" if tag else f"Session {session_id} has no tag"
        return self.report({"id": session_id, "tag": tag}, done)

    def delete(self, name: str) -> Iterator[bytes]:
        session_id, store = self.locate(name)
        if not self.given.has("yes") and not self.may_delete(name, session_id, store):
            raise SessionError(f"session {session_id} was not deleted")
        store.delete(session_id)
        memory.forget(self.launch, session_id)
        # Without the session, its file checkpoints cannot be restored.
        forget_history(self.launch, session_id)
        return self.report({"id": session_id, "deleted": True}, f"Deleted session {session_id}")

    def may_delete(self, name: str, session_id: str, store: Store) -> bool:
        """Ask a person at a terminal. A script must give the whole id, or --yes. Raises InvalidArguments."""
        if not store.exists(session_id):
            raise UnknownSession(session_id)
        if style.can_ask():
            info = store.info(session_id)
            title = "" if info is None else f" ({printable(info.shown_title or 'no title')})"
            return style.confirm(f"Delete session {session_id}{title}?")
        if name != session_id:
            raise InvalidArguments(
                f"without a terminal, `delete` needs --yes or the complete id of session {session_id}"
            )
        return True

    def repair(self, name: str) -> Iterator[bytes]:
        session_id, store = self.locate(name)
        report = store.repair(session_id)
        if self.as_json:
            return json_lines([{"id": session_id, "mended": report}])
        if report is None:
            return text_lines([f"{session_id} is not damaged; nothing was changed"])
        kept = f"{session_id}: kept {report.kept_bytes} bytes before the damage"
        return text_lines(
            [kept, f"moved the damaged part and everything after it ({report.aside_bytes} bytes) to {report.aside}"]
        )

    def new_id(self, default: str) -> str:
        """Return the id for a new session: `--session-id` or the default. Raises UsageError."""
        given = self.given.options.session_id
        if given is not None and not is_uuid(given):
            raise UsageError("Invalid session ID. Must be a valid UUID.")
        return given or default

    def report(self, result: Json, text: str) -> Iterator[bytes]:
        """Say what was done."""
        return json_lines([result]) if self.as_json else text_lines([text])

    def format_all(
        self, found: Iterable[Found], header: Sequence[str], format_one: Callable[[Found], Sequence[str]]
    ) -> Iterator[bytes]:
        if self.as_json:
            return json_lines(found)
        return text_lines(format_table(header, [format_one(each) for each in found], right=("SEQ",)))


ACTIONS: dict[str, Callable[..., Iterator[bytes]]] = {
    "list": SessionsCommand.list,
    "show": SessionsCommand.show,
    "agents": SessionsCommand.agents,
    "search": SessionsCommand.search,
    "export": SessionsCommand.export,
    "import": SessionsCommand.import_,
    "fork": SessionsCommand.fork,
    "rename": SessionsCommand.rename,
    "tag": SessionsCommand.tag,
    "delete": SessionsCommand.delete,
    "repair": SessionsCommand.repair,
}


def run(given: GivenArgs) -> int:
    if given.has("server"):
        from parley.cli.commands.attach import fork_remote, list_remote

        return fork_remote(given) if given.action == "fork" else list_remote(given)
    try:
        return write_all(ACTIONS[given.action](SessionsCommand(given), *given.words))
    except SessionBusy as exc:
        # The exception's own text suggests --fork-session and --steal, which do not apply here.
        busy = f"Session {exc.session_id} is in use by {exc.holder}."
        raise SessionError(
            f"{busy} `{given.action}` requires exclusive access; try again when that process has exited."
        ) from None


def check_length(name: str, text: str) -> None:
    """Limit titles and tags, which `list` looks for in only a part of the file. Raises UsageError."""
    if len(text) > MAX_NAME_CHARS:
        raise UsageError(f"{name} must not be longer than {MAX_NAME_CHARS} characters")


def write_file(path: str, lines: Iterable[bytes]) -> None:
    """Write a file atomically: an existing file stays until the new one is complete. Raises SessionError."""
    target = os.path.realpath(path)
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            # A pipe or device cannot be replaced, so it is written directly.
            with open(os.open(target, os.O_WRONLY), "wb") as file:
                file.writelines(lines)
            return
        with (
            private_files.open_folder(os.path.dirname(target)) as (folder, _),
            private_files.replacing(folder, os.path.basename(target)) as new,
            os.fdopen(new, "wb", closefd=False) as file,
        ):
            file.writelines(lines)
    except OSError as exc:
        raise SessionError(f"cannot write {path}: {exc.strerror}") from None


def read_input(path: str) -> bytes:
    """Raises SessionError."""
    if path == "-":
        return read_stdin(needed=True) or b""
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise SessionError(f"cannot read {path}: {exc.strerror}") from None


def describe_choices(options: CliOptions) -> str:
    """The error for `--resume` without a value: the sessions of this directory, and how to continue one.

    Raises UsageError, SessionError.
    """
    launch = open_launch(options)
    found = SessionStores(launch).store().list(launch.cwd, MAX_CHOICES)
    start = "--resume needs a session id or title"
    if not found:
        return f"{start}. There are no sessions of {launch.cwd} (to list all: `parley sessions list --all`)."
    return "\n".join(
        [
            f"{start}. The latest sessions of {launch.cwd}:",
            *format_sessions(found, with_folder=False, descriptor=2),
            'To continue one of them: parley --resume ID "PROMPT" (for the first one: parley --continue "PROMPT")',
        ]
    )


def format_sessions(found: Sequence[Info], *, with_folder: bool, descriptor: int = 1) -> list[str]:
    """A table. At a terminal, it has short ids and is not wider than the terminal."""
    is_terminal = os.isatty(descriptor)
    ids = shorten([info.id for info in found]) if is_terminal else [info.id for info in found]
    has_tags = any(info.tag for info in found)
    header = [
        "ID",
        "MODIFIED",
        "SIZE",
        *(["TAG"] if has_tags else []),
        *(["DIRECTORY"] if with_folder else []),
        "TITLE",
    ]
    rows = [
        [
            id,
            format_time(info.modified),
            format_size(info.size_bytes),
            *([info.tag or ""] if has_tags else []),
            *([info.cwd] if with_folder else []),
            " ".join(info.shown_title.split()),
        ]
        for id, info in zip(ids, found, strict=True)
    ]
    return format_table(
        header,
        [[printable(cell) for cell in row] for row in rows],
        right=("SIZE",),
        width=style.terminal_width(MAX_COLUMNS, descriptor) if is_terminal else None,
    )


def format_time(at: str) -> str:
    """How long ago that was."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return at
    return format_age((datetime.now(UTC) - then).total_seconds())


def shorten(ids: Sequence[str]) -> list[str]:
    """The first characters of each id: at least eight, and enough to tell them apart."""
    length = SHORT_CHARS
    while len({id[:length] for id in ids}) < len(set(ids)):
        length += 1
    return [id[:length] if is_uuid(id) else id for id in ids]


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
