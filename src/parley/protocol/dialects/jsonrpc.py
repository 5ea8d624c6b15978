"""The dialect jsonrpc (JSON-RPC 2.0): `run`, `cancel` and `status`, and the lines of miriad in envelopes.

A run is answered by many responses with its id, one per event. The last one has a `result` of the type `result`.
There is one run at a time. Events between runs, and turns that no run requested (a background task finished), are
sent under the id of the last run. A run that arrives meanwhile waits and has no line before its own turn starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from parley.protocol.base import (
    NESTING_CAP,
    UNSET,
    Json,
    Message,
    Refused,
    Struct,
    convert,
    encode_json,
    is_too_deep,
    replace_lone_surrogates,
)
from parley.protocol.dialects.base import DialectContext, DialectProfile, Reply, system
from parley.protocol.dialects.miriad import Miriad
from parley.protocol.messages.control import ControlResponse
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import Injected, Queued, SystemFault, Withdrawal
from parley.protocol.messages.notices import CommandLifecycle
from parley.protocol.messages.result import Result

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
ALREADY_RUNNING = -32001
NOT_RUNNING = -32002
CANCELLED = -32003
FAULTS = {"system_error": INTERNAL_ERROR, "validation_error": INVALID_PARAMS}
"""The code of a run that failed because of the engine, or of the client."""
Id = str | int | float | None
UNSENT = (Queued, Injected)
"""Events of miriad that this dialect does not have: prompts do not wait here."""


class CallRefused(Exception):
    """A line that is answered with an error."""

    def __init__(self, code: int, text: str, id: Id = None, data: Any = UNSET) -> None:
        super().__init__(text)
        self.code = code
        self.id = id
        self.data = data

    def encode(self) -> bytes:
        more = {} if self.data is UNSET else {"data": self.data}
        return error_line(self.id, self.code, str(self), **more)


class RpcCall(Struct, frozen=True):
    id: Id
    method: str
    params: Json


class Run(Struct, frozen=True):
    id: Id
    uuid: str
    """The UUID of its prompt."""


class JsonRpcDialect:
    name = "jsonrpc"
    can_request = False
    profile: ClassVar[DialectProfile] = DialectProfile(
        over_stdio=True, prompt_separator="\n\n", merge_prompts=False, client_tools="never"
    )

    def __init__(self, world: DialectContext) -> None:
        self._frames = Miriad(world)
        self._run: Run | None = None
        self._last: Id = None
        """The run whose result was sent last."""
        self._cancels: list[Id] = []
        """The `cancel` calls that wait for the end of the run."""
        self._stops: list[Id] = []
        """The calls that wait for the end of a turn that no run requested."""

    # In.

    def decode(self, line: bytes) -> list[Message]:
        try:
            call = read(line)
            return METHODS[call.method](self, call)
        except CallRefused as exc:
            return [Reply(lines=[exc.encode()])]

    def run(self, call: RpcCall) -> list[Message]:
        if self._run is not None:
            text = "A run is in progress; wait for its result, or cancel it"
            raise CallRefused(ALREADY_RUNNING, text, call.id, {"currentRequestId": self._run.id})
        if not call.params.get("prompt"):
            raise CallRefused(INVALID_PARAMS, "`run` needs a `prompt` that is not empty", call.id)
        said = {key: value for key, value in call.params.items() if key not in ("prompt", "type", "message", "uuid")}
        try:
            line = {"type": "user", **said, "message": {"role": "user", "content": call.params["prompt"]}}
            messages = self._frames.read_prompt(convert(line, User))
        except msgspec.ValidationError as exc:
            raise CallRefused(INVALID_PARAMS, str(exc), call.id) from None
        prompt = messages[-1]
        if not isinstance(prompt, User):
            raise CallRefused(INVALID_PARAMS, prompt.reason if isinstance(prompt, Refused) else "no prompt", call.id)
        self._run = Run(call.id, str(prompt.uuid))
        return messages

    def cancel(self, call: RpcCall) -> list[Message]:
        if self._run is not None:
            self._cancels.append(call.id)
            return [Withdrawal(user_message_uuid=self._run.uuid)] if len(self._cancels) == 1 else []
        if not self._frames.prompts.is_running:
            refusal = CallRefused(NOT_RUNNING, "No run is in progress", call.id)
            return [Reply(lines=[refusal.encode()]), *self._frames.stop_background()]
        self._stops.append(call.id)
        return self._frames.read_control("interrupt") if len(self._stops) == 1 else []

    def status(self, call: RpcCall) -> list[Message]:
        return [Reply(lines=[result_line(call.id, self._status())])]

    def _status(self) -> Json:
        prompts = self._frames.prompts
        id = self._run.id if self._run is not None else self._last if prompts.is_running else None
        current = {} if id is None else {"request_id": id}
        is_running = self._run is not None or prompts.is_running
        return system("status", running=is_running, **current, session_id=prompts.session_id or None)

    # Out.

    def encode(self, message: Message) -> list[bytes]:
        is_taken = self._run is not None and self._frames.prompts.is_accepted(self._run.uuid)
        said = self._frames.frames(message)
        match message:
            case Result():
                return self._end(message, said, is_taken)
            case CommandLifecycle(command_uuid=uuid, state="cancelled") if self._run and self._run.uuid == uuid:
                text = "The run was cancelled before it began"
                return self._close([error_line(self._run.id, CANCELLED, text)], has_started=False)
            case SystemFault(message=str() as text, error={"type": "validation_error"}):
                return [error_line(None, INVALID_REQUEST, text)]
            case ControlResponse():
                said = [frame for frame in said if frame["subtype"] != "interrupted"]
        if isinstance(message, UNSENT):
            return []
        is_for_run = isinstance(message, ControlResponse) or not self._waits()
        id = self._run.id if self._run is not None and is_for_run else self._last
        return [result_line(id, frame) for frame in said]

    def _waits(self) -> bool:
        """Whether the run waits for a turn that is not its own."""
        return self._run is not None and self._run.uuid in self._frames.prompts.queued

    def _end(self, message: Result, said: list[Json], is_taken: bool) -> list[bytes]:
        """Handle the end of a turn: that of the run, or one that no run requested.

        `is_taken`: whether there was a session that took the prompt of the run.
        """
        run = self._run
        if run is None or (is_taken and run.uuid not in (message.user_message_uuids or ())):
            stops, self._stops = self._stops, []
            lines = [result_line(self._last, frame) for frame in said]
            return [*lines, *(result_line(id, self._status()) for id in stops)]
        code = FAULTS.get(str(message.fault_type)) if is_taken else INVALID_PARAMS
        if code is not None:
            return self._close([error_line(run.id, code, "\n".join(message.errors or ()))])
        return self._close([result_line(run.id, frame) for frame in said])

    def _close(self, lines: list[bytes], has_started: bool = True) -> list[bytes]:
        """The lines that end the run, then the answers to the calls that cancelled it."""
        if self._run is not None and has_started:
            self._last = self._run.id
        self._run = None
        cancels, self._cancels = self._cancels, []
        return [*lines, *(result_line(id, self._status()) for id in cancels)]


def read(line: bytes) -> RpcCall:
    """The call of a line. Raises CallRefused."""
    said = parse(line)
    if not isinstance(said, dict):
        raise CallRefused(INVALID_REQUEST, "a request must be a JSON object")
    id = said.get("id") if type(said.get("id")) in (str, int, float) else None
    if said.get("jsonrpc") != "2.0":
        raise CallRefused(INVALID_REQUEST, '`jsonrpc` must be "2.0"', id)
    if id is None:
        raise CallRefused(INVALID_REQUEST, "`id` must be a string or a number")
    method, params = said.get("method"), said.get("params", {})
    if not isinstance(method, str):
        raise CallRefused(INVALID_REQUEST, "`method` must be a string", id)
    if method not in METHODS:
        raise CallRefused(METHOD_NOT_FOUND, f"unknown method {method!r} (choose from {', '.join(METHODS)})", id)
    if not isinstance(params, dict):
        raise CallRefused(INVALID_PARAMS, "`params` must be an object", id)
    return RpcCall(id, method, params)


def parse(line: bytes) -> Any:
    """Raises CallRefused."""
    if is_too_deep(line):
        raise CallRefused(PARSE_ERROR, f"the line is nested deeper than {NESTING_CAP} levels")
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        mended = replace_lone_surrogates(line)
        if mended is not None:
            return parse(mended)
        raise CallRefused(PARSE_ERROR, f"the line is not JSON: {exc}") from None


def result_line(id: Id, frame: Json) -> bytes:
    return encode_json({"jsonrpc": "2.0", "id": id, "result": frame})


def error_line(id: Id, code: int, text: str, **more: Any) -> bytes:
    return encode_json({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text, **more}})


METHODS: dict[str, Callable[[JsonRpcDialect, RpcCall], list[Message]]] = {
    "run": JsonRpcDialect.run,
    "cancel": JsonRpcDialect.cancel,
    "status": JsonRpcDialect.status,
}
