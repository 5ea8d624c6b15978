"""The record of a session: its log, and what follows from it.

The log is the session. What is said is in the log before it is told, and state is a fold
over the log: the same for a line just said and for one read after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parley.engine.accounting.ledger import Ledger
from parley.engine.approval.grants import Grants
from parley.engine.clock import Stamp
from parley.engine.context.history import History
from parley.engine.context.system_prompt import date_in
from parley.protocol.base import Json, Message, plain
from parley.stores.base import FOREIGN, USAGE, Entry, Log, later

ALWAYS, TURN, OFF = "always", "turn", "off"
"""When the device is waited for: at every record, before effects and at the end of a turn, or never."""


def is_milestone(entry: Entry) -> bool:
    """Whether something follows that must not be forgotten: an effect, or a result that the host relies on."""
    return entry.kind == "result" or (entry.kind == "permission" and entry.message.get("effect") is True)


def whose(entry: Entry) -> str:
    """The callback that a question is for; "" for a question about permission."""
    return str(entry.message.get("callback_id") or "")


if TYPE_CHECKING:
    from parley.engine.recovery.orphaned_elicitations import QuestionBook
    from parley.engine.recovery.orphaned_tasks import TaskBook


class Record:
    def __init__(self, log: Log, stamp: Stamp, grants: Grants, sync: str = OFF) -> None:
        self.history = History()
        self.grants = grants
        self.known_uuids: set[str] = set()
        """The messages that came once, and are not run again."""
        self.system_text: str | None = None
        """The system prompt, as it was sent first; None before that."""
        self.allowed: set[str] = set()
        """The calls that may have run: their permission is on record."""
        self.decided: set[str] = set()
        """The calls with a decision on record, whichever it was."""
        self.foreign_calls: set[str] = set()
        """The calls that another engine made, or whose records it dropped: what became of them is not on record."""
        self.questions: dict[str, dict[str, str]] = {}
        """The ids of the questions that are open, by the calls they are about and by who wants to be asked."""
        self.awaited: set[str] = set()
        """The calls that a client was to run, whether or not it has by now."""
        self.told_date: str | None = None
        """What day it is as far as the model knows; None if it was never told."""
        self.title: str | None = None
        self.tasks: TaskBook | None = None
        """What is known of background tasks; None if there never was one."""
        self.elicited: QuestionBook | None = None
        """What is known of questions of MCP servers; None if there never was one."""
        self._log = log
        self._stamp = stamp
        self._sync = sync
        self._next_seq = 0
        self._last_at = ""
        """The time of the last entry. Times rise, as other programs tell lines of one answer apart by them."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever kept: there is no log yet."""
        return self._next_seq == 0

    def read(self, ledger: Ledger, complain: Callable[[str], None]) -> None:
        """Take up what the log holds already, and count what it cost."""
        for entry in self._log.entries():
            try:
                self._fold(entry)
                if entry.kind == "result":
                    ledger.resume(entry.message)
                elif entry.kind == "conversation_reset":
                    ledger.restart()
            except (KeyError, TypeError, AttributeError, ValueError) as flaw:
                # Another program may have written to the file; one odd line must not cost the session.
                complain(f"entry {entry.seq} of the session cannot be read and is skipped: {flaw!r}")

    def keep(self, message: Message, **context: Any) -> None:
        """Record a line. Raises SessionError."""
        self.keep_json(plain(message), **context)

    def keep_json(self, json: Json, **context: Any) -> None:
        at = later(json.get("timestamp") or self._stamp.now(), self._last_at)
        self._append(Entry(seq=self._next_seq, kind=json["type"], at=at, message=json, context=context))

    def keep_usage(self, answer: str, **final: Any) -> None:
        """Record how an answer ended: its final usage, and why it stopped. Raises SessionError."""
        self.note(USAGE, {"id": answer, **final})

    def note(self, kind: str, message: Json) -> None:
        """Record what is never told. Raises SessionError."""
        at = later(self._stamp.now(), self._last_at)
        self._append(Entry(seq=self._next_seq, kind=kind, at=at, message=message))

    def _append(self, entry: Entry) -> None:
        self._log.append(entry)
        if self._sync == ALWAYS or (self._sync == TURN and is_milestone(entry)):
            self._log.sync()
        self._fold(entry)

    def _knows(self, uuid: object) -> None:
        if isinstance(uuid, str):
            self.known_uuids.add(uuid)

    def _fold_task(self, entry: Entry) -> None:
        if self.tasks is None and entry.kind == "task":
            from parley.engine.recovery.orphaned_tasks import TaskBook

            self.tasks = TaskBook()
        if self.tasks is not None:
            self.tasks.apply(entry)

    def _fold_elicitation(self, entry: Entry) -> None:
        if self.elicited is None:
            from parley.engine.recovery.orphaned_elicitations import QuestionBook

            self.elicited = QuestionBook()
        self.elicited.apply(entry)

    def _fold(self, entry: Entry) -> None:
        self._next_seq = max(self._next_seq, entry.seq + 1)
        self._last_at = max(self._last_at, entry.at)
        self.history.apply(entry)
        if self.tasks is not None or entry.kind == "task":
            self._fold_task(entry)
        if entry.kind == "user":
            self._knows(entry.message.get("uuid"))
            for uuid in entry.message.get("user_message_uuids") or ():
                self._knows(uuid)
        elif entry.kind != "assistant":
            self._fold_note(entry)
        elif entry.context.get(FOREIGN):
            content = entry.message["message"]["content"]
            blocks = content if isinstance(content, list) else ()
            self.foreign_calls |= {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}

    def _fold_note(self, entry: Entry) -> None:
        """What is no part of the conversation."""
        self.grants.apply(entry)
        match entry.kind:
            case "permission":
                self.decided.add(entry.message["tool_use_id"])
                if entry.message.get("decision") == "allow":
                    self.allowed.add(entry.message["tool_use_id"])
            case "question":
                self.questions.setdefault(entry.message["tool_use_id"], {})[whose(entry)] = entry.message["request_id"]
                if "waits_for" in entry.message:
                    self.awaited.add(entry.message["tool_use_id"])
            case "answered":
                asked = self.questions.get(entry.message["tool_use_id"], {})
                asked.pop(whose(entry), None)
                if not asked:
                    self.questions.pop(entry.message["tool_use_id"], None)
            case "elicitation" | "elicited":
                self._fold_elicitation(entry)
            case "cut":
                # A prompt that was cut off may come once more.
                self.known_uuids -= self.history.cut_off
            case "prompt":
                self.system_text = entry.message.get("text")
                self.told_date = date_in(self.system_text or "")
            case "conversation_reset":
                self.system_text = self.told_date = None
            case "command":
                self.known_uuids.add(str(entry.message.get("uuid")))
            case "title":
                self.title = entry.message.get("title")
            case "date":
                self.told_date = entry.message.get("date")
