"""All exceptions of the project. Choose the class by what happens with the error, not by where it is raised.

    ParleyError
    ├── UsageError            the command line is invalid: reported on stderr, exit 1, nothing on stdout
    │   ├── MissingPrompt     there is no prompt, and nothing else to continue with
    │   ├── ModelForbidden    settings forbid a model or a provider
    │   └── InvalidArguments  an unknown option, or the wrong arguments of a subcommand: exit 2
    │       └── UnknownCommand    there is no such subcommand, or none of ours
    ├── SessionError          a session cannot be opened: an error result with zero usage, exit 1
    │   ├── StartRefused      it cannot start
    │   ├── UnknownSession
    │   ├── SessionBusy       another process holds it
    │   └── DamagedSession    its log is corrupt; `parley sessions repair` keeps the valid part
    ├── ToolError             sent to the model as a tool_result with is_error; the turn continues
    ├── ModelError            sent to the client as a result (after retries if `retryable`); the turn ends
    ├── BudgetSpent           sent to the client as a result; the turn calls no model again
    ├── EditRefused           an invalid change to the memory: sent to the curator model, or reported on stderr
    ├── NotPossible           a control request is refused with an error reply; nothing has changed
    ├── RemoteProtocolError   the peer broke the protocol: an error reply or a warning; the session continues
    ├── LocalProtocolError    we broke the protocol: a bug in Parley
    └── ClaudeSDKError        what programs that use the SDK catch; see sdk/errors.py

Any other exception is a bug: a traceback on stderr and a non-zero exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager


class ParleyError(Exception):
    """Base class of all exceptions that Parley raises."""


class UsageError(ParleyError):
    """The command line is invalid."""

    exit_code = 1


class InvalidArguments(UsageError):
    """An option is unknown, or a subcommand was given the wrong arguments."""

    def __init__(self, text: str, exit_code: int = 2) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class UnknownCommand(InvalidArguments):
    """There is no such subcommand, or Parley does not have it."""


class MissingPrompt(UsageError):
    """There is no prompt. The text says why the session cannot continue without one."""


class ModelForbidden(UsageError):
    """Settings forbid a model or a provider."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason
        """The `startup_failure_reason` of a session that cannot start without the model."""


class SessionError(ParleyError):
    """A session cannot be opened or written."""

    fault_type = "system_error"
    """The `fault_type` of the error result."""
    error_code = ""
    """The name of the system's error if a write failed for lack of space: `ENOSPC` or `EDQUOT`."""


class StartRefused(SessionError):
    """A session cannot start, so it cannot report the error itself."""

    def __init__(self, text: str, reason: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        """The `startup_failure_reason` of the result, if there is one."""


class ToolsMissing(SessionError):
    """A turn cannot start because required tools are missing."""

    fault_type = "tool_error"


class EmptyPrompt(SessionError):
    """A prompt is empty, so no model request can be built from it."""

    fault_type = "validation_error"

    def __init__(self) -> None:
        super().__init__("The prompt was refused: it is empty")


class UnknownSession(SessionError):
    """No session has that id."""

    fault_type = "validation_error"

    def __init__(self, session_id: str, details: str = "") -> None:
        # Clients look for this exact sentence.
        super().__init__(f"No conversation found with session ID: {session_id}{details}")
        self.session_id = session_id


class SessionBusy(SessionError):
    """Another process holds the session."""

    def __init__(self, session_id: str, holder: str) -> None:
        super().__init__(
            f"Session {session_id} is in use by {holder}. Use --fork-session to continue in a copy, "
            "or --steal to take it over."
        )
        self.session_id = session_id
        self.holder = holder


class DamagedSession(SessionError):
    """Records are missing or altered in the middle of a session's log."""

    def __init__(self, session_id: str, location: str) -> None:
        super().__init__(
            f"Session {session_id} is damaged at {location}, and valid records follow the damage. "
            f"Run `parley sessions repair {session_id}` to keep the records before it and move the rest to a backup."
        )
        self.session_id = session_id
        self.location = location


class ClusterError(SessionError):
    """A part of a cluster, or a database with logs, does not answer or refuses. The message names the part.

    It is not known whether a write was stored, and it is safe to write again. `error_code` is `ENOSPC` if the part is
    full.
    """


class Fenced(ClusterError):
    """Another owner has written to the session. The writer must stop: it is not the owner any more."""


class LogDamaged(ClusterError):
    """Stored messages are missing or altered: the store was restored from an older copy, or lost them."""


class ToolError(ParleyError):
    """A tool call failed. The text tells the model why and what to do."""


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
        """The API's error type, e.g. `overloaded_error`; `connection_failed` if there was no response."""
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.request_id = request_id
        self.quota = quota
        """The state of the quota, if the backend reported it."""
        self.waited_seconds: float | None = None
        """How long a backend was waited for that sent nothing at all; None for other failures."""
        self.max_retries: int | None = None
        """The most retries that make sense for this failure; None for as many as the session makes."""
        self.advice = ""
        """What the user can do: a sentence that follows the message."""

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}. {self.advice}" if self.advice else self.message


class BudgetSpent(ParleyError):
    """A budget is exhausted, so no model may be called."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        """usd, tokens, calls, seconds or task."""


class EditRefused(ParleyError):
    """An invalid change to the memory. The text says why, and what to do instead."""


class NotPossible(ParleyError):
    """A control request is refused. The text says why."""

    def __init__(self, text: str, code: str = "invalid_request") -> None:
        super().__init__(text)
        self.code = code


class RemoteProtocolError(ParleyError):
    """The peer broke a rule of the protocol."""


class UnexpectedAnswer(RemoteProtocolError):
    """The peer answered a request that is not waiting for an answer."""

    def __init__(self, request_id: object, waiting: Collection[str]) -> None:
        super().__init__(f"response to unknown request {request_id!r} (pending requests: {sorted(waiting)})")


class LocalProtocolError(ParleyError):
    """We were about to break a rule of the protocol."""


@contextmanager
def explain_os_errors(problem: str, kind: Callable[[str], Exception] = SessionError) -> Iterator[None]:
    """Raise OSError as an error that begins with what was not possible."""
    try:
        yield
    except OSError as exc:
        raise kind(f"{problem}: {exc.strerror}") from None
