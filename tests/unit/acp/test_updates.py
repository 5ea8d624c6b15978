from __future__ import annotations

from typing import Any

import msgspec
import pytest

from parley.acp.schema import ClientCapabilities, SessionCapabilities
from parley.acp.updates import UpdateTranslator
from parley.protocol.base import Message, decode


def message(**fields: Any) -> Message:
    return decode(msgspec.json.encode(fields))


def assistant(*content: Any, **more: Any) -> Message:
    return message(type="assistant", message={"role": "assistant", "content": list(content)}, **more)


def call(name: str, id: str = "t1", **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result(content: Any, id: str = "t1", *, is_error: bool = False, detail: Any = None, **more: Any) -> Message:
    block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}
    return message(type="user", message={"role": "user", "content": [block]}, tool_use_result=detail, **more)


def event(**fields: Any) -> Message:
    return message(type="stream_event", event=fields)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_text_that_was_streamed_is_not_sent_again() -> None:
    translator = UpdateTranslator("/project", ClientCapabilities())
    translator.translate(event(type="content_block_start", index=0, content_block=text("")))
    first = translator.translate(
        event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"})
    )

    assert first == [{"sessionUpdate": "agent_message_chunk", "content": text("Hello")}]
    assert translator.translate(assistant(text("Hello"))) == []
    assert translator.translate(assistant(text("Hello"))) == first


def test_the_text_of_a_failed_call_is_left_to_the_error_of_the_prompt() -> None:
    assert (
        UpdateTranslator("/project", ClientCapabilities()).translate(assistant(text("API Error"), error="server_error"))
        == []
    )


def test_tasks_are_entries_of_the_plan() -> None:
    translator = UpdateTranslator("/project", ClientCapabilities())
    plans = []
    for done in (
        assistant(call("TaskCreate", subject="Look", description="")),
        result("Task #1 was created: Look"),
        assistant(call("TaskCreate", subject="Leap", description="")),
        result("Task #2 was created: Leap"),
        assistant(call("TaskUpdate", taskId="1", status="completed")),
        result("Task #1: changed status"),
        assistant(call("TaskUpdate", taskId="#2", status="deleted")),
        result("Task #2: changed deleted"),
        assistant(call("TaskList")),
        result("#1 [completed] Look"),
    ):
        plans += [
            [(entry["content"], entry["status"]) for entry in update["entries"]]
            for update in translator.translate(done)
        ]

    assert plans == [
        [("Look", "pending")],
        [("Look", "pending"), ("Leap", "pending")],
        [("Look", "completed"), ("Leap", "pending")],
        [("Look", "completed")],
    ]


def test_the_work_list_of_a_subagent_is_not_the_plan() -> None:
    todos = [{"content": "Look", "status": "pending"}]

    assert (
        UpdateTranslator("/project", ClientCapabilities()).translate(
            assistant(call("TodoWrite", todos=todos), parent_tool_use_id="t0")
        )
        == []
    )


def test_calls_without_a_result_fail_when_the_turn_ends_but_not_those_of_subagents() -> None:
    translator = UpdateTranslator("/project", ClientCapabilities())
    translator.translate(assistant(call("Bash", command="ls")))
    translator.translate(assistant(call("Bash", id="t2", command="ls"), parent_tool_use_id="t0"))

    assert translator.translate(message(type="result", subtype="success")) == [
        {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "failed"}
    ]
    assert [update["status"] for update in translator.translate(result("x", id="t2"))] == ["completed"]


def test_a_created_file_is_a_diff_from_nothing() -> None:
    translator = UpdateTranslator("/project", ClientCapabilities())
    [started] = translator.translate(assistant(call("Write", file_path="a.txt", content="one\n")))
    detail = {"type": "create", "filePath": "/project/a.txt", "content": "one\n", "structuredPatch": []}
    [ended] = translator.translate(result("File created", detail=detail))
    diff = {"type": "diff", "path": "/project/a.txt", "oldText": None, "newText": "one\n"}

    assert (started["title"], started["kind"], started["content"]) == ("Writing a.txt", "edit", [diff])
    assert ended["content"] == [diff]
    assert ended["locations"] == [{"path": "/project/a.txt", "line": 1}]


