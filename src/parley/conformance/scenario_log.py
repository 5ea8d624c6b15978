"""What both sides said in one scenario, and questions about it.

    log.first("system/init")["model"]
    log.answer("initialize")["commands"]
    log.tool_result("toolu_1")

A question that the log cannot answer raises `Mismatch`, which says what is there instead. A check that asks it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from parley.protocol.base import Json, Struct

SHOWN_CHARS = 600


class Mismatch(Exception):
    """The engine did not do what a check expects. The text says what came instead."""


class LogEntry(Struct, kw_only=True):
    """A line, in either direction."""

    sent: bool
    seconds: float
    raw: str
    message: Json | None = None
    """None if the line is not a JSON object."""

    @property
    def kind(self) -> str:
        return kind_of(self.message)


class EngineRun(Struct, kw_only=True):
    """One process of the engine."""

    argv: list[str]
    entries: list[LogEntry] = []
    exit_code: int | None = None
    """None if it had to be killed."""
    stderr: str = ""


class FileLook(Struct, frozen=True):
    """A file or folder that a scenario looked at."""

    path: str
    """Relative to the folder of the scenario."""
    mode: int
    text: str


class ScenarioLog(Struct, kw_only=True):
    """One scenario."""

    scenario: str
    runs: list[EngineRun] = []
    missed: list[str] = []
    """What did not come before its deadline."""
    requests: list[Json] = []
    """The bodies that the model received."""
    headers: list[dict[str, str]] = []
    files: dict[str, str] = {}
    """The text of the files that the scenario looked at afterwards; a missing file has no entry."""
    looks: dict[str, list[FileLook]] = {}
    """What `EngineDriver.look` found, by label."""
    cwd: str = ""
    labels: dict[str, str] = {}
    """The ids of the control requests that were sent, by label."""
    leftovers: list[str] = []
    """The processes that survived the engine."""
    skipped: str = ""
    """Why the scenario could not be played."""

    # Lines.

    @property
    def entries(self) -> list[LogEntry]:
        return [entry for run in self.runs for entry in run.entries]

    def received(self, run: int | None = None) -> list[Json]:
        """The messages of the engine, of one of its processes or of all."""
        runs = self.runs if run is None else self.runs[run : run + 1]
        entries = (entry for each in runs for entry in each.entries)
        return [entry.message for entry in entries if not entry.sent and entry.message is not None]

    def received_by_run(self) -> list[list[Json]]:
        return [self.received(run) for run in range(len(self.runs))]

    def all(self, kind: str, run: int | None = None) -> list[Json]:
        """The lines of a kind, or the objects that `SOURCES` names: `answer:LABEL`, `hook:EVENT`, ..."""
        source, colon, name = kind.partition(":")
        if colon:
            return SOURCES[source](self, name)
        return [message for message in self.received(run) if matches(message, kind)]

    def first(self, kind: str, run: int | None = None) -> Json:
        """Raises Mismatch."""
        return self.nth(kind, 0, run)

    def last(self, kind: str, run: int | None = None) -> Json:
        """Raises Mismatch."""
        return self.nth(kind, -1, run)

    def nth(self, kind: str, number: int, run: int | None = None) -> Json:
        """Raises Mismatch."""
        found = self.all(kind, run)
        if not -len(found) <= number < len(found):
            raise Mismatch(f"{len(found)} lines `{kind}`; {self.summary(run)}")
        return found[number]

    def index(self, message: Json) -> int:
        """The place of a line among all lines of both sides."""
        return next(place for place, entry in enumerate(self.entries) if entry.message is message)

    def summary(self, run: int | None = None) -> str:
        """The kinds of the lines that came, and what did not come."""
        kinds: list[str] = []
        for message in self.received(run):
            kind = kind_of(message)
            if not kinds or kinds[-1] != kind:
                kinds.append(kind)
        came = ", ".join(kinds) or "nothing"
        codes = [str(each.exit_code) for each in self.runs]
        ended = f"exit code {', '.join(codes)}" if codes else "not started"
        said = self.stderr.strip().splitlines()[-1:] if not kinds else []
        return "; ".join([came, *self.missed, ended, *said])[:SHOWN_CHARS]

    # Content.

    def blocks(self, kind: str, run: int | None = None) -> list[Json]:
        """The content blocks of one type, of all assistant and user lines."""
        return [block for message in self.received(run) for block in content_blocks(message) if block["type"] == kind]

    def texts(self, run: int | None = None) -> list[str]:
        """The texts of assistant lines."""
        lines = self.all("assistant", run)
        return [block["text"] for line in lines for block in content_blocks(line) if block["type"] == "text"]

    def tool_result(self, tool_use_id: str) -> Json:
        """Raises Mismatch."""
        found = [block for block in self.blocks("tool_result") if block.get("tool_use_id") == tool_use_id]
        if len(found) != 1:
            raise Mismatch(f"{len(found)} results of the call {tool_use_id}; {self.summary()}")
        return found[0]

    def result_line(self, tool_use_id: str) -> Json:
        """The user line with the result of a call. Raises Mismatch."""
        block = self.tool_result(tool_use_id)
        return next(line for line in self.all("user") if any(each is block for each in content_blocks(line)))

    # Control requests.

    def reply(self, label: str) -> Json:
        """The whole answer to a control request that was sent. Raises Mismatch."""
        wanted = self.labels.get(label)
        if wanted is None:
            raise Mismatch(f"`{label}` could not be sent; {self.summary()}")
        for message in self.all("control_response"):
            response = message.get("response")
            if isinstance(response, dict) and response.get("request_id") == wanted:
                return response
        raise Mismatch(f"no answer to `{label}` with the id {wanted}; {self.summary()}")

    def answer(self, label: str) -> Json:
        """The payload of a successful answer. Raises Mismatch."""
        response = self.reply(label)
        if response.get("subtype") != "success":
            raise Mismatch(f"the answer to `{label}` is {shown(response)}")
        return response.get("response") or {}

    def asked(self, subtype: str, run: int | None = None) -> list[Json]:
        """The control requests of the engine, of one subtype."""
        return [line["request"] for line in self.all(f"control_request/{subtype}", run)]

    def tool_output(self, tool_use_id: str) -> Json:
        """The structured output of a successful call, its `tool_use_result`. Raises Mismatch."""
        need(self.tool_result(tool_use_id).get("is_error") is not True, self.tool_result(tool_use_id))
        found = self.result_line(tool_use_id).get("tool_use_result")
        if not isinstance(found, dict):
            raise Mismatch(f"tool_use_result is {shown(found)}")
        return found

    def hooks(self, event: str) -> list[Json]:
        """The inputs of the hook callbacks of an event."""
        inputs = [request.get("input") for request in self.asked("hook_callback")]
        return [each for each in inputs if isinstance(each, dict) and each.get("hook_event_name") == event]

    # The model.

    def main_requests(self) -> list[Json]:
        """The requests with a conversation. Some engines also probe a model with one token."""
        return [body for body in self.requests if body.get("max_tokens") != 1 and body.get("messages")]

    def told_model(self, text: str) -> bool:
        """Whether a request of the engine contained the text."""
        return any(text in each for body in self.requests for each in strings(body))

    def output(self, run: int = 0) -> str:
        """The lines of stdout of a process."""
        return "\n".join(entry.raw for entry in self.runs[run].entries if not entry.sent)

    @property
    def exit_code(self) -> int | None:
        return self.runs[-1].exit_code if self.runs else None

    @property
    def stderr(self) -> str:
        return "\n".join(run.stderr for run in self.runs)


SOURCES: dict[str, Callable[[ScenarioLog, str], list[Json]]] = {
    "ask": lambda log, subtype: log.asked(subtype),
    "hook": lambda log, event: log.hooks(event),
    "answer": lambda log, label: [log.answer(label)],
    "output": lambda log, tool_use_id: [log.tool_output(tool_use_id)],
    "request": lambda log, _: log.main_requests(),
}
"""What is not a line: requests of the engine, inputs of hooks, answers, outputs of calls, requests to the model."""


def kind_of(message: Json | None) -> str:
    """`system/init`, `control_request/can_use_tool`, `result`, ..."""
    if message is None:
        return "(not JSON)"
    name = str(message.get("type"))
    if name == "system":
        return f"system/{message.get('subtype')}"
    if name == "control_request":
        request = message.get("request")
        return f"control_request/{request.get('subtype') if isinstance(request, dict) else None}"
    return name


def matches(message: Json, kind: str) -> bool:
    return kind in (kind_of(message), message.get("type"))


def content_blocks(message: Json) -> list[Json]:
    body = message.get("message")
    content = body.get("content") if isinstance(body, dict) else None
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict) and isinstance(block.get("type"), str)]


def strings(value: Any) -> Iterator[str]:
    """All strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)


def shown(value: Any) -> str:
    """A value, short enough for a report."""
    import json

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)} characters)"


def need(condition: object, came: object) -> None:
    """Raises Mismatch with what came, unless the condition holds."""
    if not condition:
        raise Mismatch(shown(came))
