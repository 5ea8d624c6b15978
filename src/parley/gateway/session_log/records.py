"""What can happen to a session. A log is a list of these.

    encode_records(records)    one batch, as bytes
    decode_records(data)       the records of a batch

A record says what happened, never how a table looks afterwards: `state.py` has what follows from it. What clients see
is a line, so a prompt and a question refer to their line by its number and do not repeat it.

A version may add fields: older ones ignore them. A kind of record that this version does not know is never skipped,
because what follows from it is not known either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry


class DamagedRecords(SessionError):
    """Stored records cannot be read, or some are missing."""


class UnknownRecords(SessionError):
    """A newer version wrote records that this one does not know."""


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


class SummaryRecord(Record, frozen=True, kw_only=True, tag="summary"):
    """What the index has found in the lines. Only snapshots have it, so that a new owner need not index first."""

    lines: int
    """How many lines were read for it."""
    title: str
    model: str | None
    permission_mode: str | None
    turns: int
    cost_usd: float
    last_error: str | None
    preview: str
    used_at: float
    model_totals: str


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
    | SummaryRecord
)

_encoder = msgspec.msgpack.Encoder()
_records = msgspec.msgpack.Decoder(list[AnyRecord])


def encode_records(records: Iterable[AnyRecord]) -> bytes:
    """May be called in a thread."""
    return _encoder.encode(list(records))


def decode_records(data: bytes | memoryview) -> list[AnyRecord]:
    """Raises UnknownRecords or DamagedRecords."""
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
            raise UnknownRecords(text) from None
        raise DamagedRecords(f"the records of a batch cannot be read: {exc}") from None
