"""The questions that sessions ask their clients, and who decided them.

A question is a control request of the engine: `can_use_tool`, `elicitation`, `request_user_dialog`. It is recorded
before any client sees it, and its decision before the engine gets it. So both survive the death of the process: a
resumed engine asks again under the same id, and gets the recorded decision.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from sqlite3 import Row

import msgspec

from parley.gateway.database import Database
from parley.gateway.security.access import Principal, Scope
from parley.protocol.base import Json, Struct

OPEN, DECIDED, WITHDRAWN = "open", "decided", "withdrawn"
EXPIRED = "the time limit"
"""Who decided a question that was not answered in time."""
MOST_LISTED = 1000
"""How many open questions a list has at most: the oldest."""
PAGE_BYTES = 1024 * 1024
"""How long the questions of a list may be together. A longer one is a list of its own."""


class Question(Struct, frozen=True, kw_only=True):
    """A question, as the inbox lists it."""

    session: str
    request_id: str
    kind: str
    request: Json
    asked_at: float
    expires_at: float | None
    delegate: str | None
    state: str
    decided_by: str | None
    decided_at: float | None
    behavior: str | None
    """What was decided: `allow` or `deny` for a permission, the `action` of an elicitation."""

    @classmethod
    def from_row(cls, row: Row) -> Question:
        return cls(
            session=row["session"],
            request_id=row["request_id"],
            kind=row["kind"],
            request=msgspec.json.decode(row["line"])["request"],
            asked_at=row["asked_at"],
            expires_at=row["expires_at"],
            delegate=row["delegate"],
            state=row["state"],
            decided_by=row["decided_by"],
            decided_at=row["decided_at"],
            behavior=read_behavior(row["answer"]),
        )


class QuestionList(Struct, frozen=True, omit_defaults=True):
    questions: list[Question]
    has_more: bool = False
    """Whether there are more, which did not fit; absent if not. The event stream of the questions has all of them."""


class Questions:
    """The inbox: all questions of all sessions."""

    def __init__(self, database: Database, seconds: float | None = None) -> None:
        """`seconds`: how long a question waits before it is denied; None for ever."""
        self._database = database
        self._seconds = seconds
        self.listeners: list[Callable[[Question], None]] = []
        """Called with every question that is asked or changes."""

    def ask(self, session: str, request_id: str, kind: str, line: bytes) -> bytes | None:
        """Record a question. Returns the answer if it was decided before, when an earlier engine asked."""
        found = self._row(session, request_id)
        if found is not None:
            if found["state"] == DECIDED:
                return bytes(found["answer"])
            self._database.change(
                "UPDATE questions SET state='open', line=? WHERE session=? AND request_id=?", line, session, request_id
            )
        else:
            now = time.time()
            expires = None if self._seconds is None else now + self._seconds
            self._database.change(
                "INSERT INTO questions (session, request_id, kind, line, asked_at, expires_at)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                *(session, request_id, kind, line, now, expires),
            )
        self._notify(session, request_id)
        return None

    def decide(self, session: str, request_id: str, answer: bytes, who: str) -> bool:
        """Record the decision; False if the question is not open any more. The first decision counts."""
        changed = self._database.change(
            "UPDATE questions SET state='decided', answer=?, decided_by=?, decided_at=?"
            " WHERE session=? AND request_id=? AND state='open'",
            *(answer, who, time.time(), session, request_id),
        )
        if changed:
            self._notify(session, request_id)
        return changed == 1

    def is_same_answer(self, session: str, request_id: str, answer: bytes, who: str) -> bool:
        """Whether a question was decided by the same one in the same way."""
        row = self._row(session, request_id)
        if row is None or row["state"] != DECIDED or row["decided_by"] != who:
            return False
        return bool(msgspec.json.decode(row["answer"]) == msgspec.json.decode(answer))

    def withdraw(self, session: str, request_id: str) -> None:
        """The engine no longer waits for an answer."""
        if self._database.change(
            "UPDATE questions SET state='withdrawn', decided_at=? WHERE session=? AND request_id=? AND state='open'",
            *(time.time(), session, request_id),
        ):
            self._notify(session, request_id)

    def withdraw_all(self, session: str) -> None:
        for row in self._database.rows("SELECT request_id FROM questions WHERE session=? AND state='open'", session):
            self.withdraw(session, row["request_id"])

    def delegate(self, session: str, request_id: str, name: str) -> bool:
        """Leave an open question to the holder of a token; False if it is not open."""
        changed = self._database.change(
            "UPDATE questions SET delegate=? WHERE session=? AND request_id=? AND state='open'",
            *(name, session, request_id),
        )
        if changed:
            self._notify(session, request_id)
        return changed == 1

    def find(self, session: str, request_id: str) -> Question | None:
        row = self._row(session, request_id)
        return None if row is None else Question.from_row(row)

    def list_open(self, principal: Principal, session: str | None = None) -> QuestionList:
        """The open questions that a principal may see, oldest first, as far as they fit on a page."""
        found: list[Question] = []
        size = 0
        for row in self._open_rows(principal, session):
            size += row["size"]
            if found and size > PAGE_BYTES:
                return QuestionList(questions=found, has_more=True)
            if (question := self.find(row["session"], row["request_id"])) is not None:
                found.append(question)
        return QuestionList(questions=found)

    def list_open_ids(self, principal: Principal, session: str | None = None) -> list[tuple[str, str]]:
        """The session and the id of the open questions that a principal may see, oldest first."""
        return [(row["session"], row["request_id"]) for row in self._open_rows(principal, session)]

    def _open_rows(self, principal: Principal, session: str | None) -> list[Row]:
        """Without the questions themselves, which may be long."""
        tenant = None if principal.may(Scope.ADMIN) else principal.tenant
        return self._database.rows(
            "SELECT session, request_id, length(line) AS size FROM questions"
            " JOIN sessions ON sessions.id = questions.session WHERE state='open'"
            " AND (? IS NULL OR session=?) AND (? IS NULL OR tenant=?) ORDER BY asked_at LIMIT ?",
            *(session, session, tenant, tenant, MOST_LISTED),
        )

    def list_expired(self) -> list[Question]:
        rows = self._database.rows("SELECT * FROM questions WHERE state='open' AND expires_at <= ?", time.time())
        return [Question.from_row(row) for row in rows]

    def _row(self, session: str, request_id: str) -> Row | None:
        return self._database.row("SELECT * FROM questions WHERE session=? AND request_id=?", session, request_id)

    def _notify(self, session: str, request_id: str) -> None:
        if self.listeners and (question := self.find(session, request_id)) is not None:
            for listener in list(self.listeners):
                listener(question)


def read_behavior(answer: bytes | None) -> str | None:
    """What an answer decides; None if there is none, or if it is an error."""
    if answer is None:
        return None
    response = msgspec.json.decode(answer).get("response", {}).get("response")
    if not isinstance(response, dict):
        return None
    found = response.get("behavior", response.get("action"))
    return found if isinstance(found, str) else None
