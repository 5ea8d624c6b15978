"""Every error of the project. Choose the class by the fate of the error, not by the place it is raised.

    ParleyError
    ├── UsageError            the command line is wrong: stderr, exit 1, nothing on stdout
    ├── SessionError          a session cannot be opened: a zeroed error result, exit 1
    │   ├── UnknownSession
    │   ├── SessionBusy       somebody else holds it
    │   └── DamagedSession    its log has a hole; `parley sessions repair` keeps what is before it
    ├── ToolError             the model hears of it as a tool_result with is_error; the turn goes on
    ├── ModelError            the host hears of it as a result (after retries if `retryable`); the turn ends
    ├── BudgetSpent           the host hears of it as a result; no model is called any more in the turn
    ├── Refusal               a memory cannot be changed so: its curator hears of it, or a person on stderr
    ├── NotPossible           a control request is refused: an error reply, nothing has changed
    ├── RemoteProtocolError   the peer said something it may not; an error reply or a complaint, we go on
    ├── LocalProtocolError    we said something we may not: our bug
    └── ClaudeSDKError        what programs with the SDK catch; its tree is in sdk/errors.py

Anything else is a bug of ours: a traceback on stderr and a non-zero exit.
"""

from __future__ import annotations

from collections.abc import Collection


class ParleyError(Exception):
    """The root of what we raise on purpose."""


class UsageError(ParleyError):
    """The command line asks for something that cannot be."""


class SessionError(ParleyError):
    """A session cannot be opened or written."""

    fault_type = "system_error"
    """Whose fault it is, as a result says it."""


class ToolsMissing(SessionError):
    """A turn cannot begin without tools that are not there."""

    fault_type = "tool_error"


class EmptyPrompt(SessionError):
    """A prompt says nothing, and no request can be made of it."""

    fault_type = "validation_error"

    def __init__(self) -> None:
        super().__init__("The prompt was refused: it is empty")


class UnknownSession(SessionError):
    """There is no session with that id."""

    fault_type = "validation_error"

    def __init__(self, session_id: str) -> None:
        # Clients look for this very sentence.
        super().__init__(f"No conversation found with session ID: {session_id}")
        self.session_id = session_id


class SessionBusy(SessionError):
    """Somebody else holds the session."""

    def __init__(self, session_id: str, holder: str) -> None:
        super().__init__(
            f"Session {session_id} is in use by {holder}. Use --fork-session to go on in a copy, "
            "or --steal to take it over."
        )
        self.session_id = session_id
        self.holder = holder


class DamagedSession(SessionError):
    """Records are missing or altered in the middle of a session's log."""

    def __init__(self, session_id: str, place: str) -> None:
        super().__init__(
            f"Session {session_id} is damaged at {place}, with good records behind that. "
            f"`parley sessions repair {session_id}` keeps what is before it and puts the rest aside."
        )
        self.session_id = session_id
        self.place = place


class ToolError(ParleyError):
    """A tool could not do what the model asked; the text tells the model how to go on."""


class ModelError(ParleyError):
    """A model call failed."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        kind: str | None = None,
        retryable: bool = False,
        retry_after_seconds: float | None = None,
        request_id: str | None = None,
        quota: object = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        """The API's own name, e.g. `overloaded_error`; `connection_failed` where nothing answered."""
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.request_id = request_id
        self.quota = quota
        """The state of the quota, where the backend told it."""


class BudgetSpent(ParleyError):
    """A model shall not be called: what may be spent is spent."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind
        """usd, tokens, calls, seconds or task."""


class Refusal(ParleyError):
    """What is remembered cannot be changed in this way; the text says why, and what could be done."""


class NotPossible(ParleyError):
    """A control request that is refused, and why."""

    def __init__(self, text: str, code: str = "invalid_request") -> None:
        super().__init__(text)
        self.code = code


class RemoteProtocolError(ParleyError):
    """The peer broke a rule of the conversation."""


class UnexpectedAnswer(RemoteProtocolError):
    """The peer answered a request that is not waiting for an answer."""

    def __init__(self, request_id: object, waiting: Collection[str]) -> None:
        super().__init__(f"no request {request_id!r} is waiting for an answer; waiting are {sorted(waiting)}")


class LocalProtocolError(ParleyError):
    """We were about to break a rule of the conversation."""
