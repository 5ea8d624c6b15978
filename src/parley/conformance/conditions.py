"""Conditions on the log of a scenario, for the rows of the tables of checks (`registry.py`).

    that=[not_made("x.txt"), tool_fails("toolu_touch", "Not on a Tuesday"), ends_with(result="ok")]

Each function makes a condition: a function of the log that raises `Mismatch` with what came instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.conformance.scenario_log import Mismatch, ScenarioLog, need, shown
from parley.protocol.base import Json

Condition = Callable[[ScenarioLog], None]

TYPES: dict[str, tuple[type, ...]] = {
    "s": (str,), "n": (int, float), "b": (bool,), "o": (dict,), "a": (list,), "0": (type(None),),
}  # fmt: skip
MISSING = "(missing)"


# Lines of the engine.


def line_has(kind: str, at: int = 0, /, **fields: Any) -> Condition:
    """There is such a line (the first one, or the one at a place), and it has these fields."""

    def judge(log: ScenarioLog) -> None:
        need_fields(log.nth(kind, at), fields, log.summary())

    return judge


def ends_with(**fields: Any) -> Condition:
    """There is a result, and the last one has these fields."""
    return line_has("result", -1, **fields)


def first_line(kind: str, *fields: str) -> Condition:
    """The first line of a kind has fields of a type: `first_line("system/error", "message:s")`."""
    return lambda log: require_fields(log.first(kind), *fields)


def all_lines(kind: str, *fields: str) -> Condition:
    """There are lines of a kind, and each has these fields."""

    def judge(log: ScenarioLog) -> None:
        log.first(kind)
        for line in log.all(kind):
            require_fields(line, *fields)

    return judge


def lines_are(kind: str, count: int) -> Condition:
    def judge(log: ScenarioLog) -> None:
        found = len(log.all(kind))
        need(found == count, f"{found} lines `{kind}`; {log.summary()}")

    return judge


def lines_have(kind: str, field: str, values: list[Any]) -> Condition:
    """The values of a field in all lines of a kind, in order."""

    def judge(log: ScenarioLog) -> None:
        found = [line.get(field) for line in log.all(kind)]
        need(found == values, f"{shown(found)}; {log.summary()}")

    return judge


def some_line(kind: str, **fields: Any) -> Condition:
    """One of the lines of a kind has these fields."""

    def judge(log: ScenarioLog) -> None:
        found = [{name: line.get(name) for name in fields} for line in log.all(kind)]
        need(fields in found, f"{shown(found)}; {log.summary()}")

    return judge


def init_lists(field: str, *names: str) -> Condition:
    """A list of `system/init` has these names."""

    def judge(log: ScenarioLog) -> None:
        found = log.first("system/init").get(field) or []
        need(set(names) <= set(found), found)

    return judge


def says(*texts: str) -> Condition:
    """The assistant says these texts, among others."""
    return lambda log: need(set(texts) <= set(log.texts()), log.texts())


def exits_with(*codes: int) -> Condition:
    return lambda log: need(log.exit_code in codes, log.summary())


# Tools, files and permissions.


def tool_says(id: str, *texts: str) -> Condition:
    """The call has a result, which contains these texts."""

    def judge(log: ScenarioLog) -> None:
        found = log.tool_result(id)
        need(all(text in str(found.get("content")) for text in texts), found)

    return judge


def tool_fails(id: str, *texts: str) -> Condition:
    def judge(log: ScenarioLog) -> None:
        need(log.tool_result(id).get("is_error") is True, log.tool_result(id))
        tool_says(id, *texts)(log)

    return judge


def tool_succeeds(id: str, *texts: str) -> Condition:
    def judge(log: ScenarioLog) -> None:
        need(log.tool_result(id).get("is_error") is not True, log.tool_result(id))
        tool_says(id, *texts)(log)

    return judge


def tool_output(id: str, *fields: str) -> Condition:
    """`tool_use_result` of a call has fields of a type: `tool_output("toolu_read", "type:s")`."""
    return lambda log: require_fields(output_of(log, id), *fields)


def made(*names: str) -> Condition:
    """These files exist, among those that the scenario looked at."""
    return lambda log: need(set(names) <= set(log.files), f"files: {sorted(log.files)}; {log.summary()}")


def not_made(*names: str) -> Condition:
    return lambda log: need(not set(names) & set(log.files), f"files: {sorted(log.files)}; {log.summary()}")


def only_made(*names: str) -> Condition:
    return lambda log: need(sorted(log.files) == sorted(names), f"files: {sorted(log.files)}; {log.summary()}")


def file_is(name: str, text: str) -> Condition:
    return lambda log: need(log.files.get(name) == text, log.files)


def asks_with(subtype: str, field: str, values: list[Any]) -> Condition:
    """The values of a field in the control requests of the engine, in order."""

    def judge(log: ScenarioLog) -> None:
        found = [request.get(field) for request in log.asked(subtype)]
        need(found == values, f"{shown(found)}; {log.summary()}")

    return judge


def asks_for(*tool_use_ids: str) -> Condition:
    """The client is asked for permission for these calls, and for no other."""
    return asks_with("can_use_tool", "tool_use_id", list(tool_use_ids))


def denials_are(count: int) -> Condition:
    """How many denied calls the result lists."""
    return lambda log: need(len(log.last("result").get("permission_denials") or []) == count, log.last("result"))


def hook_called(event: str, *present: str, **fields: Any) -> Condition:
    """A hook is called once, with these fields."""

    def judge(log: ScenarioLog) -> None:
        calls = log.hooks(event)
        need(len(calls) == 1, f"{len(calls)} calls of {event}; {log.summary()}")
        need(all(calls[0].get(name) not in (None, "") for name in present), calls[0])
        need_fields(calls[0], fields, shown(calls[0]))

    return judge


# Control requests of the client.


def answered(*labels: str) -> Condition:
    """These requests were answered with success."""

    def judge(log: ScenarioLog) -> None:
        for label in labels:
            log.answer(label)

    return judge


def refused(*labels: str) -> Condition:
    def judge(log: ScenarioLog) -> None:
        for label in labels:
            reply = log.reply(label)
            need(reply.get("subtype") == "error" and isinstance(reply.get("error"), str), reply)

    return judge


def answered_with(label: str, **fields: Any) -> Condition:
    return lambda log: need_fields(log.answer(label), fields, log.summary())


def answer_has(label: str, *fields: str) -> Condition:
    return lambda log: require_fields(log.answer(label), *fields)


def server_is(name: str, status: str, label: str = "mcp_status") -> Condition:
    """The state of an MCP server, as mcp_status tells it."""

    def judge(log: ScenarioLog) -> None:
        servers = log.answer(label).get("mcpServers") or []
        need([server.get("status") for server in servers if server.get("name") == name] == [status], servers)

    return judge


# The model.


def told(*texts: str) -> Condition:
    """These texts reached the model."""

    def judge(log: ScenarioLog) -> None:
        for text in texts:
            need(log.told_model(text), f"the model was not sent {text!r}; {log.summary()}")

    return judge


def not_told(*texts: str) -> Condition:
    def judge(log: ScenarioLog) -> None:
        for text in texts:
            need(not log.told_model(text), f"the model was sent {text!r}; {log.summary()}")

    return judge


def last_request(*texts: str, lacks: str = "") -> Condition:
    """The messages of the last request to the model have these texts, and not another."""

    def judge(log: ScenarioLog) -> None:
        sent = str(log.main_requests()[-1]["messages"]) if log.main_requests() else ""
        need(all(text in sent for text in texts) and not (lacks and lacks in sent), sent or log.summary())

    return judge


def calls_no_model() -> Condition:
    return lambda log: need(not log.main_requests(), f"{len(log.main_requests())} model calls")


# Fields.


def output_of(log: ScenarioLog, id: str) -> Json:
    """The structured output of a successful call, its `tool_use_result`. Raises Mismatch."""
    tool_succeeds(id)(log)
    found = log.result_line(id).get("tool_use_result")
    if not isinstance(found, dict):
        raise Mismatch(f"tool_use_result is {shown(found)}")
    return found


def need_fields(value: Json, fields: Json, about: str) -> None:
    """Raises Mismatch unless the value has these fields. True is not 1."""
    found = {name: value.get(name, MISSING) for name in fields}
    same_kind = all(isinstance(found[name], bool) == isinstance(fields[name], bool) for name in fields)
    need(found == fields and same_kind, f"{shown(found)}; {about}")


def require_fields(value: Json, *fields: str) -> None:
    """`require_fields(answer, "categories:a", "model:s")`. Raises Mismatch."""
    for field in fields:
        require_field(value, *field.split(":"))


def require_field(value: Json, path: str, types: str) -> Any:
    """The value at a path, of one of the types. Raises Mismatch."""
    found: Any = value
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            if "?" in types:
                return None
            raise Mismatch(f"`{path}` is missing: {shown(value)}")
        found = found[name]
    wanted = tuple(each for letter in types if letter != "?" for each in TYPES[letter])
    if not isinstance(found, wanted) or (isinstance(found, bool) and bool not in wanted):
        raise Mismatch(f"`{path}` is {shown(found)}")
    return found