def test_every_hunk_of_a_change_is_a_diff_with_its_line() -> None:
    translator = UpdateTranslator("/project", ClientCapabilities())
    translator.translate(
        assistant(call("Edit", file_path="/project/a", old_string="a", new_string="b", replace_all=True))
    )
    hunks = [
        {"newStart": 1, "lines": [" x", "-a", "+b"]},
        {"newStart": 9, "lines": ["-a", "+b", "\\ No newline at end of file"]},
    ]
    [ended] = translator.translate(result("ok", detail={"filePath": "/project/a", "structuredPatch": hunks}))

    assert [(diff["oldText"], diff["newText"]) for diff in ended["content"]] == [("x\na", "x\nb"), ("a", "b")]
    assert [place["line"] for place in ended["locations"]] == [1, 9]


def test_output_is_fenced_with_more_backticks_than_it_has() -> None:
    translator = UpdateTranslator("/project", ClientCapabilities())
    [started] = translator.translate(assistant(call("Bash", command="cat README.md", description="Look around")))
    [ended] = translator.translate(result("```sh\nls\n```\n"))

    assert started["title"] == "`cat README.md`"
    assert ended["content"][0]["content"]["text"] == "````\n```sh\nls\n```\n````"


def test_images_of_a_result_are_shown() -> None:
    translator = UpdateTranslator("/project", ClientCapabilities())
    translator.translate(assistant(call("mcp__camera__shoot")))
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    [ended] = translator.translate(result([{"type": "image", "source": source}]))

    assert ended["content"][0]["content"] == {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def test_prompts_are_shown_only_when_a_session_is_replayed() -> None:
    prompt = message(type="user", message={"role": "user", "content": "Hello"})

    assert UpdateTranslator("/project", ClientCapabilities()).translate(prompt) == []
    assert UpdateTranslator("/project", ClientCapabilities(), shows_prompts=True).translate(prompt) == [
        {"sessionUpdate": "user_message_chunk", "content": text("Hello")}
    ]


def test_messages_that_the_engine_wrote_are_not_shown_as_prompts() -> None:
    reminder = message(type="user", message={"role": "user", "content": "The user ran /help"}, isSynthetic=True)

    assert UpdateTranslator("/project", ClientCapabilities(), shows_prompts=True).translate(reminder) == []


def test_chunks_of_a_message_have_its_id() -> None:
    translator = UpdateTranslator("/project", ClientCapabilities(), shows_prompts=True)
    translator.translate(event(type="message_start", message={"id": "msg_1"}))
    delta = {"type": "text_delta", "text": "Hello"}
    [streamed] = translator.translate(event(type="content_block_delta", index=0, delta=delta))
    [whole] = translator.translate(
        message(type="assistant", message={"role": "assistant", "id": "msg_2", "content": [text("Whole.")]})
    )
    [prompt] = translator.translate(message(type="user", message={"role": "user", "content": "Hi"}, uuid="u1"))

    assert [each["messageId"] for each in (streamed, whole, prompt)] == ["msg_1", "msg_2", "u1"]


def test_what_the_engine_says_for_the_user_is_not_a_prompt() -> None:
    translator = UpdateTranslator("/project", ClientCapabilities(), shows_prompts=True)
    interrupted = message(type="user", message={"role": "user", "content": "[Request interrupted by user]"})

    assert translator.translate(interrupted) == []


# What only some editors show.

NOTICES = ClientCapabilities(session=SessionCapabilities(notices={}))
COMPACTIONS = ClientCapabilities(session=SessionCapabilities(compaction={}))
TERMINALS = ClientCapabilities(meta={"terminal_output": True})


def system(subtype: str, **fields: Any) -> Message:
    return message(type="system", subtype=subtype, session_id="s1", **fields)


def test_information_is_a_notice_or_a_thought() -> None:
    told = system("informational", content="A rule is wrong.\nIt was ignored.", level="warning")

    assert UpdateTranslator("/project", NOTICES).translate(told) == [
        {
            "sessionUpdate": "notice",
            "severity": "warning",
            "title": "A rule is wrong.",
            "description": "It was ignored.",
        }
    ]
    [thought] = UpdateTranslator("/project", ClientCapabilities()).translate(told)
    assert thought["sessionUpdate"] == "agent_thought_chunk"


def test_a_compaction_is_shown_once_and_ends() -> None:
    translator = UpdateTranslator("/project", COMPACTIONS)
    running = system("status", status="compacting", uuid="u1")
    heartbeat = system("status", status="compacting", uuid="u2")
    ended = system("status", status=None, compact_result="success", uuid="u3")
    update = {"sessionUpdate": "compaction_update", "compactionId": "u1"}

    assert translator.translate(running) == [{**update, "status": "in_progress"}]
    assert translator.translate(heartbeat) == []
    assert translator.translate(ended) == [{**update, "status": "completed"}]
    assert translator.translate(ended) == []
    assert UpdateTranslator("/project", ClientCapabilities()).translate(running) == []


@pytest.mark.parametrize(("error", "status"), [("interrupted", "cancelled"), ("too long", "failed")])
def test_a_compaction_that_fails_says_why(error: str, status: str) -> None:
    translator = UpdateTranslator("/project", COMPACTIONS)
    translator.translate(system("status", status="compacting", uuid="u1"))
    [update] = translator.translate(system("status", status=None, compact_result="failed", compact_error=error))

    assert (update["status"], update["error"]) == (status, error)


def test_the_output_of_a_command_is_in_a_terminal() -> None:
    translator = UpdateTranslator("/project", TERMINALS)
    [made] = translator.translate(assistant(call("Bash", command="ls")))
    shown = translator.show_output("t1", "é".encode()[:1]) + translator.show_output("t1", "é".encode()[1:])
    [ended] = translator.translate(result("Exit code 2\né", is_error=True))

    assert made["content"] == ended["content"] == [{"type": "terminal", "terminalId": "t1"}]
    assert made["_meta"] == {"terminal_info": {"terminal_id": "t1", "cwd": "/project"}}
    assert [update["_meta"]["terminal_output"]["data"] for update in shown] == ["é"]
    assert ended["_meta"] == {"terminal_exit": {"terminal_id": "t1", "exit_code": 2, "signal": None}}


def test_output_that_was_not_seen_while_the_command_ran_is_shown_at_its_end() -> None:
    translator = UpdateTranslator("/project", TERMINALS)
    translator.translate(assistant(call("Bash", command="ls")))
    [ended] = translator.translate(result("a\nb"))

    assert ended["_meta"]["terminal_output"] == {"terminal_id": "t1", "data": "a\nb"}
    assert ended["_meta"]["terminal_exit"]["exit_code"] == 0


def test_a_command_that_did_not_run_has_no_exit_code() -> None:
    translator = UpdateTranslator("/project", TERMINALS)
    translator.translate(assistant(call("Bash", command="ls")))
    [ended] = translator.translate(result("The user denied this call.", is_error=True))

    assert ended["_meta"]["terminal_output"]["data"] == "The user denied this call."
    assert ended["_meta"]["terminal_exit"]["exit_code"] is None


def test_much_output_is_shown_in_part() -> None:
    translator = UpdateTranslator("/project", TERMINALS)
    translator.translate(assistant(call("Bash", command="yes")))
    [first] = translator.show_output("t1", b"y" * (3 << 20))

    assert len(first["_meta"]["terminal_output"]["data"]) < 2 << 20
    assert "There is more." in first["_meta"]["terminal_output"]["data"]
    assert translator.show_output("t1", b"y") == []
