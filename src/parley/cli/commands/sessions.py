"""`parley sessions`, `purge` and `context`: list, read and manage stored sessions.

The store is chosen as for a session (`--store`, `--db`, PARLEY_STORE). Without one, a session is
looked up by its id in every supported layout of files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from parley.cli.commands.subcommand import (
    GivenArgs,
    Subcommand,
    can_ask,
    confirm,
    open_launch,
    show_lines,
    terminal_width,
    write_all,
    write_json,
    write_lines,
    write_result,
)
from parley.cli.stdio import read_stdin
from parley.compose import memory
from parley.compose.launch_context import forget_history
from parley.compose.stores import SessionStores
from parley.errors import InvalidArguments, SessionBusy, SessionError, UnknownSession, UsageError
from parley.protocol.base import Json, to_builtins
from parley.protocol.options import CliOptions
from parley.settings.base import printable
from parley.stores.base import Entry, Info, Store, copy_entries
from parley.stores.export import import_session, pack, set_labels, unpack
from parley.stores.request_usage import list_requests
from parley.stores.search_text import entry_text
from parley.stores.session_open import is_uuid
from parley.terminal.rendering.text import format_age, format_quantity, format_size, format_table
from parley.workspace import private_files

MAX_NAME_CHARS = 1000
SHORT_CHARS = 8
MAX_COLUMNS = 200
MAX_CHOICES = 20
"""How many sessions the error for `--resume` without a value lists."""


def list_background(given: GivenArgs) -> int:
    """Raises UsageError without --json: that is the view of a terminal."""
    if not given.has("json"):
        raise UsageError("Parley has no background sessions; `parley sessions list` lists the stored ones")
    return write_json([])


def purge(given: GivenArgs) -> int:
    command = SessionsCommand(given)
    return command.purge(os.path.abspath(given.words[0]) if given.words else command.launch.cwd)


class SessionsCommand(Subcommand):
    def __init__(self, given: GivenArgs) -> None:
        super().__init__(given)
        self.launch = open_launch(given.options)
        self.sessions = SessionStores(self.launch)

    def run(self) -> int:
        try:
            return super().run()
        except SessionBusy as exc:
            # The exception's own text suggests --fork-session and --steal, which do not apply here.
            busy = f"Session {exc.session_id} is in use by {exc.holder}."
            raise SessionError(
                f"{busy} `{self.given.action}` requires exclusive access; try again when that process has exited."
            ) from None

    def list(self) -> int:
        given = self.given
        if given.has("server"):
            from parley.cli.commands.attach import list_remote

            return list_remote(given)
        limit = given.number("limit", 0) if given.has("limit") else None
        project = None if given.has("all") else self.launch.cwd
        found = self.sessions.store().list(project, limit, given.number("offset", 0))
        where = "" if given.has("all") else f" of {self.launch.cwd} (--all lists those of all directories)"
        lines = show_lines(format_sessions(found, with_folder=given.has("all"))) if found else []
        return self.write(found, lines, nothing=f"No sessions{where}.")

    def show(self, name: str) -> int:
        store, info = self.find(name)
        said = (text for entry in store.read(info.id) for text in format_speech(entry))
        return self.write([info], chain(show_lines(format_info(info)), show_lines(said, is_whole=True)))

    def agents(self, name: str, agent_id: str | None = None) -> int:
        store, info = self.find(name)
        found = {agent.id: agent for agent in store.agents(info.id)}
        if agent_id is None:
            rows = [(each.id, each.meta.get("agentType", "")) for each in found.values()]
            table = show_lines(format_table(("ID", "TYPE"), rows))
            return self.write(found.values(), table, nothing=f"Session {info.id} has no subagents.")
        if agent_id not in found:
            raise UsageError(f"session {info.id} has no subagent {agent_id!r}")
        entries = store.read_agent(info.id, agent_id)
        said = (text for entry in entries for text in format_speech(entry))
        return self.write(entries, show_lines(said, is_whole=True))

    def search(self, *words: str) -> int:
        found = [*self.sessions.store().search(" ".join(words), self.given.number("limit", 0) or 20)]
        rows = [(hit.id, str(hit.seq), hit.kind, printable(hit.excerpt)) for hit in found]
        table = show_lines(format_table(("SESSION", "SEQ", "KIND", "TEXT"), rows, right=("SEQ",)))
        return self.write(found, table, nothing=f"No message contains {' '.join(words)!r}.")

    def export(self, name: str, path: str | None = None) -> int:
        store, info = self.find(name)
        agents = [(agent, store.read_agent(info.id, agent.id)) for agent in store.agents(info.id)]
        lines = pack(info, store.read(info.id), agents)
        if path is None:
            return 0 if write_all(lines) else 1
        write_file(path, lines)
        return 0

    def import_(self, path: str) -> int:
        parcel = unpack(read_input(path))
        new, store = self.open_new(parcel.info.id, "import it under another id")
        import_session(store, new, copy_entries(parcel.entries, new), parcel.agents)
        set_labels(store, new, parcel.info.title, parcel.info.tag)
        return self.report({"id": new}, new)

    def fork(self, name: str) -> int:
        if self.given.has("server"):
            from parley.cli.commands.attach import fork_remote

            return fork_remote(self.given)
        store, info = self.find(name)
        new, _ = self.open_new(self.launch.clock.new_uuid(), "choose another id", store)
        import_session(store, new, copy_entries(store.read(info.id), new))
        set_labels(store, new, f"{info.title} (fork)" if info.title else None, info.tag)
        self.sessions.inherit(new, info.id)
        return self.report({"id": new}, new)

    def rename(self, name: str, title: str) -> int:
        if not title.strip():
            raise UsageError("the title must not be empty")
        check_length("the title", title)
        session_id, store = self.locate(name)
        store.rename(session_id, title.strip())
        done = f"Session {session_id} has the title {title.strip()!r}"
        return self.report({"id": session_id, "title": title.strip()}, done)

    def tag(self, name: str, tag: str | None = None) -> int:
        check_length("the tag", tag or "")
        session_id, store = self.locate(name)
        tag = tag.strip() if tag else None
        store.tag(session_id, tag)
        done = f"Session {session_id} has the tag {tag!r}" if tag else f"Session {session_id} has no tag"
        return self.report({"id": session_id, "tag": tag}, done)

    def delete(self, name: str) -> int:
        session_id, store = self.locate(name)
        if not self.given.has("yes") and not self.may_delete(name, session_id, store):
            raise SessionError(f"session {session_id} was not deleted")
        self.remove(session_id, store)
        return self.report({"id": session_id, "deleted": True}, f"Deleted session {session_id}")

    def remove(self, session_id: str, store: Store) -> None:
        store.delete(session_id)
        memory.forget(self.launch, session_id)
        # Without the session, its file checkpoints cannot be restored.
        forget_history(self.launch, session_id)

    def purge(self, folder: str) -> int:
        """Delete the sessions of a folder, or of all. Raises SessionError."""
        store = self.sessions.store()
        found = store.list(None if self.given.has("all") else folder)
        where = "any directory" if self.given.has("all") else folder
        if not found:
            raise SessionError(f"no sessions of {where}")
        write_all(f"{line}\n".encode() for line in show_lines(format_sessions(found, with_folder=True)))
        if self.given.has("dry-run"):
            return write_lines([f"Would delete {format_quantity(len(found), 'session')}"])
        question = f"Delete {format_quantity(len(found), 'session')}?"
        if not self.given.has("yes") and not (can_ask() and confirm(question)):
            raise SessionError("nothing was deleted (without a terminal, `purge` needs --yes)")
        for info in found:
            self.remove(info.id, store)
        return write_lines([f"Deleted {format_quantity(len(found), 'session')}"])

    def may_delete(self, name: str, session_id: str, store: Store) -> bool:
        """Ask a person at a terminal. A script must give the whole id, or --yes. Raises InvalidArguments."""
        if not store.exists(session_id):
            raise UnknownSession(session_id)
        if can_ask():
            info = store.info(session_id)
            title = "" if info is None else f" ({printable(info.shown_title or 'no title')})"
            return confirm(f"Delete session {session_id}{title}?")
        if name != session_id:
            raise InvalidArguments(
                f"without a terminal, `delete` needs --yes or the complete id of session {session_id}"
            )
        return True

    def repair(self, name: str) -> int:
        session_id, store = self.locate(name)
        report = store.repair(session_id)
        done = {"id": session_id, "mended": report}
        if report is None:
            return self.report(done, f"{session_id} is not damaged; nothing was changed")
        moved = f"moved the damaged part and everything after it ({report.aside_bytes} bytes) to {report.aside}"
        return self.report(done, f"{session_id}: kept {report.kept_bytes} bytes before the damage", moved)

    # What they share.

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

    def open_new(self, default: str, remedy: str, store: Store | None = None) -> tuple[str, Store]:
        """The id for a new session, `--session-id` or the default, and its store. Raises UsageError."""
        given = self.given.options.session_id
        if given is not None and not is_uuid(given):
            raise UsageError(f"Invalid session ID. Must be a valid UUID, not {given!r:.200}.")
        session_id, store = given or default, store or self.sessions.store()
        if store.exists(session_id):
            raise UsageError(f"Session ID {session_id} is already in use. Use --session-id to {remedy}.")
        return session_id, store

    def report(self, result: Json, *lines: str) -> int:
        """Say what was done."""
        return self.write([result], show_lines(lines))


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
        return read_stdin(is_awaited=True) or b""
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
        width=terminal_width(MAX_COLUMNS, descriptor) if is_terminal else None,
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


def show_context(given: GivenArgs) -> int:
    sessions = SessionStores(open_launch(given.options))
    session_id = sessions.find(given.words[0])
    requests = [*list_requests(sessions.store(session_id).read(session_id))]
    rows = [
        (str(number), each.at[11:19], each.model, *map(str, each.tokens), each.reason)
        for number, each in enumerate(requests, 1)
    ]
    names = ("READ", "WRITTEN", "FRESH", "MISSED")
    table = format_table(("REQUEST", "TIME", "MODEL", *names, "WHY"), rows, right=("REQUEST", *names))
    return write_result(given, {"requests": to_builtins(requests)}, [*show_lines(table)])
