"""The built-in tools: what they do, what they return, and how calls fail."""

from __future__ import annotations

from parley.conformance.driver import BYPASS, EngineDriver
from parley.conformance.model import bash, say, use
from parley.conformance.registry import check, require_field, scenario
from parley.conformance.scenario_log import ScenarioLog, need
from parley.models.script import ScriptedCall, ScriptedTurn

TOOLS = "Read,Write,Edit,Glob,Grep,Bash,TodoWrite,WebFetch,WebSearch"
OLD_TODOS: dict[str, str | None] = {"CLAUDE_CODE_ENABLE_TASKS": "0"}
"""The recorded engine has TodoWrite only with it."""


@scenario("files")
async def files(engine: EngineDriver) -> None:
    """Read, Edit, Write, Glob and Grep, one after the other."""
    engine.put({"a.txt": "alpha\nbeta\n", "sub/b.py": "import os\n"})
    at = engine.cwd
    todo = {"content": "Write it", "status": "pending", "activeForm": "Writing it"}
    engine.model.play(
        use("Read", {"file_path": str(at / "a.txt")}, "toolu_read"),
        use("Edit", {"file_path": str(at / "a.txt"), "old_string": "alpha", "new_string": "ALPHA"}, "toolu_edit"),
        use("Write", {"file_path": str(at / "new.txt"), "content": "new text\n"}, "toolu_write"),
        use("Glob", {"pattern": "**/*.py"}, "toolu_glob"),
        use("Grep", {"pattern": "beta", "output_mode": "content"}, "toolu_grep"),
        use("TodoWrite", {"todos": [todo]}, "toolu_todo"),
        say("ok"),
    )
    await engine.turn("go", *BYPASS, "--tools", TOOLS, env=OLD_TODOS)
    engine.keep("a.txt", "new.txt")


def output_of(log: ScenarioLog, id: str) -> dict[str, object]:
    """The structured output of a successful call. Raises Mismatch."""
    block = log.tool_result(id)
    need(block.get("is_error") is not True, block)
    found = log.result_line(id).get("tool_use_result")
    need(isinstance(found, dict), f"tool_use_result is {found!r}")
    assert isinstance(found, dict)
    return found


