"""Exceptions, with the names of the official SDK.

    ClaudeSDKError
    ├── CLIConnectionError     the engine cannot be reached or has exited
    │   ├── CLINotFoundError   the engine's executable was not found
    │   ├── NotConnected       a method was called before connect() or after close()
    │   └── Unfit              the engine does not support a requested option
    ├── ProcessError           the engine exited with an error: exit code, stderr, argv
    │   ├── OptionsError       the engine does not start with these options
    │   └── ResultError        a turn failed; the result gives the reason
    ├── BudgetExceeded         a shared budget is spent, so no turn starts
    ├── ControlError           the engine refused a control request
    │   └── ControlTimeout     the engine did not answer a control request in time
    ├── CLIJSONDecodeError     a line is not JSON
    └── MessageParseError      a message does not have the expected content

An invalid line in a stream raises no exception: it becomes an `Unreadable` message (types/messages.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parley.errors import ParleyError

if TYPE_CHECKING:
    from parley.sdk.types.messages import ResultMessage

INTERRUPTED = ("aborted_streaming", "aborted_tools")
"""The terminal reasons of a turn that an interrupt has ended."""

FLAG = re.compile(r"(?<![\w-])(?P<flag>--[a-zA-Z][a-zA-Z-]*)(?: (?P<value>offline\b))?")


class ClaudeSDKError(ParleyError):
    """Base class of the SDK's exceptions."""


class CLIConnectionError(ClaudeSDKError):
    """The engine cannot be reached or has exited."""


class NotConnected(CLIConnectionError):
    """The client is not connected."""


class Unfit(CLIConnectionError):
    """The engine does not support a requested option."""


class CLINotFoundError(CLIConnectionError):
    """The engine's executable was not found."""

    def __init__(self, message: str = "no engine found", cli_path: str | None = None) -> None:
        super().__init__(f"{message}: {cli_path}" if cli_path else message)
        self.cli_path = cli_path


class ProcessError(ClaudeSDKError):
    """The engine exited with an error."""

    argv: Sequence[str] = ()
    """The engine's command line. It contains no secrets."""

    def __init__(self, message: str, exit_code: int | None = None, stderr: str | None = None) -> None:
        self.exit_code = exit_code
        self.stderr = stderr
        if exit_code is not None:
            message = f"{message} (exit code: {exit_code})"
        if stderr:
            message = f"{message}\nError output: {stderr}"
        super().__init__(message)


class OptionsError(ProcessError):
    """The engine does not start with these options: an unknown model, a budget that cannot be enforced.

    Another attempt with the same options fails in the same way.
    """


class ResultError(ProcessError):
    """A turn failed: an API error, a limit, an interrupt. The result gives the reason.

    try:
        answer = await client.run("Summarize the report.")
    except ResultError as exc:
        print(exc)  # the message: "No API key: set ANTHROPIC_API_KEY ..."
        print(exc.reason)  # in one word: "no_key"

    The other attributes are fields of the result. Test `reason` rather than `subtype`, which is "success" if a model
    call failed.
    """

    result_message: ResultMessage | None = None
    """The result as a message; None if there is none, as for a prompt that was withdrawn."""

    def __init__(self, message: str, data: dict[str, Any] | None = None, exit_code: int | None = None) -> None:
        self.data = data or {}
        """The result as a dict."""
        self.subtype: str | None = self._text("subtype")
        self.errors: list[str] = sentences(self.data.get("errors"))
        self.result: str | None = self._text("result")
        status = self.data.get("api_error_status")
        self.api_error_status: int | None = status if isinstance(status, int) else None
        self.terminal_reason: str | None = self._text("terminal_reason")
        self.reason: str = find_reason(self.data)
        """Why the turn failed, in one word: `interrupted`, `error_max_turns`, `no_key`. Never "success"."""
        self.session_id: str | None = self._text("session_id")
        super().__init__(message, exit_code=exit_code)

    @classmethod
    def from_message(cls, message: ResultMessage, exit_code: int | None = None) -> ResultError:
        """The error for a failed result."""
        text = "; ".join(sentences(message.errors)) or message.result
        text = text and name_options(text)
        error = cls(text or f"the turn failed: {find_reason(message.raw)}", message.raw, exit_code)
        error.result_message = message
        return error

    def _text(self, field: str) -> str | None:
        value = self.data.get(field)
        return value if isinstance(value, str) else None


def name_options(text: str) -> str:
    """Name the options of the SDK where a message of the engine names flags: `model='offline'` for `--model offline`.

    What is only a flag stays one: it is for `extra_args`.
    """
    from parley.protocol.options import FIELDS
    from parley.sdk.options import Options

    known = Options.__dataclass_fields__
    names = {flag: row.sdk_name for row in FIELDS.values() for flag in row.flags if row.sdk_name in known}
    names["--no-session-persistence"] = "persist_session=False"

    def name(found: re.Match[str]) -> str:
        option, value = names.get(found["flag"]), found["value"]
        if option is None:
            return found[0]
        return option if value is None else f"{option}={value!r}"

    return FLAG.sub(name, text.replace("parley sessions list --all", "list_sessions()"))


class BudgetExceeded(ClaudeSDKError):
    """A shared `Budget` is spent, or cannot be enforced, so no turn starts."""


class ControlError(ClaudeSDKError):
    """The engine refused a control request."""

    def __init__(self, message: str, subtype: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.subtype = subtype
        """The subtype of the request, e.g. `set_model`."""
        self.code = code
        """The engine's error code."""


class ControlTimeout(ControlError, TimeoutError):
    """A control request was not answered in time."""


class CLIJSONDecodeError(ClaudeSDKError):
    """A line is not JSON. Never raised here: such a line becomes `Unreadable`."""

    def __init__(self, line: str, original_error: Exception) -> None:
        self.line = line
        self.original_error = original_error
        super().__init__(f"a line is not JSON: {line[:100]}")


class MessageParseError(ClaudeSDKError):
    """A message of the engine does not have the expected content."""

    def __init__(self, message: str, data: dict[str, Any] | None = None) -> None:
        self.data = data
        super().__init__(message)


class InvalidReturn(TypeError):
    """A callback of the program returned something else than it should. The engine gets the text as an error."""


class InvalidArguments(ValueError):
    """The model called a tool with arguments that do not match its schema. It gets the text as the result."""


def describe_exception(exc: BaseException) -> str:
    """The text of an exception that a function of the program raised, with its type if the text alone is unclear."""
    text, name = str(exc).strip(), type(exc).__name__
    if not text:
        return name
    # The text of a KeyError is the bare key.
    return f"{name}: {text}" if isinstance(exc, KeyError) else text


def find_reason(result: dict[str, Any]) -> str:
    """Why a turn failed, in one word. The subtype of the result of a failed model call is "success"."""
    if result.get("terminal_reason") in INTERRUPTED:
        return "interrupted"
    subtype = result.get("subtype")
    found = (subtype if subtype != "success" else None, result.get("api_error"), result.get("terminal_reason"))
    return next((word for word in found if isinstance(word, str) and word), "unknown")


def sentences(errors: object) -> list[str]:
    """Return the errors of a result as a list of strings. Engines send a string or a list."""
    listed = [errors] if isinstance(errors, str) else errors if isinstance(errors, list) else []
    return [error.strip() for error in listed if isinstance(error, str) and error.strip()]
