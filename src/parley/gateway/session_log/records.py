"""What can happen to a session, and what follows from it. A log is a list of records.

    encode_records(records)    one batch, as bytes
    decode_records(data)       the records of a batch
    state.apply(record)        what follows from one record more

A record says what happened, never how a table looks afterwards: `SessionState` has what follows from it. What clients
see is a line, so a prompt and a question refer to their line by its number and do not repeat it.

A version may add fields: older ones ignore them. A kind of record that this version does not know is never skipped,
because what follows from it is not known either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from parley.errors import ClusterError, LogDamaged
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry
from parley.stores.memory import StoredTranscript


class NewerVersion(ClusterError):
    """A newer version wrote records that this one does not know. In a cluster, a host of that version must run it."""


class Record(Struct, frozen=True, kw_only=True, tag_field="t"):
    """Something that happened in a session."""


# The session.


class CreatedRecord(Record, frozen=True, kw_only=True, tag="created"):
    """The first record of every log."""

    tenant: str
    creator: str
    """The name of the token that created it."""
    cwd: str
    options: bytes
    """The options of the command line, as a JSON list."""
    workspace: str | None = None
    title: str = ""
    at: float


class CopiedRecord(Record, frozen=True, kw_only=True, tag="copied"):
    """The session continues a copy of another one, which was paid for there."""

    source: str
    lines: int
    """How many lines were copied."""
    total_tokens: int = 0
    total_usd: float = 0.0
    """The totals that the engine of the copy starts with."""


class TitledRecord(Record, frozen=True, kw_only=True, tag="titled"):
    title: str


class DeclaredRecord(Record, frozen=True, kw_only=True, tag="declared"):
    """A client sent an `initialize` request, which applies to all engines from now on."""

    request: bytes
    by: str


class EngineStartedRecord(Record, frozen=True, kw_only=True, tag="engine_started"):
    at: float


class EngineEndedRecord(Record, frozen=True, kw_only=True, tag="engine_ended"):
    """The engine has ended by itself. Without this record, it was killed."""


class EngineChangedRecord(Record, frozen=True, kw_only=True, tag="engine_changed"):
    """The session has another id in the engine, for example after `/clear`."""

    engine_id: str


class UsedRecord(Record, frozen=True, kw_only=True, tag="used"):
    """The session has used a model."""

    tokens: int
    usd: float
    total_tokens: int
    total_usd: float
    """The totals of the engine at its last result, from which the next growth is counted."""


class KeptTurn(Struct, frozen=True):
    """What is kept of the turn of a deleted session: figures, no text."""

    number: int
    time: float
    model: str | None
    duration_ms: float | None
    duration_api_ms: float | None
    is_error: bool
    uses: Sequence[tuple[str, float | None, int, int, int]]
    """Of each model: its name, dollars, and tokens of input, output and cache reads."""


class DeletedRecord(Record, frozen=True, kw_only=True, tag="deleted"):
    """The session was deleted. What it has cost is still known."""

    title: str = ""
    turns: Sequence[KeptTurn] = ()


# Lines and prompts.


class LineRecord(Record, frozen=True, kw_only=True, tag="line"):
    """A line that clients see. Its number is the cursor that they continue from."""

    number: int
    at: float
    data: bytes


class PromptTakenRecord(Record, frozen=True, kw_only=True, tag="prompt_taken"):
    uuid: str
    line: int
    digest: bytes
    """So that another prompt with the same id is noticed."""
    unread_by: str | None = None
    """The token that posted it, and whose next connection reads what follows."""


class PromptFinishedRecord(Record, frozen=True, kw_only=True, tag="prompt_finished"):
    uuid: str
    result: int
    """The number of the line with its result."""


class PromptCancelledRecord(Record, frozen=True, kw_only=True, tag="prompt_cancelled"):
    """The prompt never ran, so it may be sent again."""

    uuid: str


class PromptReadRecord(Record, frozen=True, kw_only=True, tag="prompt_read"):
    """A connection of the token that posted the prompt has its result."""

    uuid: str


# Questions.


class AskedRecord(Record, frozen=True, kw_only=True, tag="asked"):
    """The engine asked the clients, or asks again after it was killed."""

    request_id: str
    kind: str
    line: int
    at: float
    expires_at: float | None = None


class DelegatedRecord(Record, frozen=True, kw_only=True, tag="delegated"):
    request_id: str
    delegate: str


class DecidedRecord(Record, frozen=True, kw_only=True, tag="decided"):
    """The first decision about a question."""

    request_id: str
    answer: bytes
    by: str
    at: float


class WithdrawnRecord(Record, frozen=True, kw_only=True, tag="withdrawn"):
    """The engine no longer waits for an answer."""

    request_id: str
    at: float


# The transcripts of the engine, if they are in the log: those of a cluster.


class EntryRecord(Record, frozen=True, kw_only=True, tag="entry"):
    """An entry of a transcript."""

    session: str
    """The id of the session in the engine, which changes with `/clear`."""
    agent: str = ""
    """The subagent whose transcript it is; empty for the session's own."""
    entry: Entry


class AgentRecord(Record, frozen=True, kw_only=True, tag="agent"):
    """A subagent has started a transcript."""

    session: str
    agent: str
    meta: Json


class LabelRecord(Record, frozen=True, kw_only=True, tag="label"):
    """A transcript was given a title and a tag."""

    session: str
    title: str | None = None
    title_at: int = 0
    """How many entries there were when the title was given."""
    tag: str | None = None


class TranscriptDeletedRecord(Record, frozen=True, kw_only=True, tag="transcript_deleted"):
    session: str


# The cluster.


class OwnerRecord(Record, frozen=True, kw_only=True, tag="owner"):
    """A host has loaded the session. From here on, writes of earlier owners fail."""

    host: str
    epoch: int