@check(
    "tool.Read", "user.tool_use_result", on="files", basis="trace 010; tools.md §1",
    expects="the text with line numbers; `tool_use_result` has type and file{filePath,content,numLines,...}",
)  # fmt: skip
def read_file(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_read")
    for path in ("type:s", "file.filePath:s", "file.content:s", "file.numLines:n", "file.startLine:n"):
        require_field(found, *path.split(":"))
    need("1\talpha" in str(log.tool_result("toolu_read").get("content")), log.tool_result("toolu_read"))


@check(
    "tool.Edit", on="files", basis="trace 012; tools.md §1",
    expects="the file is changed; filePath, oldString, newString, structuredPatch",
)  # fmt: skip
def edit_file(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_edit")
    for path in ("filePath:s", "oldString:s", "newString:s", "structuredPatch:a", "userModified:b", "replaceAll:b"):
        require_field(found, *path.split(":"))
    need(log.files.get("a.txt") == "ALPHA\nbeta\n", log.files)


@check(
    "tool.Write", on="files", basis="trace 011; tools.md §1",
    expects="the file is written; type create, filePath, content, structuredPatch",
)  # fmt: skip
def write_file(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_write")
    for path in ("type:s", "filePath:s", "content:s", "structuredPatch:a", "originalFile:s0"):
        require_field(found, *path.split(":"))
    need(log.files.get("new.txt") == "new text\n", log.files)


@check("tool.Glob", on="files", basis="trace 013; tools.md §1", expects="filenames, numFiles, durationMs, truncated")
def glob_files(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_glob")
    for path in ("durationMs:n", "numFiles:n", "truncated:b"):
        require_field(found, *path.split(":"))
    names = require_field(found, "filenames", "a")
    need(len(names) == 1 and str(names[0]).endswith("sub/b.py"), names)


@check("tool.Grep", on="files", basis="trace 013; tools.md §1", expects="the matching line; mode, numFiles, filenames")
def grep_files(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_grep")
    for path in ("mode:s", "numFiles:n", "filenames:a", "content:s"):
        require_field(found, *path.split(":"))
    need("beta" in str(log.tool_result("toolu_grep").get("content")), log.tool_result("toolu_grep"))


@check("tool.TodoWrite", on="files", basis="trace 110; tools.md §1", expects="oldTodos and newTodos")
def todo_write(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_todo")
    need(found.get("oldTodos") == [] and len(require_field(found, "newTodos", "a")) == 1, found)


@check(
    "tool_fact.who-runs-tools", "user.message.content", "out.user", on="files", basis="tools.md §5",
    expects="the engine runs the tools; each result is a user line with one tool_result, and reaches the model",
)  # fmt: skip
def engine_runs(log: ScenarioLog) -> None:
    results = [line for line in log.all("user") if "tool_result" in str(line.get("message"))]
    need(len(results) == 6, f"{len(results)} lines with results; {log.summary()}")
    sent = str(log.main_requests()[-1].get("messages"))
    need("toolu_read" in sent and "toolu_todo" in sent, "the results were not sent to the model")
    need(log.last("result").get("num_turns") == 7, log.last("result").get("num_turns"))


@scenario("commands")
async def commands(engine: EngineDriver) -> None:
    """Commands that succeed, fail, change the folder and write to stderr; calls in parallel."""
    engine.put({"one.txt": "one\n", "two.txt": "two\n", "deep/x": ""})
    calls = [ScriptedCall(name="Read", input={"file_path": str(engine.cwd / f"{n}.txt")}, id=f"toolu_{n}")
             for n in ("one", "two")]  # fmt: skip
    engine.model.play(
        bash("echo out; echo err >&2", "toolu_ok"),
        bash("echo before; exit 3", "toolu_fail"),
        bash("cd deep", "toolu_cd"),
        bash("pwd", "toolu_pwd"),
        ScriptedTurn(tools=calls),
        say("ok"),
    )
    await engine.turn("go", *BYPASS)


@check(
    "tool.Bash", on="commands", basis="trace 014; tools.md §1",
    expects="output of both streams; stdout, stderr, interrupted; the folder stays for the next command",
)  # fmt: skip
def run_commands(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_ok")
    for path in ("stdout:s", "stderr:s", "interrupted:b"):
        require_field(found, *path.split(":"))
    text = str(log.tool_result("toolu_ok").get("content"))
    need("out" in text and "err" in text, text)
    need("deep" in str(log.tool_result("toolu_pwd").get("content")), log.tool_result("toolu_pwd"))


@check(
    "tool_fact.tool-errors", "block.tool_result", on="commands", basis="trace 014; tools.md §5",
    expects="a command that exits with 3 gives is_error and its output, and the turn continues",
)  # fmt: skip
def failing_command(log: ScenarioLog) -> None:
    found = log.tool_result("toolu_fail")
    need(found.get("is_error") is True and "before" in str(found.get("content")), found)
    need("3" in str(found.get("content")), found)
    need(log.last("result").get("subtype") == "success", log.summary())


@check(
    "tool_fact.parallel-calls", on="commands", basis="traces README, fact 6",
    expects="two calls of one answer have one line each, with the right content",
)  # fmt: skip
def parallel_calls(log: ScenarioLog) -> None:
    for name in ("one", "two"):
        need(name in str(log.tool_result(f"toolu_{name}").get("content")), log.tool_result(f"toolu_{name}"))
    lines = [log.result_line(f"toolu_{name}") for name in ("one", "two")]
    need(lines[0] is not lines[1], "both results are in one line")


@scenario("bad-calls")
async def bad_calls(engine: EngineDriver) -> None:
    """An unknown tool, input that does not fit, and web tools without a network."""
    engine.model.play(
        use("NoSuchTool", {"x": 1}, "toolu_unknown"),
        use("Read", {"path": "a.txt"}, "toolu_invalid"),
        use("WebFetch", {"url": "https://conformance.invalid/x", "prompt": "p"}, "toolu_fetch"),
        say("ok"),
    )
    await engine.turn("go", *BYPASS)


@check(
    "tool_fact.unknown-tool-name", on="bad-calls", basis="trace 017", expects="an error result, and the turn continues",
)  # fmt: skip
def unknown_tool(log: ScenarioLog) -> None:
    found = log.tool_result("toolu_unknown")
    need(found.get("is_error") is True, found)
    need(log.last("result").get("subtype") == "success", log.summary())


@check(
    "tool_fact.invalid-input", on="bad-calls", basis="trace 017",
    expects="an error result that names the missing field, and no permission request",
)  # fmt: skip
def invalid_input(log: ScenarioLog) -> None:
    found = log.tool_result("toolu_invalid")
    need(found.get("is_error") is True and "file_path" in str(found.get("content")), found)
    need(not log.asked("can_use_tool"), "permission was asked")


@check(
    "tool.WebFetch", on="bad-calls", basis="trace 030", expects="an address that does not exist gives an error result",
)  # fmt: skip
def web_fetch(log: ScenarioLog) -> None:
    need(log.tool_result("toolu_fetch").get("is_error") is True, log.tool_result("toolu_fetch"))


@scenario("web-search")
async def web_search(engine: EngineDriver) -> None:
    engine.model.play(use("WebSearch", {"query": "tea"}, "toolu_search"), say("ok"), say("ok"))
    await engine.turn("go", *BYPASS)


@check(
    "tool.WebSearch", "block.server_tool_use", on="web-search", basis="trace 113",
    expects="the call has a result, good or not, and the turn ends",
)  # fmt: skip
def search_ends(log: ScenarioLog) -> None:
    log.tool_result("toolu_search")
    log.last("result")


@scenario("long-output")
async def long_output(engine: EngineDriver) -> None:
    """A command that prints two megabytes."""
    engine.model.play(bash("yes 0123456789012345678901234567890 | head -c 2000000", "toolu_long"), say("ok"))
    await engine.turn("go", *BYPASS)


@check(
    "tool_fact.output-limits", "framing.Max-line-length", on="long-output", basis="tools.md §5; trace 014",
    expects="two megabytes of output become a preview: every line stays under 1 MiB, and so does the request",
)  # fmt: skip
def output_is_limited(log: ScenarioLog) -> None:
    log.tool_result("toolu_long")
    need(all(len(str(body)) < 1 << 20 for body in log.requests), "the whole output was sent to the model")
    need(log.last("result").get("subtype") == "success", log.summary())
