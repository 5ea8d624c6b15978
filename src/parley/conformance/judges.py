"""The conditions of single checks, which no function of `conditions.py` expresses.

See also: `invariants.py` for what holds in every scenario.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from parley.conformance.conditions import require_field, require_fields
from parley.conformance.driver import MODEL, SECRET, read_body
from parley.conformance.scenario_log import ScenarioLog, need
from parley.protocol.base import Json

THOUGHT = "A greeting is wanted."
ANSWER = "The answer is 42."
PROMPT_ID = "00000000-0000-4000-8000-000000000001"
CHOSEN = "11111111-2222-4333-8444-555555555555"
CACHE_MARKER = re.compile(r", 'cache_control': \{[^}]*\}")


# Turns, and the stream of the model.


def init_first(log: ScenarioLog) -> None:
    kinds = ["init" if line.get("subtype") == "init" else line["type"] for line in log.received()]
    kept = [kind for kind in kinds if kind in ("init", "assistant", "result")]
    starts = [kept[0:1], kept[kept.index("result") + 1 :][:1] if "result" in kept else []]
    need(starts == [["init"], ["init"]] and kept.count("init") == 2, kept)


def order(log: ScenarioLog) -> None:
    wanted = ["control_response", "system/init", "assistant", "result"]
    kinds = [entry.kind for entry in log.entries if not entry.sent and entry.kind in wanted]
    short = [kind for place, kind in enumerate(kinds) if not place or kinds[place - 1] != kind]
    need(short == [*wanted, *wanted[1:]], short)


def thinking(log: ScenarioLog) -> None:
    blocks = log.blocks("thinking")
    need(len(blocks) == 1 and blocks[0].get("thinking") == THOUGHT, f"{blocks}; {log.summary()}")
    require_field(blocks[0], "signature", "s")


def usage_of_model(log: ScenarioLog, **fields: int) -> None:
    """The entry of the model in `modelUsage` of the last result has these counts."""
    found = require_field(log.last("result"), "modelUsage", "o")
    entries = [value for key, value in found.items() if key.startswith(MODEL) and isinstance(value, dict)]
    need(len(entries) == 1 and {name: entries[0].get(name) for name in fields} == fields, found)


def costs_add_up(log: ScenarioLog) -> None:
    """The cost of each result is the sum of those of the models, and grows with each turn."""
    costs = [require_field(line, "total_cost_usd", "n") for line in log.all("result")]
    sums = [sum(entry["costUSD"] for entry in line["modelUsage"].values()) for line in log.all("result")]
    need(costs == sorted(set(costs)) and costs[0] > 0, costs)
    need(all(abs(cost - total) < 1e-9 for cost, total in zip(costs, sums, strict=True)), (costs, sums))


def durations_are_possible(log: ScenarioLog) -> None:
    results = [entry for entry in log.entries if entry.kind == "result" and entry.message is not None]
    need(results, log.summary())
    for entry in results:
        total, api = (require_field(entry.message or {}, name, "n") for name in ("duration_ms", "duration_api_ms"))
        need(0 <= total <= entry.seconds * 1000 and api >= 0, (total, api, entry.seconds))


def prefixes(log: ScenarioLog) -> None:
    """Each request begins with the messages of the one before it; system and tools are the same."""
    bodies = log.main_requests()
    need(len(bodies) > 1, f"{len(bodies)} requests; {log.summary()}")
    for before, after in pairwise(bodies):
        for field in ("system", "tools", "messages"):
            old, new = ([CACHE_MARKER.sub("", str(part)) for part in body.get(field) or ()] for body in (before, after))
            changed = next((at for at, part in enumerate(old) if part not in new[at : at + 1]), None)
            need(changed is None, f"`{field}` has changed: {old[changed or 0]}")


def caches_for_an_hour(log: ScenarioLog) -> None:
    markers = CACHE_MARKER.findall(str(log.main_requests()))
    need(markers and all("'ttl': '1h'" in marker for marker in markers), markers or log.summary())


def sandbox_held(log: ScenarioLog) -> None:
    """A command wrote in its folder and not out of it; or it did not run, and the client or the model was told why."""
    need("../outside.txt" not in log.files, "the command wrote out of its folder")
    said = log.stderr + str(log.received())
    need("inside.txt" in log.files or "sandbox" in said.lower(), log.summary())


def replays(log: ScenarioLog, *prompts: str) -> None:
    """The replayed user lines are these prompts."""
    found = [line["message"]["content"] for line in log.all("user") if line.get("isReplay") is True]
    need(found == list(prompts), found)


def keeps_answer(log: ScenarioLog, *kinds: str) -> None:
    """The first answer in the last request has blocks of these types; it begins with the thinking and its signature."""
    answers = [each["content"] for each in log.main_requests()[-1]["messages"] if each["role"] == "assistant"]
    need(answers and [block["type"] for block in answers[0]] == list(kinds), answers[:1])
    need(answers[0][0].get("thinking") == THOUGHT and answers[0][0].get("signature"), answers[:1])


def init_hides_the_key(log: ScenarioLog) -> None:
    need(SECRET not in str(log.first("system/init")), "the key is in system/init")


def event_order(log: ScenarioLog) -> None:
    kinds = [str(line["event"].get("type")) for line in log.all("stream_event") if isinstance(line.get("event"), dict)]
    kinds = [kind for kind in kinds if kind != "ping"]
    need(kinds[:1] == ["message_start"] and kinds[-2:] == ["message_delta", "message_stop"], kinds or log.summary())
    inner = [kind.removeprefix("content_block_") for kind in kinds[1:-2]]
    open_blocks = 0
    for kind in inner:
        open_blocks += {"start": 1, "stop": -1}.get(kind, 0)
        need(open_blocks in (0, 1), kinds)
    need(open_blocks == 0 and inner.count("start") == 2, kinds)


def deltas_join(log: ScenarioLog) -> None:
    deltas = [line["event"].get("delta") or {} for line in log.all("stream_event") if isinstance(line["event"], dict)]
    joined = "".join(str(delta.get("text", "")) for delta in deltas if delta.get("type") == "text_delta")
    need(joined, f"no text deltas; {log.summary()}")
    need(log.texts() == [joined], {"deltas": joined, "assistant": log.texts()})
    thought = "".join(str(delta.get("thinking", "")) for delta in deltas if delta.get("type") == "thinking_delta")
    need(thought == THOUGHT, thought)


# The command line.


def stderr_has_text(log: ScenarioLog) -> None:
    need(log.stderr.strip(), f"nothing on stderr; {log.summary()}")


def output_says(log: ScenarioLog, text: str) -> None:
    """The text is on stdout or stderr."""
    need(text in log.output() + log.stderr, log.output() + log.stderr or log.summary())


def sends_no(log: ScenarioLog, kind: str) -> None:
    """No request has a content block of this type."""
    need(
        all(f"'type': '{kind}'" not in str(body.get("messages")) for body in log.main_requests()), f"`{kind}` was sent"
    )


def no_file_has(log: ScenarioLog, *texts: str) -> None:
    """No file that the scenario looked at has one of these texts."""
    found = [file.path for files in log.looks.values() for file in files if any(text in file.text for text in texts)]
    need(not found, f"found in {found}")


def json_is_printed(log: ScenarioLog) -> None:
    body = read_body(log.output().encode())
    need(body is not None and body.get("type") == "result" and body.get("result") == ANSWER, log.output())


def version_is_printed(log: ScenarioLog) -> None:
    for run in (0, 1):
        need(re.match(r"\d+\.\d+\.\d+", log.output(run)), f"{log.output(run)!r}; {log.summary()}")
        need(log.runs[run].exit_code == 0, f"exit code {log.runs[run].exit_code}")


def unknown_command_is_an_error(log: ScenarioLog) -> None:
    need(not log.told_model("/no-such:command"), "the command was sent to the model")
    found = log.all("result", run=0)
    need(len(found) == 1 and found[0].get("is_error") is True, log.summary(0))
    need(log.told_model("/etc/hosts is odd") and log.runs[1].exit_code == 0, log.summary(1))


def system_is_long(log: ScenarioLog) -> None:
    need(len(str(log.main_requests()[0].get("system"))) > 200, "the default prompt is missing")


def no_thinking(log: ScenarioLog) -> None:
    found = log.main_requests()[0].get("thinking") if log.main_requests() else None
    need(found is None or (isinstance(found, dict) and found.get("type") == "disabled"), found)


def cost_is_over_budget(log: ScenarioLog) -> None:
    need(require_field(log.last("result"), "total_cost_usd", "n") > 0.5, log.last("result"))


def result_says_why(log: ScenarioLog) -> None:
    line = log.last("result")
    need(line.get("result") or line.get("errors"), line)


# Tools.


def engine_runs(log: ScenarioLog) -> None:
    results = [line for line in log.all("user") if "tool_result" in str(line.get("message"))]
    need(len(results) == 6, f"{len(results)} lines with results; {log.summary()}")
    sent = str(log.main_requests()[-1].get("messages"))
    need("toolu_read" in sent and "toolu_todo" in sent, "the results were not sent to the model")


def calls_have_own_lines(log: ScenarioLog) -> None:
    need(log.result_line("toolu_one") is not log.result_line("toolu_two"), "they are in one line")


def requests_are_short(log: ScenarioLog) -> None:
    need(all(len(str(body)) < 1 << 20 for body in log.requests), "the whole output was sent")


def parent_is_named(log: ScenarioLog) -> None:
    parents: dict[str, object] = {}
    for line in [*log.all("assistant"), *log.all("user")]:
        for block in line["message"]["content"] if isinstance(line["message"]["content"], list) else []:
            key = str(block.get("id") or block.get("tool_use_id") or block.get("text"))
            parents.setdefault(key, line.get("parent_tool_use_id"))
    need(parents.get("toolu_sub") == "toolu_agent", parents)
    need(parents.get("toolu_agent", "?") is None and parents.get("ok", "?") is None, parents)


def one_task(log: ScenarioLog) -> None:
    started, ended = log.first("system/task_started"), log.first("system/task_notification")
    need(started.get("task_id") == ended.get("task_id"), (started, ended))


# Control requests and interrupts.


def rewind_off(log: ScenarioLog) -> None:
    answer = log.reply("rewind off")
    is_refused = answer.get("subtype") == "error" or (answer.get("response") or {}).get("canRewind") is False
    need(is_refused, answer)


def answered_during_turn(log: ScenarioLog) -> None:
    end = log.index(log.result_line("toolu_sleep"))
    answers = [log.index(line) for line in log.all("control_response")]
    need(len(answers) == 3 and max(answers) < end, f"answers at {answers}, the tool's result at {end}")


def replayed(log: ScenarioLog) -> None:
    found = [line for line in log.all("user") if line.get("isReplay") is True]
    need(len(found) == 1 and found[0].get("uuid") == PROMPT_ID, f"{found}; {log.summary()}")
    need("go" in str(found[0].get("message")), found)


def states_for_sdks(log: ScenarioLog) -> None:
    lines = log.all("system/session_state_changed", 0)
    need([line.get("state") for line in lines] == ["running", "requires_action", "running", "idle"], lines)
    need(all(line.get("sdk_host_only") is True for line in lines), lines)
    need(log.index(lines[-1]) > log.index(log.first("result", 0)), "idle came before the result")


def states_for_all(log: ScenarioLog) -> None:
    lines = log.all("system/session_state_changed", 1)
    need([line.get("state") for line in lines] == ["running", "idle"], f"{lines}; {log.summary(1)}")
    need(not any(line.get("sdk_host_only") for line in lines), lines)


def compacting_status(log: ScenarioLog) -> None:
    statuses = [line.get("status", "?") for line in log.all("system/status")]
    need(statuses[:2] == ["compacting", None], statuses)


def interrupt_is_answered_first(log: ScenarioLog) -> None:
    wanted = log.labels["interrupt"]
    answer = next(line for line in log.all("control_response") if line["response"]["request_id"] == wanted)
    need(log.index(answer) < log.index(log.first("result")), "the interrupt was answered after the result")


def withdrawn(log: ScenarioLog) -> None:
    asked = log.first("control_request/can_use_tool")
    need(log.first("control_cancel_request").get("request_id") == asked.get("request_id"), log.summary())


def queued_in_order(log: ScenarioLog) -> None:
    sent = str([body.get("messages") for body in log.main_requests()])
    need(sent.index("QUEUED-ONE") < sent.index("QUEUED-TWO"), "the order changed")


def nothing_is_said(log: ScenarioLog) -> None:
    need(not log.received(), log.summary())


# Permissions and hooks.


def suggestions(log: ScenarioLog) -> None:
    found = [request.get("permission_suggestions") for request in log.asked("can_use_tool")]
    given = [each for each in found if each is not None]
    need(given, found)
    for each in given:
        need(isinstance(each, list) and all(isinstance(one, dict) and "type" in one for one in each), each)


def hook_order(log: ScenarioLog) -> None:
    names = [str(request.get("callback_id")).removeprefix("hook_") for request in log.asked("hook_callback")]
    kept = [name for name in names if name not in ("PermissionRequest", "Notification")]
    wanted = ["UserPromptSubmit", "PreToolUse", "PostToolUse", "PreToolUse", "PostToolUseFailure", "Stop"]
    need(kept == wanted, names)
    need("PermissionRequest" in names, names)


def hook_line(log: ScenarioLog, kind: str) -> Json:
    lines = [line for line in log.all(kind) if line.get("hook_event") == "PreToolUse"]
    need(len(lines) == 1, f"{lines}; {log.summary()}")
    return lines[0]


def hook_started(log: ScenarioLog) -> None:
    require_fields(hook_line(log, "system/hook_started"), "hook_id:s", "hook_name:s", "hook_event:s")


def hook_response(log: ScenarioLog) -> None:
    line = hook_line(log, "system/hook_response")
    need(line.get("outcome") == "success" and "hooked" in str(line.get("stdout")), line)
    require_fields(line, "output:s", "stdout:s", "stderr:s")


# MCP servers.


def bridge(log: ScenarioLog) -> None:
    asked = log.asked("mcp_message")
    methods = [str((request.get("message") or {}).get("method")) for request in asked]
    wanted = ["initialize", "notifications/initialized", "tools/list", "tools/call"]
    need([name for name in methods if name in wanted] == wanted, f"{methods}; {log.summary()}")
    need(all(request.get("server_name") == "calc" for request in asked), asked)


def servers_in_init(log: ScenarioLog) -> Json:
    """The state of each server, as `system/init` tells it. Raises Mismatch."""
    return {server.get("name"): server.get("status") for server in log.first("system/init").get("mcp_servers") or []}


def init_names_calc(log: ScenarioLog) -> None:
    need(list(servers_in_init(log)) == ["calc"], servers_in_init(log))


def last_is_pending(log: ScenarioLog) -> None:
    need(servers_in_init(log).get("last") == "pending", servers_in_init(log))


def always_loaded(log: ScenarioLog) -> None:
    tools = {tool.get("name"): tool for tool in log.main_requests()[0].get("tools") or []}
    need("mcp__calc__add" in tools and not tools["mcp__calc__add"].get("defer_loading"), sorted(map(str, tools)))
    need(tools.get("mcp__other__add", {"defer_loading": True}).get("defer_loading"), tools.get("mcp__other__add"))


# Sessions.


def bad_id(log: ScenarioLog) -> None:
    need(len(log.runs) == 2, log.summary())
    run = log.runs[1]
    need(run.exit_code not in (0, None) and run.stderr.strip() and not run.entries, f"{run.exit_code} {run.stderr!r}")


def transcript_file(log: ScenarioLog) -> None:
    folder = "".join(char if char.isalnum() else "-" for char in log.cwd)
    wanted = f"home/.claude/projects/{folder}/{CHOSEN}.jsonl"
    found = log.looks["transcripts"]
    need([file.path for file in found] == [wanted], f"{found}, expected {wanted}; {log.summary()}")
    need(found[0].mode == 0o600, f"mode {found[0].mode:o}")


def transcript_entries(log: ScenarioLog) -> None:
    lines = [line for file in log.looks["transcripts"] for line in file.text.splitlines()]
    entries = [entry for line in lines if (entry := read_body(line.encode())) is not None]
    entries = [entry for entry in entries if entry.get("type") in ("user", "assistant")]
    need(len(entries) >= 4, f"{len(entries)} entries; {log.summary()}")
    for entry in entries:
        require_fields(entry, "uuid:s", "parentUuid:s0", "sessionId:s", "timestamp:s", "cwd:s", "version:s")
        require_fields(entry, "isSidechain:b", "message:o")
    need("TRANSCRIPT-PROMPT" in json.dumps(entries), "the prompt is not in the transcript")


def mirrored(log: ScenarioLog) -> None:
    line = log.first("transcript_mirror")
    need(Path(require_field(line, "filePath", "s")).is_absolute(), line)
    entries = [entry for each in log.all("transcript_mirror") for entry in require_field(each, "entries", "a")]
    need("MIRRORED-PROMPT" in json.dumps(entries), entries)
    need(log.index(line) < log.index(log.first("result")), "the mirror came after the result")


def cut_refused(log: ScenarioLog) -> None:
    need(len(log.runs) == 3, log.summary())
    said = f"{log.runs[2].stderr} {json.dumps(log.received(2))}"
    need("Resume rejected by --resume-drops-turn:" in said, said[-500:])


# Dialects.


def c_tool_result(log: ScenarioLog) -> None:
    block = require_field(log.first("system/tool_result"), "tool_result", "o")
    need(block.get("tool_use_id") == "toolu_c" and "alpha" in str(block.get("content")), block)
    need([call.get("name") for call in log.blocks("tool_use")][:1] == ["read"], log.blocks("tool_use"))


def d_run(log: ScenarioLog) -> None:
    lines = [line for line in log.received() if line.get("id") == 1]
    need(lines and all(line.get("jsonrpc") == "2.0" for line in lines), log.received()[:3])
    need((lines[-1].get("result") or {}).get("type") == "result", lines[-1])
    need("done" in str(lines[-1]) or "done" in str(lines[-2]), lines[-2:])


def d_errors(log: ScenarioLog) -> None:
    codes: dict[Any, Any] = {
        line.get("id"): (line.get("error") or {}).get("code") for line in log.received() if "error" in line
    }
    need(codes == {2: -32001, 3: -32601}, codes)
