"""The built-in tools: what they do, what they return, and how calls fail."""

from __future__ import annotations

from parley.conformance.conditions import (
    asks_for,
    ends_with,
    file_is,
    output_of,
    require_field,
    tool_fails,
    tool_output,
    tool_says,
)
from parley.conformance.driver import BYPASS, EngineDriver
from parley.conformance.model import bash, say, use
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need
from parley.models.script import ScriptedCall, ScriptedTurn

TOOLS = "Read,Write,Edit,Glob,Grep,Bash,TodoWrite,WebFetch,WebSearch"
OLD_TODOS: dict[str, str | None] = {"CLAUDE_CODE_ENABLE_TASKS": "0"}
"""The recorded engine has TodoWrite only with it."""


def glob_files(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_glob")
    for path in ("durationMs:n", "numFiles:n", "truncated:b"):
        require_field(found, *path.split(":"))
    names = require_field(found, "filenames", "a")
    need(len(names) == 1 and str(names[0]).endswith("sub/b.py"), names)


def todo_write(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_todo")
    need(found.get("oldTodos") == [] and len(require_field(found, "newTodos", "a")) == 1, found)


def engine_runs(log: ScenarioLog) -> None:
    results = [line for line in log.all("user") if "tool_result" in str(line.get("message"))]
    need(len(results) == 6, f"{len(results)} lines with results; {log.summary()}")
    sent = str(log.main_requests()[-1].get("messages"))
    need("toolu_read" in sent and "toolu_todo" in sent, "the results were not sent to the model")
    need(log.last("result").get("num_turns") == 7, log.last("result").get("num_turns"))


@scenario(
    "files",
    check("tool.Read user.tool_use_result", "trace 010; tools.md §1",
          "the text with line numbers; `tool_use_result` has type and file{filePath,content,numLines,...}",
          tool_output("toolu_read", "type:s", "file.filePath:s", "file.content:s", "file.numLines:n",
                      "file.startLine:n"),
          tool_says("toolu_read", "1\talpha")),
    check("tool.Edit", "trace 012; tools.md §1",
          "the file is changed; filePath, oldString, newString, structuredPatch",
          tool_output("toolu_edit", "filePath:s", "oldString:s", "newString:s", "structuredPatch:a", "userModified:b",
                      "replaceAll:b"),
          file_is("a.txt", "ALPHA\nbeta\n")),
    check("tool.Write", "trace 011; tools.md §1",
          "the file is written; type create, filePath, content, structuredPatch",
          tool_output("toolu_write", "type:s", "filePath:s", "content:s", "structuredPatch:a", "originalFile:s0"),
          file_is("new.txt", "new text\n")),
    check("tool.Glob", "trace 013; tools.md §1", "filenames, numFiles, durationMs, truncated", glob_files),
    check("tool.Grep", "trace 013; tools.md §1",
          "the matching line; mode, numFiles, filenames",
          tool_output("toolu_grep", "mode:s", "numFiles:n", "filenames:a", "content:s"),
          tool_says("toolu_grep", "beta")),
    check("tool.TodoWrite", "trace 110; tools.md §1", "oldTodos and newTodos", todo_write),
    check("tool_fact.who-runs-tools user.message.content out.user", "tools.md §5",
          "the engine runs the tools; each result is a user line with one tool_result, and reaches the model",
          engine_runs),
)  # fmt: skip
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


def parallel_calls(log: ScenarioLog) -> None:
    for name in ("one", "two"):
        need(name in str(log.tool_result(f"toolu_{name}").get("content")), log.tool_result(f"toolu_{name}"))
    lines = [log.result_line(f"toolu_{name}") for name in ("one", "two")]
    need(lines[0] is not lines[1], "both results are in one line")


@scenario(
    "commands",
    check("tool.Bash", "trace 014; tools.md §1",
          "output of both streams; stdout, stderr, interrupted; the folder stays for the next command",
          tool_output("toolu_ok", "stdout:s", "stderr:s", "interrupted:b"), tool_says("toolu_ok", "out", "err"),
          tool_says("toolu_pwd", "deep")),
    check("tool_fact.tool-errors block.tool_result", "trace 014; tools.md §5",
          "a command that exits with 3 gives is_error and its output, and the turn continues",
          tool_fails("toolu_fail", "before", "3"), ends_with(subtype="success")),
    check("tool_fact.parallel-calls", "traces README, fact 6",
          "two calls of one answer have one line each, with the right content", parallel_calls),
)  # fmt: skip
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


@scenario(
    "bad-calls",
    check("tool_fact.unknown-tool-name", "trace 017",
          "an error result, and the turn continues", tool_fails("toolu_unknown"), ends_with(subtype="success")),
    check("tool_fact.invalid-input", "trace 017",
          "an error result that names the missing field, and no permission request",
          tool_fails("toolu_invalid", "file_path"), asks_for()),
    check("tool.WebFetch", "trace 030",
          "an address that does not exist gives an error result", tool_fails("toolu_fetch")),
)  # fmt: skip
async def bad_calls(engine: EngineDriver) -> None:
    """An unknown tool, input that does not fit, and web tools without a network."""
    engine.model.play(
        use("NoSuchTool", {"x": 1}, "toolu_unknown"),
        use("Read", {"path": "a.txt"}, "toolu_invalid"),
        use("WebFetch", {"url": "https://conformance.invalid/x", "prompt": "p"}, "toolu_fetch"),
        say("ok"),
    )
    await engine.turn("go", *BYPASS)


@scenario(
    "web-search",
    check("tool.WebSearch block.server_tool_use", "trace 113",
          "the call has a result, good or not, and the turn ends", tool_says("toolu_search"), ends_with()),
)  # fmt: skip
async def web_search(engine: EngineDriver) -> None:
    engine.model.play(use("WebSearch", {"query": "tea"}, "toolu_search"), say("ok"), say("ok"))
    await engine.turn("go", *BYPASS)


def output_is_limited(log: ScenarioLog) -> None:
    log.tool_result("toolu_long")
    need(all(len(str(body)) < 1 << 20 for body in log.requests), "the whole output was sent to the model")
    need(log.last("result").get("subtype") == "success", log.summary())


@scenario(
    "long-output",
    check("tool_fact.output-limits framing.Max-line-length", "tools.md §5; trace 014",
          "two megabytes of output become a preview: every line stays under 1 MiB, and so does the request",
          output_is_limited),
)  # fmt: skip
async def long_output(engine: EngineDriver) -> None:
    """A command that prints two megabytes."""
    engine.model.play(bash("yes 0123456789012345678901234567890 | head -c 2000000", "toolu_long"), say("ok"))
    await engine.turn("go", *BYPASS)
