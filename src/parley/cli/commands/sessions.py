"""`parley sessions`: what is kept of past conversations, in whichever store.

Whatever names a store for a session names it here (`--store`, `--db`, PARLEY_STORE); without
one, a session is found by its id in every layout we know.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from parley.cli.commands.subcommand import Commands, chosen, handed_out, wants_help
from parley.cli.stdio import complain, read_stdin
from parley.compose import memory
from parley.compose.launch_context import Basis, working_directory
from parley.compose.paths import forget_history
from parley.compose.stores import Sessions
from parley.errors import SessionBusy, SessionError, UnknownSession, UsageError
from parley.protocol.base import Struct, spell
from parley.protocol.options import Options
from parley.settings.base import shown
from parley.stores.base import Agent, Entry, Hit, Info, Store, copied
from parley.stores.export import adorn, fill, packed, unpacked
from parley.stores.search_text import said
from parley.stores.session_open import is_uuid
from parley.workspace import private_files

USAGE = """\
usage: parley sessions list [--all] [--limit N] [--offset N]     those of this folder, or all, the latest first
       parley sessions show SESSION                              what was said
       parley sessions agents SESSION [AGENT]                    its subagents, or what one of them said
       parley sessions search TEXT [--limit N]                   where all these words were said
       parley sessions export SESSION [FILE]                     all of it as lines of JSON, to stdout without FILE
       parley sessions import FILE [--session-id ID]             from such lines, - for stdin
       parley sessions fork SESSION [--session-id ID]            a copy to go on with
       parley sessions rename SESSION TITLE
       parley sessions tag SESSION [TAG]                         without TAG, take it away
       parley sessions delete SESSION
       parley sessions repair SESSION                            keep what is before the damage, put the rest aside

