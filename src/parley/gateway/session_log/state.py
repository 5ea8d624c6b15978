"""The state of a session: what follows from its records.

    state.apply(record)    one record more
    state.records()        the fewest records that lead to the same state, without lines

It has no text of lines, which are read from the log when they are needed. See also: `session_log.py`, which keeps both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from parley.gateway.session_log.records import (
    AgentRecord,
    AnyRecord,
    AskedRecord,
    CommandRecord,
    CopiedRecord,
    CreatedRecord,
    DamagedRecords,
    DecidedRecord,
    DeclaredRecord,
    DelegatedRecord,
    DeletedRecord,
    EngineChangedRecord,
    EngineEndedRecord,
    EngineStartedRecord,
    EntryRecord,
    LabelRecord,
    LineRecord,
    OwnerRecord,
    PromptCancelledRecord,
    PromptFinishedRecord,
    PromptReadRecord,
    PromptTakenRecord,
    SummaryRecord,
    TitledRecord,
    TranscriptDeletedRecord,
    UsedRecord,
    WithdrawnRecord,
)
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry

OPEN, DECIDED, WITHDRAWN = "open", "decided", "withdrawn"
MOST_COMMANDS = 256
"""How many replies to commands a session remembers."""


class Prompt(Struct):
    """A prompt that was taken. Its id stays known: a client that sends it again has missed the first reply."""

    line: int
    digest: bytes
    unread_by: str | None
    result: int | None = None
    """The number of the line with its result; None if it has none yet."""


class StoredQuestion(Struct):
    kind: str
    line: int
    asked_at: float
    expires_at: float | None
    delegate: str | None = None
    state: str = OPEN
    decided_by: str | None = None
    decided_at: float | None = None
    answer: bytes | None = None


class Transcript(Struct):
    """A transcript of the engine, with those of its subagents."""

    entries: list[Entry] = msgspec.field(default_factory=list)
    agents: dict[str, Json] = msgspec.field(default_factory=dict)
    """What is known of each subagent."""
    agent_entries: dict[str, list[Entry]] = msgspec.field(default_factory=dict)
    label: LabelRecord | None = None

    def log(self, agent: str) -> list[Entry]:
        """The entries of a subagent, or of the session itself if it is empty."""
        return self.agent_entries.setdefault(agent, []) if agent else self.entries


class SessionState(Struct):
    created: CreatedRecord | None = None
    """None if the session does not exist."""
    deleted: DeletedRecord | None = None
    title: str = ""
    """As it was given; the start of the first prompt if it is empty."""
    engine_id: str = ""
    """The id of the session in the engine; empty for its own."""
    declared: DeclaredRecord | None = None
    copied: CopiedRecord | None = None
    is_loaded: bool = False
    """Whether an engine was started and has not ended by itself."""
    used_at: float = 0.0
    total_tokens: int = 0
    total_usd: float = 0.0
    """The totals of the engine at its last result."""
    spent_tokens: int = 0
    spent_usd: float = 0.0
    """What the session itself has used, without the one that it is a copy of."""
    last_line: int = 0
    line_bytes: int = 0
    prompts: dict[str, Prompt] = msgspec.field(default_factory=dict)
    open_prompts: dict[str, None] = msgspec.field(default_factory=dict)
    """The ids of the prompts without a result, oldest first."""
    unread_prompts: dict[str, None] = msgspec.field(default_factory=dict)
    """The ids of the prompts whose results no connection of the token that posted them has got."""
    questions: dict[str, StoredQuestion] = msgspec.field(default_factory=dict)
    transcripts: dict[str, Transcript] = msgspec.field(default_factory=dict)
    """By the id of the session in the engine."""
    commands: dict[str, bytes] = msgspec.field(default_factory=dict)
    summary: SummaryRecord | None = None

    @property
    def exists(self) -> bool:
        return self.created is not None and self.deleted is None

    @property
    def open_questions(self) -> list[str]:
        return [request_id for request_id, one in self.questions.items() if one.state == OPEN]

    def apply_all(self, records: Iterable[AnyRecord]) -> None:
        """Raises DamagedRecords."""
        for record in records:
            self.apply(record)

    def apply(self, record: AnyRecord) -> None:
        """Raises DamagedRecords."""
        _CHANGES[type(record)](self, record)

    def transcript(self, session: str) -> Transcript:
        return self.transcripts.setdefault(session, Transcript())

    def records(self) -> Iterator[AnyRecord]:
        if self.created is None:
            return
        yield self.created
        if self.copied is not None:
            yield self.copied
        if self.title != self.created.title:
            yield TitledRecord(title=self.title)
        if self.engine_id:
            yield EngineChangedRecord(engine_id=self.engine_id)
        if self.declared is not None:
            yield self.declared
        yield EngineStartedRecord(at=self.used_at)
        if not self.is_loaded:
            yield EngineEndedRecord()
        yield UsedRecord(
            tokens=self.spent_tokens,
            usd=self.spent_usd,
            total_tokens=self.total_tokens,
            total_usd=self.total_usd,
        )
        for uuid, prompt in self.prompts.items():
            yield PromptTakenRecord(uuid=uuid, line=prompt.line, digest=prompt.digest, unread_by=prompt.unread_by)
            if prompt.result is not None:
                yield PromptFinishedRecord(uuid=uuid, result=prompt.result)
        for request_id, question in self.questions.items():
            yield from question_records(request_id, question)
        yield from transcript_records(self.transcripts)
        for command_id, reply in self.commands.items():
            yield CommandRecord(id=command_id, reply=reply)
        if self.deleted is not None:
            yield self.deleted

    # What follows from each kind of record.

    def _create(self, record: CreatedRecord) -> None:
        self.created, self.title, self.used_at = record, record.title, record.at

    def _copy(self, record: CopiedRecord) -> None:
        self.copied, self.total_tokens, self.total_usd = record, record.total_tokens, record.total_usd

    def _set_title(self, record: TitledRecord) -> None:
        self.title = record.title

    def _declare(self, record: DeclaredRecord) -> None:
        self.declared = record

    def _start_engine(self, record: EngineStartedRecord) -> None:
        self.is_loaded, self.used_at = True, max(self.used_at, record.at)

    def _end_engine(self, record: EngineEndedRecord) -> None:
        self.is_loaded = False

    def _change_engine(self, record: EngineChangedRecord) -> None:
        self.engine_id = record.engine_id

    def _use(self, record: UsedRecord) -> None:
        self.spent_tokens += record.tokens
        self.spent_usd += record.usd
        self.total_tokens, self.total_usd = record.total_tokens, record.total_usd

    def _delete(self, record: DeletedRecord) -> None:
        self.deleted = record

    def _add_line(self, record: LineRecord) -> None:
        if record.number != self.last_line + 1:
            text = f"line {self.last_line + 1} is missing from the log; the next one has number {record.number}"
            raise DamagedRecords(text)
        self.last_line = record.number
        self.line_bytes += len(record.data)

    def _take_prompt(self, record: PromptTakenRecord) -> None:
        self.prompts[record.uuid] = Prompt(record.line, record.digest, record.unread_by)
        self.open_prompts[record.uuid] = None
        if record.unread_by is not None:
            self.unread_prompts[record.uuid] = None

    def _finish_prompt(self, record: PromptFinishedRecord) -> None:
        if (prompt := self.prompts.get(record.uuid)) is not None:
            prompt.result = record.result
            self.open_prompts.pop(record.uuid, None)

    def _cancel_prompt(self, record: PromptCancelledRecord) -> None:
        for known in (self.prompts, self.open_prompts, self.unread_prompts):
            known.pop(record.uuid, None)

    def _read_prompt(self, record: PromptReadRecord) -> None:
        if (prompt := self.prompts.get(record.uuid)) is not None:
            prompt.unread_by = None
            self.unread_prompts.pop(record.uuid, None)

    def _ask(self, record: AskedRecord) -> None:
        question = self.questions.get(record.request_id)
        if question is None:
            self.questions[record.request_id] = StoredQuestion(record.kind, record.line, record.at, record.expires_at)
        else:  # a resumed engine asks again: the time limit and the delegate stay
            question.line, question.state, question.decided_at = record.line, OPEN, None

    def _delegate(self, record: DelegatedRecord) -> None:
        self.questions[record.request_id].delegate = record.delegate

    def _decide(self, record: DecidedRecord) -> None:
        question = self.questions[record.request_id]
        question.state, question.answer = DECIDED, record.answer
        question.decided_by, question.decided_at = record.by, record.at

    def _withdraw(self, record: WithdrawnRecord) -> None:
        question = self.questions[record.request_id]
        question.state, question.decided_at = WITHDRAWN, record.at

    def _add_entry(self, record: EntryRecord) -> None:
        self.transcript(record.session).log(record.agent).append(record.entry)

    def _add_agent(self, record: AgentRecord) -> None:
        self.transcript(record.session).agents[record.agent] = record.meta

    def _set_label(self, record: LabelRecord) -> None:
        self.transcript(record.session).label = record

    def _delete_transcript(self, record: TranscriptDeletedRecord) -> None:
        self.transcripts.pop(record.session, None)

    def _remember_command(self, record: CommandRecord) -> None:
        """Keep the last commands."""
        self.commands.pop(record.id, None)
        self.commands[record.id] = record.reply
        while len(self.commands) > MOST_COMMANDS:
            del self.commands[next(iter(self.commands))]

    def _summarize(self, record: SummaryRecord) -> None:
        self.summary = record

    def _own(self, record: OwnerRecord) -> None:
        """Who runs the session does not change it."""


_CHANGES: dict[type, Callable[[SessionState, Any], None]] = {
    CreatedRecord: SessionState._create,
    CopiedRecord: SessionState._copy,
    TitledRecord: SessionState._set_title,
    DeclaredRecord: SessionState._declare,
    EngineStartedRecord: SessionState._start_engine,
    EngineEndedRecord: SessionState._end_engine,
    EngineChangedRecord: SessionState._change_engine,
    UsedRecord: SessionState._use,
    DeletedRecord: SessionState._delete,
    LineRecord: SessionState._add_line,
    PromptTakenRecord: SessionState._take_prompt,
    PromptFinishedRecord: SessionState._finish_prompt,
    PromptCancelledRecord: SessionState._cancel_prompt,
    PromptReadRecord: SessionState._read_prompt,
    AskedRecord: SessionState._ask,
    DelegatedRecord: SessionState._delegate,
    DecidedRecord: SessionState._decide,
    WithdrawnRecord: SessionState._withdraw,
    EntryRecord: SessionState._add_entry,
    AgentRecord: SessionState._add_agent,
    LabelRecord: SessionState._set_label,
    TranscriptDeletedRecord: SessionState._delete_transcript,
    CommandRecord: SessionState._remember_command,
    SummaryRecord: SessionState._summarize,
    OwnerRecord: SessionState._own,
}


def question_records(request_id: str, question: StoredQuestion) -> Iterator[AnyRecord]:
    yield AskedRecord(
        request_id=request_id,
        kind=question.kind,
        line=question.line,
        at=question.asked_at,
        expires_at=question.expires_at,
    )
    if question.delegate is not None:
        yield DelegatedRecord(request_id=request_id, delegate=question.delegate)
    if question.state == DECIDED:
        yield DecidedRecord(
            request_id=request_id,
            answer=question.answer or b"",
            by=question.decided_by or "",
            at=question.decided_at or 0.0,
        )
    elif question.state == WITHDRAWN:
        yield WithdrawnRecord(request_id=request_id, at=question.decided_at or 0.0)


def transcript_records(transcripts: dict[str, Transcript]) -> Iterator[AnyRecord]:
    for session, transcript in transcripts.items():
        for entry in transcript.entries:
            yield EntryRecord(session=session, entry=entry)
        for agent, meta in transcript.agents.items():
            yield AgentRecord(session=session, agent=agent, meta=meta)
        for agent, entries in transcript.agent_entries.items():
            for entry in entries:
                yield EntryRecord(session=session, agent=agent, entry=entry)
        if transcript.label is not None:
            yield transcript.label
