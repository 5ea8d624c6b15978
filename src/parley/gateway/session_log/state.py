"""The state of a session: what follows from its records.

    state.apply(record)    one record more
    state.records()        the fewest records that lead to the same state, without lines

It has no text of lines, which are read from the log when they are needed. See also: `session_log.py`, which keeps both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
        """What follows from a record; the most frequent ones come first. Raises DamagedRecords."""
        match record:
            case LineRecord():
                if record.number != self.last_line + 1:
                    text = f"line {self.last_line + 1} is missing from the log; the next one has number {record.number}"
                    raise DamagedRecords(text)
                self.last_line = record.number
                self.line_bytes += len(record.data)
            case EntryRecord():
                self.transcript(record.session).log(record.agent).append(record.entry)
            case PromptTakenRecord():
                self.prompts[record.uuid] = Prompt(record.line, record.digest, record.unread_by)
                self.open_prompts[record.uuid] = None
                self.unread_prompts.pop(record.uuid, None)
                if record.unread_by is not None:
                    self.unread_prompts[record.uuid] = None
            case PromptFinishedRecord() if record.uuid in self.prompts:
                self.prompts[record.uuid].result = record.result
                self.open_prompts.pop(record.uuid, None)
            case PromptReadRecord() if record.uuid in self.prompts:
                self.prompts[record.uuid].unread_by = None
                self.unread_prompts.pop(record.uuid, None)
            case PromptCancelledRecord():
                for known in (self.prompts, self.open_prompts, self.unread_prompts):
                    known.pop(record.uuid, None)
            case UsedRecord():
                self.spent_tokens += record.tokens
                self.spent_usd += record.usd
                self.total_tokens, self.total_usd = record.total_tokens, record.total_usd
            case AskedRecord() if (again := self.questions.get(record.request_id)) is not None:
                # A resumed engine asks again: the time limit and the delegate stay.
                again.line, again.state, again.decided_at = record.line, OPEN, None
            case AskedRecord():
                question = StoredQuestion(record.kind, record.line, record.at, record.expires_at)
                self.questions[record.request_id] = question
            case DelegatedRecord():
                self.questions[record.request_id].delegate = record.delegate
            case DecidedRecord():
                question = self.questions[record.request_id]
                question.state, question.answer = DECIDED, record.answer
                question.decided_by, question.decided_at = record.by, record.at
            case WithdrawnRecord():
                question = self.questions[record.request_id]
                question.state, question.decided_at = WITHDRAWN, record.at
            case EngineStartedRecord():
                self.is_loaded, self.used_at = True, max(self.used_at, record.at)
            case EngineEndedRecord():
                self.is_loaded = False
            case EngineChangedRecord():
                self.engine_id = record.engine_id
            case CreatedRecord():
                self.created, self.title, self.used_at = record, record.title, record.at
            case CopiedRecord():
                self.copied, self.total_tokens, self.total_usd = record, record.total_tokens, record.total_usd
            case TitledRecord():
                self.title = record.title
            case DeclaredRecord():
                self.declared = record
            case DeletedRecord():
                self.deleted = record
            case AgentRecord():
                self.transcript(record.session).agents[record.agent] = record.meta
            case LabelRecord():
                self.transcript(record.session).label = record
            case TranscriptDeletedRecord():
                self.transcripts.pop(record.session, None)
            case CommandRecord():
                self.commands.pop(record.id, None)
                self.commands[record.id] = record.reply
                while len(self.commands) > MOST_COMMANDS:
                    del self.commands[next(iter(self.commands))]
            case SummaryRecord():
                self.summary = record
            case OwnerRecord() | PromptFinishedRecord() | PromptReadRecord():
                pass  # who runs the session does not change it, and neither does a prompt that was cancelled

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
