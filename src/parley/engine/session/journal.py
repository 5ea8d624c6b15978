"""The journal of a session: its log, and the state that follows from it.

Messages are journalled before they are sent. State is a fold over the log: it is the same for an entry that was just
written and for one that is read after a restart. Permissions that the client granted are part of it:

    grant   {"updates": [...], "session_id", "cwd"}      the updates of a reply whose destination is the session
    mode    {"mode", "before", "session_id", "cwd"}      the new mode, and the mode before it

A grant belongs to one session in one working directory. In a fork, or in another directory, only updates that
restrict the session apply. Updates for settings files are stored in those files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from parley.engine.clock import Clock, SessionIdentity
from parley.engine.context.history import History
from parley.engine.context.system_prompt import find_date
from parley.errors import SessionError
from parley.permissions.base import InvalidUpdate, Policy
from parley.protocol.base import Json, Message, convert, to_builtins
from parley.stores.base import FOREIGN, USAGE, Entry, Log, later_time

if TYPE_CHECKING:
    from parley.tools.schedule import ScheduledJob

SESSION_DESTINATIONS = ("session", "cliArg")
SCHEDULE = "schedule"
"""The kind of the entries about scheduled prompts."""
STRICT_MODES = frozenset({"default", "plan", "dontAsk"})
"""Modes that approve nothing in advance."""


class Grants:
    def __init__(self, identity: SessionIdentity, cwd: str) -> None:
        self._identity = identity
        self._cwd = cwd
        self._updates: list[list[Json]] = []
        self.mode: str | None = None
        """The journalled mode; None if none applies here."""
        self.previous_mode = "default"

    def apply(self, entry: Entry) -> None:
        """Fold one entry of the log."""
        match entry.kind:
            case "grant":
                updates = [update for update in entry.message["updates"] if is_session_update(update)]
                is_own = self._is_own(entry.message)
                self._updates.append([update for update in updates if is_own or restricts(update)])
            case "mode":
                self.mode = self._effective_mode(entry.message, entry.message["mode"])
                self.previous_mode = self._effective_mode(entry.message, entry.message["before"]) or "default"

    def restore(self, policy: Policy, warn: Callable[[str], None]) -> None:
        """Apply the grants of a resumed session."""
        for update in (update for updates in self._updates for update in updates):
            try:
                policy.update([update])  # one by one: an invalid update must not drop those that restrict the session
            except InvalidUpdate as exc:
                warn(f"a permission grant in the session's log is invalid and is ignored: {exc}")

    def updates_record(self, updates: Sequence[Json]) -> Json | None:
        """The updates to journal; None if none of them is for the session."""
        own = [update for update in updates if is_session_update(update)]
        return {"updates": own, **self._given_to} if own else None

    def mode_record(self, mode: str, before: str) -> Json:
        return {"mode": mode, "before": before, **self._given_to}

    def take_records(self) -> list[tuple[str, Json]]:
        """The kinds and records that give the next session the same permissions. What is folded is forgotten."""
        records: list[tuple[str, Json]] = [
            ("grant", {"updates": updates, **self._given_to}) for updates in self._updates if updates
        ]
        if self.mode is not None:
            records.append(("mode", self.mode_record(self.mode, self.previous_mode)))
        self._updates, self.mode = [], None
        return records

    @property
    def _given_to(self) -> Json:
        return {"session_id": self._identity.id, "cwd": self._cwd}

    def _effective_mode(self, record: Json, mode: str) -> str | None:
        return str(mode) if mode in STRICT_MODES or self._is_own(record) else None

    def _is_own(self, record: Json) -> bool:
        return all(record.get(key) == value for key, value in self._given_to.items())


def is_session_update(update: Json) -> bool:
    """Whether an update is journalled as a grant. The mode has its own records."""
    return update.get("destination", "session") in SESSION_DESTINATIONS and update.get("type") != "setMode"


def restricts(update: Json) -> bool:
    return update.get("type") == "addRules" and update.get("behavior") in ("deny", "ask")


SYNC_ALWAYS, SYNC_TURN, SYNC_OFF = "always", "turn", "off"
"""When the log is synced to the device: at every entry, before effects and at the end of a turn, or never."""


def is_milestone(entry: Entry) -> bool:
    """Whether an entry must survive a crash: an effect follows, or the client relies on the result."""
    return entry.kind == "result" or (entry.kind == "permission" and entry.message.get("effect") is True)


def callback_id(entry: Entry) -> str:
    """The callback of a question; "" for a permission request."""
    return str(entry.message.get("callback_id") or "")


class ScheduleLog:
    def __init__(self) -> None:
        self.jobs: dict[str, ScheduledJob] = {}
        self._queued: dict[str, str] = {}
        """The jobs that fire once and whose prompt has no turn yet, by the id of the prompt."""

    def apply(self, entry: Entry) -> None:
        message = entry.message
        if entry.kind == "user":
            for uuid in (message.get("uuid"), *(message.get("user_message_uuids") or ())):
                self.jobs.pop(self._queued.pop(str(uuid), ""), None)
        elif "job" in message:
            from parley.tools.schedule import ScheduledJob

            job = convert(message["job"], ScheduledJob)
            self.jobs[job.id] = job
        elif "removed" in message:
            self.jobs.pop(str(message["removed"]), None)
        elif "fired" in message:
            self._queued[str(message["uuid"])] = str(message["fired"])

    def forget_queued(self) -> None:
        """The prompts of an earlier process are gone with it."""
        self._queued.clear()

    def is_queued(self, id: str) -> bool:
        return id in self._queued.values()

    def records(self) -> list[tuple[str, Json]]:
        """What the log of the next session starts with."""
        return [(SCHEDULE, {"job": to_builtins(job)}) for job in self.jobs.values()]


class Journal:
    def __init__(
        self, log: Log, clock: Clock, grants: Grants, sync: str = SYNC_OFF, *, sync_in_background: bool = False
    ) -> None:
        self.grants = grants
        self.carried: list[Callable[[], list[tuple[str, Json]]]] = [grants.take_records]
        """What the log of the next session starts with: kinds and records."""
        self.known_uuids: set[str] = set()
        """The uuids of received messages. A duplicate is not run again."""
        self._clock = clock
        self._sync = sync
        self._sync_in_background = sync_in_background
        self._is_sync_due = False
        """A milestone was appended that `wait_synced` has to sync."""
        self._start(log)

    def _start(self, log: Log) -> None:
        """The state before the first entry of a log."""
        self.log = log
        self.history = History()
        self.system_text: str | None = None
        """The system prompt as it was first sent; None before that."""
        self.allowed_calls: set[str] = set()
        """The calls that may have run: an allow decision is journalled."""
        self.decided_calls: set[str] = set()
        """The calls with a journalled decision."""
        self.foreign_calls: set[str] = set()
        """The calls of another engine, which does not journal decisions. What happened to them is unknown."""
        self.questions: dict[str, dict[str, str]] = {}
        """The ids of the open questions, by call and by callback."""
        self.awaited_calls: set[str] = set()
        """The calls that were handed to the client, whether or not it has run them."""
        self.deferred_calls: set[str] = set()
        """The calls that a hook deferred, to be taken up when the session is resumed."""
        self.sent_date: str | None = None
        """The date that the model was last given; None if it has none."""
        self.fixed_tools: list[str | Json] | None = None
        """The tools of every request, by name or definition; None before the first (tool_deferral.py)."""
        self.loaded_tools: dict[str, None] = {}
        """The deferred tools that the model has asked for, in that order."""
        self.loaded_definitions: dict[str, Json] = {}
        """The definitions that it was given."""
        self.forget_tool_news()
        self.has_references = False
        """Whether a result contains references to tools."""
        self.title: str | None = None
        self.schedule: ScheduleLog | None = None
        """The scheduled prompts in the log; None if there are none."""
        self.worktree: Json | None = None
        """The git worktree that the session works in; None if it works in its own checkout."""
        self.goal: Json | None = None
        """The condition that turns work towards, and what was done for it (goal.py); None if there is none."""
        self.report_lost: Callable[[SessionError], None] = lambda error: None
        """Called with the error of a write that failed, before it is raised."""
        self._next_seq = 0
        self._last_at = ""
        """The time of the last entry. Times rise, because other programs order the blocks of one answer by them."""

    def forget_tool_news(self) -> None:
        """What the conversation says about tools is no longer part of it."""
        self.tool_news = 0
        """Counts the entries about tools."""
        self.listed_tools: frozenset[str] = frozenset()
        """The deferred tools whose names the conversation contains."""
        self.gone_tools: frozenset[str] = frozenset()
        """The tools that the model has the definitions of, and knows to be gone."""
        self.changed_tools: dict[str, Json] = {}
        """The definitions that it was given in place of earlier ones."""

    @property
    def is_empty(self) -> bool:
        """Whether the log has no entries."""
        return self._next_seq == 0

    def begin(self, log: Log) -> None:
        """Continue in the empty log of another session. Permissions and known messages stay. Raises SessionError."""
        carried = [row for take in self.carried for row in take()]
        if self.schedule is not None:
            carried += self.schedule.records()
        if self.worktree is not None:
            carried.append(("worktree", self.worktree))
        self.close()
        self._start(log)
        for kind, record in carried:
            self.append_event(kind, record)

    def close(self) -> None:
        """Close the log."""
        self.log.close()

    def append(self, message: Message, **context: Any) -> None:
        """Append a message. Raises SessionError."""
        self.append_json(to_builtins(message), **context)

    def append_json(self, json: Json, **context: Any) -> None:
        at = self._order(json.get("timestamp") or self._clock.now())
        self._write(Entry(seq=self._next_seq, kind=json["type"], at=at, message=json, context=context))

    def append_answer(self, message: Message, ending: Json, **context: Any) -> None:
        """Append the last block of an answer together with how the answer ended. Raises SessionError."""
        json = to_builtins(message)
        at = self._order(json.get("timestamp") or self._clock.now())
        block = Entry(seq=self._next_seq, kind=json["type"], at=at, message=json, context=context)
        usage = Entry(seq=block.seq + 1, kind=USAGE, at=later_time(self._clock.now(), at), message=ending)
        self._write(block, usage)

    def append_usage(self, ending: Json) -> None:
        """Append how an answer ended: its id, final usage and stop reason. Raises SessionError."""
        self.append_event(USAGE, ending)

    def append_event(self, kind: str, message: Json) -> None:
        """Append an entry that is never sent. Raises SessionError."""
        self._write(Entry(seq=self._next_seq, kind=kind, at=self._order(self._clock.now()), message=message))

    def _order(self, at: str) -> str:
        """The time of the next entry, which must be later than that of the last one."""
        return at if at > self._last_at else later_time(at, self._last_at)

    def _write(self, *entries: Entry) -> None:
        """Write entries that belong together."""
        try:
            self.log.append(*entries)
            has_milestone = any(map(is_milestone, entries))
            if self._sync == SYNC_TURN and self._sync_in_background:
                self._is_sync_due = self._is_sync_due or has_milestone
            elif self._sync == SYNC_ALWAYS or (self._sync == SYNC_TURN and has_milestone):
                self.log.sync()
        except SessionError as exc:
            self.report_lost(exc)
            raise
        for entry in entries:
            self.fold(entry)

    async def wait_synced(self) -> None:
        """Wait until the appended milestones are on the device. Raises SessionError.

        Call it after an entry that may be a milestone, before the effect or the result that follows.
        """
        if not self._is_sync_due:
            return
        self._is_sync_due = False
        try:
            await self.log.wait_synced()
        except SessionError as exc:
            self.report_lost(exc)
            raise

    def _remember_uuid(self, uuid: object) -> None:
        if isinstance(uuid, str):
            self.known_uuids.add(uuid)

    def _fold_references(self, message: Json) -> None:
        """The result of a tool search names the tools that it has loaded."""
        content = message["message"]["content"]
        found = content[0].get("content") if isinstance(content, list) and content else None
        if isinstance(found, list) and found and found[0].get("type") == "tool_reference":
            self.has_references = True
            self.loaded_tools |= dict.fromkeys(str(block.get("tool_name")) for block in found)

    def get_schedule(self) -> ScheduleLog:
        """The scheduled prompts."""
        if self.schedule is None:
            self.schedule = ScheduleLog()
        return self.schedule

    def fold(self, entry: Entry) -> None:
        """Apply an entry of the log to the state."""
        self._next_seq = max(self._next_seq, entry.seq + 1)
        self._last_at = max(self._last_at, entry.at)
        self.history.apply(entry)
        if entry.kind == SCHEDULE or (self.schedule is not None and entry.kind == "user"):
            self.get_schedule().apply(entry)
        if entry.kind == "user":
            self._fold_references(entry.message)
            self._remember_uuid(entry.message.get("uuid"))
            for uuid in entry.message.get("user_message_uuids") or ():
                self._remember_uuid(uuid)
        elif entry.kind != "assistant":
            self._fold_event(entry)
        elif entry.context.get(FOREIGN):
            content = entry.message["message"]["content"]
            blocks = content if isinstance(content, list) else ()
            self.foreign_calls |= {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}

    def _fold_event(self, entry: Entry) -> None:
        """Fold an entry that is not part of the conversation."""
        match entry.kind:
            case "grant" | "mode":
                self.grants.apply(entry)
            case "permission":
                self.decided_calls.add(entry.message["tool_use_id"])
                if entry.message.get("decision") == "allow":
                    self.allowed_calls.add(entry.message["tool_use_id"])
            case "question":
                self.questions.setdefault(entry.message["tool_use_id"], {})[callback_id(entry)] = entry.message[
                    "request_id"
                ]
                if "waits_for" in entry.message:
                    self.awaited_calls.add(entry.message["tool_use_id"])
            case "answered":
                asked = self.questions.get(entry.message["tool_use_id"], {})
                asked.pop(callback_id(entry), None)
                if not asked:
                    self.questions.pop(entry.message["tool_use_id"], None)
            case "deferred":
                self.deferred_calls.add(entry.message["tool_use_id"])
            case "cut":
                # A prompt that was cut off may be sent again.
                self.known_uuids -= self.history.cut_off
                self.forget_tool_news()
            case "tools":
                self.fixed_tools = entry.message["tools"]
            case "tools_loaded":
                self.tool_news += 1
                self.loaded_tools |= dict.fromkeys(map(str, entry.message["names"]))
                self.loaded_definitions |= {one["name"]: one for one in entry.message.get("definitions", ())}
            case "tools_listed":
                self.tool_news += 1
                self.listed_tools = frozenset(map(str, entry.message["names"]))
                self.gone_tools = frozenset(entry.message.get("gone", ()))
                self.changed_tools = entry.message.get("changed", {})
            case "system" if entry.message.get("subtype") == "compact_boundary":
                self.fixed_tools, self.loaded_definitions = None, {}
                self.forget_tool_news()
            case "prompt":
                self.system_text = entry.message.get("text")
                self.sent_date = find_date(self.system_text or "") or self.sent_date
            case "conversation_reset":
                self.system_text = self.sent_date = self.goal = None
                self.fixed_tools, self.loaded_tools, self.loaded_definitions = None, {}, {}
                self.forget_tool_news()
            case "command":
                self.known_uuids.add(str(entry.message.get("uuid")))
            case "title":
                self.title = entry.message.get("title")
            case "goal":
                self.goal = entry.message.get("value")
            case "worktree":
                self.worktree = None if "left" in entry.message else entry.message
            case "date":
                self.sent_date = entry.message.get("date")
