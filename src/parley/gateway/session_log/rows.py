"""The rows of sessions, questions and spending in the database: what follows from the logs.

    rows.follow(log, records)    something was recorded
    rows.restore(log)            write the rows of a session as its state says
    rows.forget(session_id)

A row is written as the state has it after the record: there is one fold, in `state.py`. What is found in the text of
lines comes later (`index/`).
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.gateway.database import Database
from parley.gateway.session_log.records import (
    AnyRecord,
    AskedRecord,
    CopiedRecord,
    CreatedRecord,
    DecidedRecord,
    DelegatedRecord,
    DeletedRecord,
    EngineStartedRecord,
    PromptCancelledRecord,
    PromptFinishedRecord,
    PromptTakenRecord,
    TitledRecord,
    UsedRecord,
    WithdrawnRecord,
)
from parley.gateway.session_log.session_log import SessionLog
from parley.protocol.base import Json

OF_SESSION = frozenset(
    {
        CreatedRecord,
        CopiedRecord,
        TitledRecord,
        EngineStartedRecord,
        PromptTakenRecord,
        PromptFinishedRecord,
        PromptCancelledRecord,
    }
)
"""The records that change the row of a session."""
OF_QUESTION = AskedRecord | DelegatedRecord | DecidedRecord | WithdrawnRecord


class SessionRows:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.behind: set[str] = set()
        """The sessions of which something was recorded that the database did not take."""

    def follow(self, log: SessionLog, records: Sequence[AnyRecord]) -> None:
        """Raises SessionError."""
        kinds = {type(record) for record in records}
        if not kinds.isdisjoint(OF_SESSION):
            self._save_session(log)
        for record in records:
            if isinstance(record, OF_QUESTION):
                self._save_question(log, record.request_id)
            elif isinstance(record, UsedRecord):
                self._add_spending(log, record.tokens, record.usd)
            elif isinstance(record, DeletedRecord):
                self._save_deleted(log, record)

    def restore(self, log: SessionLog, *, is_spent_here: bool = True) -> None:
        """Write all rows of a session, and nothing that was found in its lines. Raises SessionError.

        `is_spent_here`: whether what it has used counts here, and not on another host.
        """
        state = log.state
        self.behind.discard(log.session_id)
        with self._database.transaction():
            self.forget(log.session_id)
            if is_spent_here:
                self._database.change("DELETE FROM spending WHERE session=?", log.session_id)
                self._add_spending(log, state.spent_tokens, state.spent_usd)
            if state.deleted is not None:
                self._save_deleted(log, state.deleted)
            elif state.created is not None:
                self._save_session(log)
                for request_id in state.questions:
                    self._save_question(log, request_id)
                if (summary := state.summary) is not None:
                    self._database.change(
                        "UPDATE sessions SET title=?, model=?, permission_mode=?, turns=?, cost_usd=?, last_error=?,"
                        " preview=?, used_at=?, model_totals=?, indexed_lines=? WHERE id=?",
                        *(summary.title, summary.model, summary.permission_mode, summary.turns, summary.cost_usd),
                        *(summary.last_error, summary.preview, summary.used_at, summary.model_totals, summary.lines),
                        log.session_id,
                    )

    def forget(self, session_id: str) -> None:
        """Delete the rows of a session, but not what it has spent. Raises SessionError."""
        self._database.change("DELETE FROM sessions WHERE id=?", session_id)
        self._database.change("DELETE FROM turns WHERE session=?", session_id)

    def _save_session(self, log: SessionLog) -> None:
        state, created = log.state, log.state.created
        if created is None:
            return
        self._database.change(
            "INSERT INTO sessions (id, tenant, creator, cwd, options, workspace, title, created_at, used_at,"
            " open_prompts, copied_lines) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
            " title=CASE excluded.title WHEN '' THEN title ELSE excluded.title END,"
            " used_at=max(used_at, excluded.used_at), open_prompts=excluded.open_prompts,"
            " copied_lines=excluded.copied_lines",
            *(log.session_id, created.tenant, created.creator, created.cwd, created.options, created.workspace),
            *(state.title, created.at, state.used_at, len(state.open_prompts)),
            0 if state.copied is None else state.copied.lines,
        )

    def _save_question(self, log: SessionLog, request_id: str) -> None:
        question = log.state.questions[request_id]
        row: Json = {
            "session": log.session_id,
            "request_id": request_id,
            "kind": question.kind,
            "line": log.line(question.line),
            "asked_at": question.asked_at,
            "expires_at": question.expires_at,
            "delegate": question.delegate,
            "state": question.state,
            "decided_by": question.decided_by,
            "decided_at": question.decided_at,
            "answer": question.answer,
        }
        self._database.insert("questions", row)

    def _add_spending(self, log: SessionLog, tokens: int, usd: float) -> None:
        if log.state.created is not None and (tokens or usd):
            self._database.change(
                "INSERT INTO spending (session, name, tokens, usd) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (session) DO UPDATE SET tokens=tokens+excluded.tokens, usd=usd+excluded.usd",
                *(log.session_id, log.state.created.creator, tokens, usd),
            )

    def _save_deleted(self, log: SessionLog, record: DeletedRecord) -> None:
        """Turns stay when their session is deleted: the money is spent."""
        self._database.change("DELETE FROM sessions WHERE id=?", log.session_id)
        tenant = "" if log.state.created is None else log.state.created.tenant
        for turn in record.turns:
            self._database.insert(
                "turns",
                {
                    "session": log.session_id,
                    "number": turn.number,
                    "tenant": tenant,
                    "title": record.title,
                    "time": turn.time,
                    "model": turn.model,
                    "duration_ms": turn.duration_ms,
                    "duration_api_ms": turn.duration_api_ms,
                    "is_error": turn.is_error,
                },
            )
            for use in turn.uses:
                names = ("model", "usd", "input_tokens", "output_tokens", "cache_read_tokens")
                used = dict(zip(names, use, strict=True))
                self._database.insert("usage", {"session": log.session_id, "number": turn.number, **used})