--json gives lines of JSON. --store NAME[:PLACE] and --db FILE say where; there are claude, folder, sqlite, postgres."""
LONGEST_NUMBER = 15
LONGEST_NAME = 1000
NUMBERS = ("--limit", "--offset")
Found = TypeVar("Found", Info, Hit, Agent)


class Wish(Struct, frozen=True, kw_only=True):
    """Our own flags."""

    as_json: bool = False
    all: bool = False
    limit: int | None = None
    offset: int = 0


class Desk:
    """The commands; each gives what is to be written."""

    def __init__(self, options: Options, wish: Wish) -> None:
        self.wish = wish
        self.options = options
        self.basis = Basis(options, dict(os.environ), working_directory())
        self.basis.complain = complain
        self.sessions = Sessions(self.basis)

    def store(self, session_id: str | None = None) -> Store:
        return self.sessions.store(session_id)

    def known(self, session_id: str) -> tuple[Store, Info]:
        """Raises UnknownSession."""
        store = self.store(session_id)
        info = store.info(session_id)
        if info is None:
            next(store.read(session_id), None)  # says why, if it is there and cannot be read
            raise UnknownSession(session_id)
        return store, info

    def list(self) -> Iterator[bytes]:
        wish = self.wish
        found = self.store().list(None if wish.all else self.basis.cwd, wish.limit, wish.offset)
        return self.told(found, line)

    def show(self, session_id: str) -> Iterator[bytes]:
        store, info = self.known(session_id)
        if self.wish.as_json:
            yield spell(info) + b"\n"
            return
        yield from self.text(about(info))
        for entry in store.read(session_id):
            yield from self.whole(speech(entry))

    def agents(self, session_id: str, agent_id: str | None = None) -> Iterator[bytes]:
        store, _ = self.known(session_id)
        found = {agent.id: agent for agent in store.agents(session_id)}
        if agent_id is None:
            return self.told(found.values(), lambda agent: f"{agent.id}  {agent.meta.get('agentType', '')}")
        if agent_id not in found:
            raise UsageError(f"session {session_id} has no subagent {agent_id!r}")
        entries = store.read_agent(session_id, agent_id)
        if self.wish.as_json:
            return (spell(entry) + b"\n" for entry in entries)
        return self.whole(text for entry in entries for text in speech(entry))

    def search(self, *words: str) -> Iterator[bytes]:
        found = self.store().search(" ".join(words), self.wish.limit or 20)
        return self.told(found, lambda hit: f"{hit.id}  {hit.seq:>6}  {hit.kind:9}  {hit.excerpt}")

    def export(self, session_id: str, path: str | None = None) -> Iterator[bytes]:
        store, info = self.known(session_id)
        agents = [(agent, store.read_agent(session_id, agent.id)) for agent in store.agents(session_id)]
        lines = packed(info, store.read(session_id), agents)
        if path is None:
            yield from lines
            return
        put_in_place(path, lines)

    def import_(self, path: str) -> Iterator[bytes]:
        parcel = unpacked(content(path))
        session_id = self.fresh(parcel.info.id)
        store = self.store()
        if store.exists(session_id):
            raise UsageError(f"Session ID {session_id} is already in use. --session-id gives it another.")
        fill(store, session_id, copied(parcel.entries, session_id), parcel.agents)
        adorn(store, session_id, parcel.info.title, parcel.info.tag)
        return self.named(session_id)

    def fork(self, session_id: str) -> Iterator[bytes]:
        store, info = self.known(session_id)
        new = self.fresh(self.basis.stamp.new_uuid())
        if store.exists(new):
            raise UsageError(f"Session ID {new} is already in use.")
        fill(store, new, copied(store.read(session_id), new))
        adorn(store, new, f"{info.title} (fork)" if info.title else None, info.tag)
        self.sessions.inherit(new, session_id)
        return self.named(new)

    def rename(self, session_id: str, title: str) -> Iterator[bytes]:
        if not title.strip():
            raise UsageError("a title must have a letter")
        check_length("a title", title)
        self.store(session_id).rename(session_id, title.strip())
        return iter(())

    def tag(self, session_id: str, tag: str | None = None) -> Iterator[bytes]:
        check_length("a tag", tag or "")
        self.store(session_id).tag(session_id, tag.strip() if tag else None)
        return iter(())

    def delete(self, session_id: str) -> Iterator[bytes]:
        self.store(session_id).delete(session_id)
        memory.forget(self.basis, session_id)
        # The states of files it could go back to are of no use to anybody else.
        forget_history(self.basis, session_id)
        return iter(())

    def repair(self, session_id: str) -> Iterator[bytes]:
        mended = self.store(session_id).repair(session_id)
        if self.wish.as_json:
            return iter([spell({"id": session_id, "mended": mended}) + b"\n"])
        if mended is None:
            return self.text([f"{session_id} is whole; nothing was changed"])
        kept = f"{session_id}: {mended.kept_bytes} bytes are whole and were kept"
        return self.text([kept, f"{mended.aside_bytes} bytes from the damage on are in {mended.aside}"])

    def fresh(self, otherwise: str) -> str:
        """The id of a session to be made. Raises UsageError."""
        wanted = self.options.session_id
        if wanted is not None and not is_uuid(wanted):
            raise UsageError("Invalid session ID. Must be a valid UUID.")
        return wanted or otherwise

    def named(self, session_id: str) -> Iterator[bytes]:
        return iter([spell({"id": session_id}) + b"\n"]) if self.wish.as_json else self.text([session_id])

    def told(self, found: Iterable[Found], spelled: Callable[[Found], str]) -> Iterator[bytes]:
        if self.wish.as_json:
            return (spell(one) + b"\n" for one in found)
        return self.text(spelled(one) for one in found)

    def text(self, lines: Iterable[str]) -> Iterator[bytes]:
        return (f"{shown(line)}\n".encode(errors="replace") for line in lines)

    def whole(self, lines: Iterable[str]) -> Iterator[bytes]:
        return (f"{shown(line, len(line))}\n".encode(errors="replace") for line in lines)


COMMANDS: Commands = {
    "list": (Desk.list, 0, 0),
    "show": (Desk.show, 1, 1),
    "agents": (Desk.agents, 1, 2),
    "search": (Desk.search, 1, 100),
    "export": (Desk.export, 1, 2),
    "import": (Desk.import_, 1, 1),
    "fork": (Desk.fork, 1, 1),
    "rename": (Desk.rename, 2, 2),
    "tag": (Desk.tag, 1, 2),
    "delete": (Desk.delete, 1, 1),
    "repair": (Desk.repair, 1, 1),
}


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    if wants_help(argv):
        return handed_out([f"{USAGE}\n".encode()])
    wish, rest = taken(argv)
    options, name, words = chosen(rest, "sessions", USAGE, COMMANDS)
    try:
        return handed_out(COMMANDS[name][0](Desk(options, wish), *words))
    except SessionBusy as flaw:
        # Forking or stealing it, as a session may, would not get this done.
        busy = f"Session {flaw.session_id} is in use by {flaw.holder}."
        raise SessionError(f"{busy} `{name}` needs it alone: try again when that has ended.") from None


def taken(argv: Sequence[str]) -> tuple[Wish, list[str]]:
    """Our own flags, off the command line: the rest is read as a session reads it. Raises UsageError."""
    end = argv.index("--") if "--" in argv else len(argv)
    rest: list[str] = []
    numbers: dict[str, int] = {}
    ours = iter(argv[:end])
    for word in ours:
        flag, equals, value = word.partition("=")
        if flag in NUMBERS:
            numbers[flag[2:]] = number(flag, value if equals else next(ours, ""))
        elif word not in ("--json", "--all"):
            rest.append(word)
    return Wish(as_json="--json" in argv[:end], all="--all" in argv[:end], **numbers), [*rest, *argv[end:]]


def check_length(name: str, text: str) -> None:
    """Lists look for names in a part of the file, and find no longer ones. Raises UsageError."""
    if len(text) > LONGEST_NAME:
        raise UsageError(f"{name} must have {LONGEST_NAME} characters at most")


def number(flag: str, value: str) -> int:
    """Raises UsageError."""
    if not (value.isascii() and value.isdigit()):
        raise UsageError(f"{flag} must be a whole number, not {value!r}")
    if len(value) > LONGEST_NUMBER:
        raise UsageError(f"{flag} must have {LONGEST_NUMBER} digits at most")
    return int(value)


def put_in_place(path: str, lines: Iterable[bytes]) -> None:
    """Write a file as a whole: one that is there already stays until there is another. Raises SessionError."""
    goal = os.path.realpath(path)
    # What is no file, e.g. a pipe, cannot be replaced.
    half = goal if os.path.exists(goal) and not os.path.isfile(goal) else f"{goal}.{os.urandom(8).hex()}.new"
    try:
        # The person named the goal, so it may be a pipe or a device; the file beside it is ours.
        opened = os.open(goal, os.O_WRONLY) if half == goal else private_files.open_file(half, private_files.NEW)
        with open(opened, "wb") as file:
            file.writelines(lines)
        if half != goal:
            os.replace(half, goal)
    except BaseException as flaw:
        if half != goal:
            with suppress(OSError):
                os.unlink(half)
        if isinstance(flaw, OSError):
            raise SessionError(f"{path} cannot be written: {flaw.strerror}") from None
        raise


def content(path: str) -> bytes:
    """Raises SessionError."""
    if path == "-":
        return read_stdin(needed=True) or b""
    try:
        return Path(path).read_bytes()
    except OSError as flaw:
        raise SessionError(f"{path} cannot be read: {flaw.strerror}") from None


def line(info: Info) -> str:
    named = info.title or info.first_prompt or ""
    tag = f" #{info.tag}" if info.tag else ""
    return f"{info.id}  {info.modified[:16].replace('T', ' ')}  {info.size_bytes:>10}{tag}  {named}"


def about(info: Info) -> Iterator[str]:
    for name in info.__struct_fields__:
        if (value := getattr(info, name)) is not None:
            yield f"{name:12} {value}"


def speech(entry: Entry) -> Iterator[str]:
    """What was said in an entry, a line each."""
    text = said(entry.kind, entry.message)
    if text:
        first, *more = text.split("\n")
        yield f"[{entry.seq}] {entry.kind}: {first}"
        yield from (f"    {next}" for next in more)
