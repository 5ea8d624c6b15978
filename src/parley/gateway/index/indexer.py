"""Keeps the database up with the logs of sessions, a moment after their lines were written.

    indexer.mark(session_id)              the session has changed
    await indexer.catch_up(session_id)    index its lines now
    indexer.reindex(session_id)           its row came from elsewhere: index the lines that it counts, by and by

The row of a session has the number of its last indexed line and how long the log was then, so that each line is
indexed once, and a server that was killed knows which sessions are behind. The lines are read from the log, in batches:
nothing is done while an engine writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from sqlite3 import Row

import msgspec

from parley.errors import SessionError
from parley.gateway.database import Database, SessionRows
from parley.gateway.index.tables import (
    Search,
    StoredLine,
    Turns,
    decode_line,
    read_error,
    read_model,
    read_prompt,
    read_said,
    read_uses,
    shorten,
)
from parley.gateway.index.tool_calls import ToolCalls
from parley.gateway.session_log.records import LineRecord, SessionSummary
from parley.gateway.session_log.session_log import SessionLog

log = logging.getLogger(__name__)

DELAY_SECONDS = 0.1
"""How long changes are collected before they are indexed and reported."""
PAUSE_SECONDS = 0.01
"""How long others run when more is to be indexed."""
BATCH_BYTES = 256 * 1024
"""How much is indexed without a pause for others."""
REINDEX_DELAY_SECONDS = 2.0
REINDEX_PAUSE_SECONDS = 0.03
REINDEX_BYTES = 32 * 1024
"""Sessions that have just come from another host have better things to do than to be searched."""
TITLE_CHARS = 80


class Indexer:
    def __init__(
        self,
        database: Database,
        rows: SessionRows,
        open_log: Callable[[str], AbstractContextManager[SessionLog]],
        report: Callable[[str], None],
    ) -> None:
        """`report` is called with the id of every session that has changed."""
        self.search = Search(database)
        self.turns = Turns(database)
        self.tool_calls = ToolCalls(database)
        self._database = database
        self._rows = rows
        self._open_log = open_log
        self._report = report
        self._changed: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._reindexed: dict[str, tuple[SessionSummary, int]] = {}
        """The sessions whose rows are complete and whose lines are not in the index: the summary as it was after the
        lines that are done, and how many the row counts."""
        self._reindex_timer: asyncio.TimerHandle | None = None

    def mark(self, session_id: str) -> None:
        """Index and report a session soon."""
        self._changed.add(session_id)
        if self._timer is None:
            self._schedule(DELAY_SECONDS)

    def forget(self, session_id: str) -> None:
        """The log of a session is not here any more. Its rows stay as they are."""
        self._changed.discard(session_id)
        self._reindexed.pop(session_id, None)

    def _schedule(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self.index_marked)

    def index_marked(self) -> None:
        """Index the sessions that have changed, or as much of them as one batch takes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        changed, self._changed = self._changed, set()
        size = 0
        for session_id in changed:
            is_done = False
            if size < BATCH_BYTES:
                try:
                    indexed, is_done = self._index_batch(session_id)
                    size += indexed
                    self._report(session_id)
                except SessionError as exc:  # it is indexed when it changes again
                    log.warning("cannot index the session %s: %s", session_id, exc)
                    is_done = True
            if not is_done:
                self._changed.add(session_id)
        if self._changed:
            self._schedule(PAUSE_SECONDS)

    def index_all(self, session_id: str) -> None:
        """Index all lines of a session at once. Raises SessionError."""
        while not self._index_batch(session_id)[1]:
            pass

    async def catch_up(self, session_id: str) -> None:
        """Index all lines of a session. Raises SessionError."""
        while session_id in self._reindexed:
            self._reindex_batch(session_id)
            await asyncio.sleep(0)  # others run
        is_done = False
        while not is_done:
            _, is_done = self._index_batch(session_id)
            await asyncio.sleep(0)

    def summarize(self, session_id: str) -> SessionSummary | None:
        """What the lists show of a session, for a host that is to run it next."""
        row = self._database.row("SELECT * FROM sessions WHERE id=? AND indexed_lines>0", session_id)
        return None if row is None else read_summary(row)

    def reindex(self, session_id: str) -> None:
        """Index the lines that the row of a session counts, a few at a time. Its row stays as it is."""
        if (summary := self.summarize(session_id)) is not None:
            self._reindexed[session_id] = summary, summary.indexed_lines
            summary.turns, summary.cost_usd, summary.model_totals, summary.indexed_lines = 0, 0.0, "{}", 0
            if self._reindex_timer is None:
                self._schedule_reindex(REINDEX_DELAY_SECONDS)

    def _schedule_reindex(self, seconds: float) -> None:
        self._reindex_timer = asyncio.get_running_loop().call_later(seconds, self._reindex_next)

    def _reindex_next(self) -> None:
        self._reindex_timer = None
        for session_id in list(self._reindexed)[:1]:
            try:
                self._reindex_batch(session_id)
            except SessionError as exc:
                self._reindexed.pop(session_id, None)
                log.warning("cannot index the session %s: %s", session_id, exc)
            self._schedule_reindex(REINDEX_PAUSE_SECONDS)

    def _reindex_batch(self, session_id: str) -> None:
        """Raises SessionError."""
        summary, until = self._reindexed[session_id]
        row = self._database.row("SELECT * FROM sessions WHERE id=?", session_id)
        if row is None:
            del self._reindexed[session_id]
            return
        with self._open_log(session_id) as stored:
            lines = stored.lines(summary.indexed_lines, REINDEX_BYTES, until=until)
        with self._database.transaction():
            self._add_all(row, summary, lines)
        summary.indexed_lines = lines[-1].number if lines else until
        if summary.indexed_lines >= until:
            del self._reindexed[session_id]

    def close(self) -> None:
        """Index what is left."""
        if self._reindex_timer is not None:
            self._reindex_timer.cancel()
        while self._changed:
            self.index_marked()
        if self._timer is not None:
            self._timer.cancel()

    def _index_batch(self, session_id: str) -> tuple[int, bool]:
        """Index the next lines; returns their size, and whether they were the last. Raises SessionError."""
        row = self._database.row("SELECT * FROM sessions WHERE id=?", session_id)
        if row is None:
            return 0, True
        with self._open_log(session_id) as stored:
            if session_id in self._rows.behind:
                self._rows.restore(stored)
                return 0, False
            lines = stored.lines(row["indexed_lines"], BATCH_BYTES)
            number = lines[-1].number if lines else row["indexed_lines"]
            is_done, log_bytes = number >= stored.last, stored.size_bytes
        if lines or log_bytes != row["log_bytes"]:
            with self._database.transaction():
                summary = read_summary(row)
                self._add_all(row, summary, lines)
                summary.indexed_lines = number
                self._rows.save_summary(session_id, summary, log_bytes if is_done else 0)
        return sum(len(line.data) for line in lines), is_done

    def _add_all(self, row: Row, summary: SessionSummary, lines: Sequence[LineRecord]) -> None:
        for line in lines:
            with suppress(msgspec.DecodeError, RecursionError):  # nested too deeply to be read
                self._add(row, summary, line.number, line.at, decode_line(line.data))

    def _add(self, row: Row, summary: SessionSummary, number: int, at: float, line: StoredLine) -> None:
        if line.type in ("user", "assistant", "result"):
            summary.used_at = max(summary.used_at, at)
        uuid = line.uuid if isinstance(line.uuid, str) else None
        prompt, said = read_prompt(line), read_said(line)
        if said or prompt is not None:
            self.search.add(row["id"], number, uuid, at, said, is_prompt=prompt is not None)
        self.tool_calls.add(row["id"], number, at, line)
        if prompt:
            summary.title = summary.title or shorten(prompt, TITLE_CHARS)
        if line.type == "assistant" and said and line.parent_tool_use_id is None:
            summary.preview = shorten(said)
        if isinstance(line.permissionMode, str):
            summary.permission_mode = line.permissionMode
        summary.model = read_model(line) or summary.model
        if line.type == "result":
            summary.last_error = read_error(line)
            summary.turns += 1
            uses, summary.model_totals = read_uses(line, summary.model_totals)
            if number > row["copied_lines"]:  # the turns before a fork are those of the other session
                summary.cost_usd += sum(use.usd or 0.0 for use in uses)
                self.turns.record(row, number, at, line, uses)


def read_summary(row: Row) -> SessionSummary:
    return SessionSummary(**{name: row[name] for name in SessionSummary.__struct_fields__})