class CommandRecord(Record, frozen=True, kw_only=True, tag="command"):
    """A request of a client was carried out. A repeated one gets the same reply."""

    id: str
    reply: bytes


class StateRecord(Record, frozen=True, kw_only=True, tag="state"):
    """All that has happened, without lines: what snapshots begin with."""

    state: SessionState


AnyRecord = (
    CreatedRecord
    | CopiedRecord
    | TitledRecord
    | DeclaredRecord
    | EngineStartedRecord
    | EngineEndedRecord
    | EngineChangedRecord
    | UsedRecord
    | DeletedRecord
    | LineRecord
    | PromptTakenRecord
    | PromptFinishedRecord
    | PromptCancelledRecord
    | PromptReadRecord
    | AskedRecord
    | DelegatedRecord
    | DecidedRecord
    | WithdrawnRecord
    | EntryRecord
    | AgentRecord
    | LabelRecord
    | TranscriptDeletedRecord
    | OwnerRecord
    | CommandRecord
    | StateRecord
)

# What follows from them.

OPEN, DECIDED, WITHDRAWN = "open", "decided", "withdrawn"
MOST_COMMANDS = 256
"""How many replies to commands a session remembers."""


class StoredPrompt(Struct):
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


class SessionSummary(Struct):
    """What a list shows of a session: what the index has found in its lines."""

    title: str
    model: str | None
    permission_mode: str | None
    turns: int
    cost_usd: float
    last_error: str | None
    preview: str
    used_at: float
    model_totals: str
    """What the engine has used of each model, as the last result says."""
    indexed_lines: int
    """How many lines were read for it."""


class SessionState(Struct):
    """What follows from the records of a session. It has no text of lines, which are read from the log if needed."""

    created: CreatedRecord | None = None
    """None if the session does not exist."""
    deleted: DeletedRecord | None = None
    title: str = ""
    """As it was given; the start of the first prompt if it is empty."""
    engine_ids: list[str] = msgspec.field(default_factory=list)
    """The ids of the session in the engine, besides its own; the last one applies."""
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
    prompts: dict[str, StoredPrompt] = msgspec.field(default_factory=dict)
    open_prompts: dict[str, None] = msgspec.field(default_factory=dict)
    """The ids of the prompts without a result, oldest first."""
    unread_prompts: dict[str, None] = msgspec.field(default_factory=dict)
    """The ids of the prompts whose results no connection of the token that posted them has got."""
    questions: dict[str, StoredQuestion] = msgspec.field(default_factory=dict)
    transcripts: dict[str, StoredTranscript] = msgspec.field(default_factory=dict)
    """By the id of the session in the engine."""
    commands: dict[str, bytes] = msgspec.field(default_factory=dict)
    summary: SessionSummary | None = None
    """Only snapshots have it, so that a new owner need not index first."""

    @property
    def exists(self) -> bool:
        return self.created is not None and self.deleted is None

    @property
    def open_questions(self) -> list[str]:
        return [request_id for request_id, one in self.questions.items() if one.state == OPEN]

    def apply_all(self, records: Iterable[AnyRecord]) -> None:
        """Raises LogDamaged."""
        for record in records:
            self.apply(record)

    def apply(self, record: AnyRecord) -> None:
        """What follows from a record; the most frequent ones come first. Raises LogDamaged."""
        match record:
            case LineRecord():
                if record.number != self.last_line + 1:
                    text = f"line {self.last_line + 1} is missing from the log; the next one has number {record.number}"
                    raise LogDamaged(text)
                self.last_line = record.number
                self.line_bytes += len(record.data)
            case EntryRecord():
                self.transcript(record.session).log(record.agent).append(record.entry)
            case PromptTakenRecord():
                self.prompts[record.uuid] = StoredPrompt(record.line, record.digest, record.unread_by)
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
                self.engine_ids.append(record.engine_id)
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
                transcript = self.transcript(record.session)
                transcript.title, transcript.title_at, transcript.tag = record.title, record.title_at, record.tag
            case TranscriptDeletedRecord():
                self.transcripts.pop(record.session, None)
            case CommandRecord():
                self.commands.pop(record.id, None)
                self.commands[record.id] = record.reply
                while len(self.commands) > MOST_COMMANDS:
                    del self.commands[next(iter(self.commands))]
            case StateRecord():
                for name in self.__struct_fields__:
                    setattr(self, name, getattr(record.state, name))
            case OwnerRecord() | PromptFinishedRecord() | PromptReadRecord():
                pass  # who runs the session does not change it, and neither does a prompt that was cancelled

    def transcript(self, session: str) -> StoredTranscript:
        return self.transcripts.setdefault(session, StoredTranscript())


_encoder = msgspec.msgpack.Encoder()
_records = msgspec.msgpack.Decoder(list[AnyRecord])


def encode_records(records: Iterable[AnyRecord]) -> bytes:
    """May be called in a thread."""
    return _encoder.encode(list(records))


def decode_records(data: bytes | memoryview) -> list[AnyRecord]:
    """Raises NewerVersion or LogDamaged."""
    try:
        return _records.decode(data)
    except msgspec.MsgspecError as exc:
        known = {one.__struct_config__.tag for one in AnyRecord.__args__}
        try:
            kinds = {str(record["t"]) for record in msgspec.msgpack.decode(data)} - known
        except (msgspec.MsgspecError, TypeError, KeyError):
            kinds = set()
        if kinds:
            unknown = ", ".join(sorted(kinds))
            text = f"the log has records of unknown kinds ({unknown}); a newer version wrote them"
            raise NewerVersion(text) from None
        raise LogDamaged(f"the records of a batch cannot be read: {exc}") from None
