"""The conditions that checks can need of the log of a scenario (`scenarios/*.toml`).

    need = [{ not_made = "x.txt" }, { tool_fails = ["toolu_touch", "a reason"] }, { ends_with = [], result = "ok" }]

Each function raises `Mismatch` with what came instead, unless the condition holds. A line is named by
its kind, or as `ScenarioLog.all` has it: `ask:can_use_tool`, `answer:LABEL`, ... A field can be a
path: `patch.status`, `permission_denials.0.tool_name`. Types are letters (`TYPES`): `s` for a string, `a0` for a list
or null, `A` for a list that is not empty; with `?` the field may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from parley.conformance.scenario_log import Mismatch, ScenarioLog, need, shown
from parley.protocol.base import Json

TYPES: dict[str, tuple[type, ...]] = {
    "s": (str,), "n": (int, float), "b": (bool,), "o": (dict,), "a": (list,), "0": (type(None),),
}  # fmt: skip
MISSING = "(missing)"


# Lines of the engine.


def line_has(log: ScenarioLog, kind: str, at: int = 0, run: int | None = None, /, **fields: Any) -> None:
    """There is such a line (the first one, or the one at a place), and it has these fields."""
    need_fields(log.nth(kind, at, run), fields, log.summary())


def line_differs(log: ScenarioLog, kind: str, at: int = 0, run: int | None = None, /, **fields: Any) -> None:
    """There is such a line, and these fields have other values."""
    line = log.nth(kind, at, run)
    for name, value in fields.items():
        need(find_path(line, name) != value, f"`{name}` is {shown(value)}")


def ends_with(log: ScenarioLog, **fields: Any) -> None:
    """There is a result, and the last one has these fields."""
    line_has(log, "result", -1, **fields)


def first_line(log: ScenarioLog, kind: str, *fields: str) -> None:
    """The first line of a kind has fields of a type: `first_line("system/error", "message:s")`."""
    require_fields(log.first(kind), *fields)


def last_line(log: ScenarioLog, kind: str, *fields: str) -> None:
    require_fields(log.last(kind), *fields)


def all_lines(log: ScenarioLog, kind: str, *fields: str) -> None:
    """There are lines of a kind, and each has these fields."""
    log.first(kind)
    for line in log.all(kind):
        require_fields(line, *fields)


def line_matches(log: ScenarioLog, kind: str, field: str, pattern: str) -> None:
    """A text of the first line of a kind is all of a regular expression."""
    text = str(find_path(log.first(kind), field))
    need(re.fullmatch(pattern, text), text)


def line_says(log: ScenarioLog, kind: str, field: str, *texts: str) -> None:
    """A field of the first line of a kind contains these texts, at any depth."""
    found = str(find_path(log.first(kind), field))
    need(all(text in found for text in texts), log.first(kind))


def lines_are(log: ScenarioLog, kind: str, count: int) -> None:
    found = len(log.all(kind))
    need(found == count, f"{found} lines `{kind}`; {log.summary()}")


def lines_have(log: ScenarioLog, kind: str, field: str, values: list[Any]) -> None:
    """The values of a field in all lines of a kind, in order."""
    found = [find_path(line, field) for line in log.all(kind)]
    need(found == values, f"{shown(found)}; {log.summary()}")


def some_line(log: ScenarioLog, kind: str, **fields: Any) -> None:
    """One of the lines of a kind has these fields."""
    found = [{name: line.get(name) for name in fields} for line in log.all(kind)]
    need(fields in found, f"{shown(found)}; {log.summary()}")


def init_lists(log: ScenarioLog, field: str, *names: str) -> None:
    """A list of names in `system/init` has these."""
    found = log.first("system/init").get(field) or []
    need(all(isinstance(name, str) for name in found) and set(names) <= set(found), found)


def init_lacks(log: ScenarioLog, field: str, *names: str) -> None:
    found = log.first("system/init").get(field) or []
    need(not set(names) & set(found), found)


def says(log: ScenarioLog, *texts: str) -> None:
    """The assistant says these texts, among others."""
    need(set(texts) <= set(log.texts()), log.texts())


def texts_are(log: ScenarioLog, *texts: str) -> None:
    """The assistant says these texts, and no other."""
    need(log.texts() == list(texts), log.texts())


def texts_lack(log: ScenarioLog, text: str) -> None:
    need(text not in log.texts(), log.texts())


def prints(log: ScenarioLog, text: str) -> None:
    """Stdout is this text."""
    need(log.output().strip() == text, f"{log.output()!r}; {log.summary()}")


def exits_with(log: ScenarioLog, *codes: int) -> None:
    need(log.exit_code in codes, log.summary())


def exits_with_error(log: ScenarioLog, run: int = -1) -> None:
    """The exit code is not 0, and the engine did not have to be killed."""
    need(log.runs[run].exit_code not in (0, None), f"exit code {log.runs[run].exit_code}")


# Tools, files and permissions.


def tool_says(log: ScenarioLog, id: str, *texts: str) -> None:
    """The call has a result, which contains these texts."""
    found = log.tool_result(id)
    need(all(text in str(found.get("content")) for text in texts), found)


def tool_fails(log: ScenarioLog, id: str, *texts: str) -> None:
    need(log.tool_result(id).get("is_error") is True, log.tool_result(id))
    tool_says(log, id, *texts)


def tool_succeeds(log: ScenarioLog, id: str, *texts: str) -> None:
    need(log.tool_result(id).get("is_error") is not True, log.tool_result(id))
    tool_says(log, id, *texts)


def lacks_call(log: ScenarioLog, id: str) -> None:
    need(all(block.get("id") != id for block in log.blocks("tool_use")), f"the call {id} was made")


def found(log: ScenarioLog, label: str, count: int, *texts: str) -> None:
    """`look` found so many files, with these contents."""
    files = log.looks.get(label, [])
    need(len(files) == count, f"{[file.path for file in files]}; {log.summary()}")
    need(not texts or [file.text for file in files] == list(texts), [file.text for file in files])


def made(log: ScenarioLog, *names: str) -> None:
    """These files exist, among those that the scenario looked at."""
    need(set(names) <= set(log.files), f"files: {sorted(log.files)}; {log.summary()}")


def not_made(log: ScenarioLog, *names: str) -> None:
    need(not set(names) & set(log.files), f"files: {sorted(log.files)}; {log.summary()}")


def only_made(log: ScenarioLog, *names: str) -> None:
    need(sorted(log.files) == sorted(names), f"files: {sorted(log.files)}; {log.summary()}")


def file_is(log: ScenarioLog, name: str, text: str) -> None:
    need(log.files.get(name) == text, log.files)


def asks_for(log: ScenarioLog, *tool_use_ids: str) -> None:
    """The client is asked for permission for these calls, and for no other."""
    lines_have(log, "ask:can_use_tool", "tool_use_id", list(tool_use_ids))


def denials_are(log: ScenarioLog, count: int) -> None:
    """How many denied calls the result lists."""
    need(len(log.last("result").get("permission_denials") or []) == count, log.last("result"))


def hook_called(log: ScenarioLog, event: str, *present: str, **fields: Any) -> None:
    """A hook is called once, with these fields."""
    calls = log.hooks(event)
    need(len(calls) == 1, f"{len(calls)} calls of {event}; {log.summary()}")
    need(all(calls[0].get(name) not in (None, "") for name in present), calls[0])
    need_fields(calls[0], fields, shown(calls[0]))


# Control requests of the client.


def answered(log: ScenarioLog, *labels: str) -> None:
    """These requests were answered with success."""
    for label in labels:
        log.answer(label)


def refused(log: ScenarioLog, *labels: str) -> None:
    for label in labels:
        reply = log.reply(label)
        need(reply.get("subtype") == "error" and isinstance(reply.get("error"), str), reply)


def server_is(log: ScenarioLog, name: str, status: str, label: str = "mcp_status") -> None:
    """The state of an MCP server, as mcp_status tells it."""
    servers = log.answer(label).get("mcpServers") or []
    need([server.get("status") for server in servers if server.get("name") == name] == [status], servers)


# The model.


def told(log: ScenarioLog, *texts: str) -> None:
    """These texts reached the model."""
    for text in texts:
        need(log.told_model(text), f"the model was not sent {text!r}; {log.summary()}")


def not_told(log: ScenarioLog, *texts: str) -> None:
    for text in texts:
        need(not log.told_model(text), f"the model was sent {text!r}; {log.summary()}")


def last_request(log: ScenarioLog, *texts: str, lacks: str = "") -> None:
    """The messages of the last request to the model have these texts, and not another."""
    sent = str(log.main_requests()[-1]["messages"]) if log.main_requests() else ""
    need(all(text in sent for text in texts) and not (lacks and lacks in sent), sent or log.summary())


def request_has(log: ScenarioLog, prompt: str, *texts: str, lacks: str = "") -> None:
    """The messages of the first request with a prompt at its end have these texts, and not another."""
    bodies = (body["messages"] for body in log.main_requests())
    sent = next((str(messages) for messages in bodies if prompt in str(messages[-2:])), "")
    need(sent, f"no request with {prompt!r}; {log.summary()}")
    need(all(text in sent for text in texts) and not (lacks and lacks in sent), sent)


def models_are(log: ScenarioLog, name: str, at: int | None = None) -> None:
    """The requests, or the one at a place, name this model."""
    models = [str(body.get("model")) for body in log.main_requests()]
    chosen = models if at is None else models[at:][:1]
    need(chosen and all(each.startswith(name) for each in chosen), models or log.summary())


def system_has(log: ScenarioLog, text: str, *, in_any: bool = False) -> None:
    """The text is in the system text of the first request, or of any one."""
    bodies = log.requests if in_any else log.main_requests()[:1]
    systems = [str(body.get("system")) for body in bodies]
    need(any(text in system for system in systems), systems or log.summary())


def header_has(log: ScenarioLog, name: str, text: str) -> None:
    """A header of a request to the model contains the text."""
    need(any(text in each.get(name, "") for each in log.headers), log.headers)


def offers(log: ScenarioLog, *names: str, lacks: Collection[str] = ()) -> None:
    """The first request has these tools, and not some others."""
    sent = {tool.get("name") for body in log.main_requests()[:1] for tool in body.get("tools", [])}
    need(set(names) <= sent and not set(lacks) & sent, sorted(map(str, sent)))


def calls_no_model(log: ScenarioLog) -> None:
    need(not log.main_requests(), f"{len(log.main_requests())} model calls")


# Fields.


def find_path(value: Any, path: str) -> Any:
    """The value at a path, with the numbers of items in lists; `MISSING` if there is none."""
    for name in path.split("."):
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return MISSING
    return value


def need_fields(value: Json, fields: Json, about: str) -> None:
    """Raises Mismatch unless the value has these fields. True is not 1."""
    found = {name: find_path(value, name) for name in fields}
    same_kind = all(isinstance(found[name], bool) == isinstance(fields[name], bool) for name in fields)
    need(found == fields and same_kind, f"{shown(found)}; {about}")


def require_fields(value: Json, *fields: str) -> None:
    """`require_fields(answer, "categories:a", "model:s")`. Raises Mismatch."""
    for field in fields:
        require_field(value, *field.split(":"))


def require_field(value: Json, path: str, types: str) -> Any:
    """The value at a path, of one of the types. Raises Mismatch."""
    found = find_path(value, path)
    if found is MISSING:
        if "?" in types:
            return None
        raise Mismatch(f"`{path}` is missing: {shown(value)}")
    wanted = tuple(each for letter in types.lower() if letter != "?" for each in TYPES[letter])
    is_empty = types.isupper() and not found
    if is_empty or not isinstance(found, wanted) or (isinstance(found, bool) and bool not in wanted):
        raise Mismatch(f"`{path}` is {shown(found)}")
    return found
