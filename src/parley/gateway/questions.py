"""The questions that sessions ask their clients, who decided them, and who is told that one waits.

A question is a control request of the engine: `can_use_tool`, `elicitation`, `request_user_dialog`. It is in the log
of its session before any client sees it, and so is its decision before the engine gets it. Both survive the death of
the process: a resumed engine asks again under the same id, and gets the recorded decision. Lists are read from the
database, which follows the logs.

`Notifier` tells other systems, by a signed webhook and by a command. Both get the same JSON:
`{"event": "question", "question": {…}}`. The webhook has a header `Parley-Signature: t=SECONDS,v1=HEX`, the HMAC-SHA256
of `SECONDS.BODY` under the secret, so that the receiver knows who sent it and when. The command gets it on stdin. A
notification that fails is repeated, then reported; the question stays in the inbox in any case.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from sqlite3 import Row
from typing import TYPE_CHECKING, Literal

import msgspec

from parley.gateway.database import Database
from parley.gateway.security.access import Principal, Scope
from parley.gateway.session_log.records import (
    DECIDED,
    OPEN,
    AskedRecord,
    DecidedRecord,
    DelegatedRecord,
    WithdrawnRecord,
)
from parley.gateway.session_log.session_log import SessionLog
from parley.protocol.base import Json, Struct

if TYPE_CHECKING:
    import httpx2


EXPIRED = "the time limit"
"""Who decided a question that was not answered in time."""
MOST_LISTED = 1000
"""How many open questions a list has at most: the oldest."""
PAGE_BYTES = 1024 * 1024
"""How long the questions of a list may be together. A longer one is a list of its own."""
ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.5
TIMEOUT_SECONDS = 10
COMMAND_SECONDS = 30
WAITING = 10_000
"""How many notifications may wait; older ones are dropped."""


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
        made = {"request": msgspec.json.decode(row["line"])["request"], "behavior": read_behavior(row["answer"])}
        return cls(**made, **{name: row[name] for name in cls.__struct_fields__ if name not in made})


class QuestionDecided(Struct, frozen=True, kw_only=True, tag_field="type", tag="gateway"):
    """A line of the gateway: a question was decided, and by whom. Clients that number lines get it."""

    subtype: Literal["question_decided"] = "question_decided"
    request_id: str
    decided_by: str
    behavior: str | None
    """What was decided: `allow` or `deny` for a permission, the `action` of an elicitation."""


class QuestionList(Struct, frozen=True, omit_defaults=True):
    questions: list[Question]
    has_more: bool = False
    """Whether there are more, which did not fit; absent if not. The event stream of the questions has all of them."""


class QuestionInbox:
    """The inbox: all questions of all sessions."""

    def __init__(self, database: Database, seconds: float | None = None) -> None:
        """`seconds`: how long a question waits before it is denied; None for ever."""
        self._database = database
        self._seconds = seconds
        self.listeners: list[Callable[[Question], None]] = []
        """Called with every question that is asked or changes."""

    def ask(self, log: SessionLog, request_id: str, kind: str, line: bytes) -> int:
        """Record a question with its line; returns the number of the line. Raises SessionError."""
        now = time.time()
        expires = None if self._seconds is None else now + self._seconds
        asked = AskedRecord(request_id=request_id, kind=kind, line=log.last + 1, at=now, expires_at=expires)
        number = log.add_line(line, asked)
        self._notify(log, request_id)
        return number

    def decide(self, log: SessionLog, request_id: str, answer: bytes, who: str) -> bool:
        """Record the decision; False if the question is not open any more. The first decision counts."""
        if not is_open(log, request_id):
            return False
        log.record(DecidedRecord(request_id=request_id, answer=answer, by=who, at=time.time()))
        self._notify(log, request_id)
        return True

    def withdraw(self, log: SessionLog, request_id: str) -> None:
        """The engine no longer waits for an answer."""
        if is_open(log, request_id):
            log.record(WithdrawnRecord(request_id=request_id, at=time.time()))
            self._notify(log, request_id)

    def withdraw_all(self, log: SessionLog) -> None:
        for request_id in log.state.open_questions:
            self.withdraw(log, request_id)

    def delegate(self, log: SessionLog, request_id: str, name: str) -> bool:
        """Leave an open question to the holder of a token; False if it is not open."""
        if not is_open(log, request_id):
            return False
        log.record(DelegatedRecord(request_id=request_id, delegate=name))
        self._notify(log, request_id)
        return True

    def find(self, session: str, request_id: str) -> Question | None:
        row = self._database.row("SELECT * FROM questions WHERE session=? AND request_id=?", session, request_id)
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
            " AND (? IS NULL OR session=?) AND (? IS NULL OR tenant=?) ORDER BY asked_at, session, request_id LIMIT ?",
            *(session, session, tenant, tenant, MOST_LISTED),
        )

    def list_expired(self) -> list[Question]:
        rows = self._database.rows("SELECT * FROM questions WHERE state='open' AND expires_at <= ?", time.time())
        return [Question.from_row(row) for row in rows]

    def _notify(self, log: SessionLog, request_id: str) -> None:
        if self.listeners and (question := self.find(log.session_id, request_id)) is not None:
            for listener in list(self.listeners):
                listener(question)


def is_open(log: SessionLog, request_id: str) -> bool:
    question = log.state.questions.get(request_id)
    return question is not None and question.state == OPEN


def find_answer(log: SessionLog, request_id: str) -> bytes | None:
    """The answer to a question that was decided before, when an earlier engine asked."""
    question = log.state.questions.get(request_id)
    return question.answer if question is not None and question.state == DECIDED else None


def is_same_answer(log: SessionLog, request_id: str, answer: bytes, who: str) -> bool:
    """Whether a question was decided by the same one in the same way."""
    stored = find_answer(log, request_id)
    if stored is None or log.state.questions[request_id].decided_by != who:
        return False
    return bool(msgspec.json.decode(stored) == msgspec.json.decode(answer))


def read_behavior(answer: bytes | None) -> str | None:
    """What an answer decides; None if there is none, or if it is an error."""
    if answer is None:
        return None
    response = msgspec.json.decode(answer).get("response", {}).get("response")
    if not isinstance(response, dict):
        return None
    found = response.get("behavior", response.get("action"))
    return found if isinstance(found, str) else None


class NotifySettings(Struct, frozen=True):
    url: str = ""
    secret: bytes = b""
    command: str = ""
    environment: Mapping[str, str] = {}
    """The environment of the command."""


class Notifier:
    """Sends a notification for every question that is asked."""

    def __init__(self, settings: NotifySettings, report: Callable[[str], None]) -> None:
        self._settings = settings
        self._report = report
        self._queue: asyncio.Queue[Question] = asyncio.Queue(WAITING)
        self._told: set[tuple[str, str]] = set()
        """The questions that were notified: a resumed session asks them again."""

    def on_question(self, question: Question) -> None:
        """A listener of `QuestionInbox`."""
        key = question.session, question.request_id
        if question.state != OPEN:
            self._told.discard(key)
        elif key not in self._told:
            self._told.add(key)
            if self._queue.full():
                self._queue.get_nowait()
                self._report(f"dropped a notification, because more than {WAITING} were waiting to be sent")
            self._queue.put_nowait(question)

    async def run(self) -> None:
        """Send notifications for ever."""
        import httpx2

        async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
            while True:
                question = await self._queue.get()
                body = msgspec.json.encode({"event": "question", "question": question})
                ways = []
                if self._settings.url:
                    ways.append(self._post(client, body))
                if self._settings.command:
                    ways.append(self._run_command(body))
                for outcome in await asyncio.gather(*ways, return_exceptions=True):
                    if isinstance(outcome, Exception):  # such as too many open files
                        self._report(f"a notification failed: {type(outcome).__name__}: {outcome}")

    async def _post(self, client: httpx2.AsyncClient, body: bytes) -> None:
        import httpx2

        pause, problem = FIRST_PAUSE_SECONDS, ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(pause)
                pause *= 4
            headers = {"Content-Type": "application/json", "Parley-Signature": sign(self._settings.secret, body)}
            try:
                response = await client.post(self._settings.url, content=body, headers=headers)
            except httpx2.HTTPError as exc:
                problem = str(exc) or type(exc).__name__
                continue
            if response.is_success:
                return
            problem = f"HTTP {response.status_code}"
        self._report(f"--notify-url: a notification failed after {ATTEMPTS} attempts: {problem}")

    async def _run_command(self, body: bytes) -> None:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", self._settings.command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=dict(self._settings.environment),
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                _, errors = await process.communicate(body)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            self._report(f"--notify-command: the command did not end within {COMMAND_SECONDS} seconds and was killed")
            return
        if process.returncode:
            said = errors.decode(errors="replace").strip()[:500]
            self._report(f"--notify-command: the command exited with {process.returncode}: {said}")


def sign(secret: bytes, body: bytes, at: int | None = None) -> str:
    """The value of `Parley-Signature`."""
    at = int(time.time()) if at is None else at
    digest = hmac.new(secret, b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"
