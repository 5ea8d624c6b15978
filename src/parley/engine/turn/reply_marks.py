"""What the messages of a reply say about its turn: the prompts that it answers, how far thinking is, and times."""

from __future__ import annotations

from collections.abc import Callable

from parley.engine.context.history import tokens_from_chars
from parley.engine.session.prompt_queue import Prompt
from parley.protocol.base import UNSET, Json, UnsetType
from parley.protocol.messages.system import ThinkingTokens


class ReplyMarks:
    """The first message and the first event of a reply name the prompts that it answers."""

    def __init__(self, prompts: list[Prompt], resume_reason: str | UnsetType) -> None:
        self._prompts = prompts
        """The prompts of the turn; more can join it."""
        self._resume_reason = resume_reason
        self._marked: set[str] = set()
        self._thinking_tokens = 0

    def take(self, kind: str) -> Json:
        """The fields of the first message of a kind; empty for later ones."""
        if kind in self._marked:
            return {}
        self._marked.add(kind)
        fields: Json = {} if self._resume_reason is UNSET else {"resume_reason": self._resume_reason}
        if named := self._client_uuids():
            fields |= {"user_message_uuid": named[0], "user_message_uuids": named}
        return fields

    def count_thinking(self, chars: int) -> ThinkingTokens:
        """The message about more characters of thinking."""
        tokens, named = tokens_from_chars(chars), self._client_uuids()
        self._thinking_tokens += tokens
        return ThinkingTokens(
            estimated_tokens=self._thinking_tokens,
            estimated_tokens_delta=tokens,
            user_message_uuid=named[0] if named else UNSET,
        )

    def _client_uuids(self) -> list[str]:
        return [prompt.uuid for prompt in self._prompts if prompt.has_client_uuid]


class TurnTimings:
    """When the first things of a turn happened, on the monotonic clock."""

    def __init__(self) -> None:
        self.request_at: float | None = None
        self.request_wall_seconds: float | None = None
        """The time of day of the first request."""
        self.answer_at: float | None = None
        """The start of the first answer."""
        self.content_at: float | None = None

    def record_request(self, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        if self.request_at is None:
            self.request_at, self.request_wall_seconds = clock(), wall_clock()

    def record_answer(self, clock: Callable[[], float], started_at: float) -> int:
        """Returns the milliseconds from `started_at`, the start of this model call."""
        now = clock()
        if self.answer_at is None:
            self.answer_at = now
        return round((now - started_at) * 1000)

    def record_content(self, clock: Callable[[], float]) -> None:
        if self.content_at is None:
            self.content_at = clock()

    def since(self, started_at: float, *, has_client_uuid: bool) -> Json:
        """The fields of a successful result. `started_at` is the start of the turn."""
        marks = {
            "ttft_ms": self.answer_at,
            "ttft_stream_ms": self.answer_at,
            "time_to_request_ms": self.request_at,
            "first_content_frame_ms": self.content_at,
        }
        fields: Json = {name: round((at - started_at) * 1000) for name, at in marks.items() if at is not None}
        if has_client_uuid and self.request_wall_seconds is not None:
            fields["request_sent_wall_ms"] = round(self.request_wall_seconds * 1000)
        return fields
