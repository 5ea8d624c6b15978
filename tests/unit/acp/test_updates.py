from __future__ import annotations

from typing import Any

import msgspec

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
    translator = UpdateTranslator("/project")
    translator.translate(event(type="content_block_start", index=0, content_block=text("")))
    first = translator.translate(
        event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"})
    )

    assert first == [{"sessionUpdate": "agent_message_chunk", "content": text("Hello")}]
    assert translator.translate(assistant(text("Hello"))) == []
    assert translator.translate(assistant(text("Hello"))) == first


def test_the_text_of_a_failed_call_is_left_to_the_error_of_the_prompt() -> None:
    assert UpdateTranslator("/project").translate(assistant(text("API Error"), error="server_error")) == []


def test_tasks_are_entries_of_the_plan() -> None:
    translator = UpdateTranslator("/project")
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
        UpdateTranslator("/project").translate(assistant(call("TodoWrite", todos=todos), parent_tool_use_id="t0")) == []
    )


def test_calls_without_a_result_fail_when_the_turn_ends_but_not_those_of_subagents() -> None:
    translator = UpdateTranslator("/project")
    translator.translate(assistant(call("Bash", command="ls")))
    translator.translate(assistant(call("Bash", id="t2", command="ls"), parent_tool_use_id="t0"))

    assert translator.translate(message(type="result", subtype="success")) == [
        {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "failed"}
    ]
    assert [update["status"] for update in translator.translate(result("x", id="t2"))] == ["completed"]


def test_a_created_file_is_a_diff_from_nothing() -> None:
    translator = UpdateTranslator("/project")
    [started] = translator.translate(assistant(call("Write", file_path="a.txt", content="one\n")))
    detail = {"type": "create", "filePath": "/project/a.txt", "content": "one\n", "structuredPatch": []}
    [ended] = translator.translate(result("File created", detail=detail))
    diff = {"type": "diff", "path": "/project/a.txt", "oldText": None, "newText": "one\n"}

    assert (started["title"], started["kind"], started["content"]) == ("Writing a.txt", "edit", [diff])
    assert ended["content"] == [diff]
    assert ended["locations"] == [{"path": "/project/a.txt", "line": 1}]


def test_every_hunk_of_a_change_is_a_diff_with_its_line() -> None:
    translator = UpdateTranslator("/project")
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
    translator = UpdateTranslator("/project")
    [started] = translator.translate(assistant(call("Bash", command="cat README.md", description="Look around")))
    [ended] = translator.translate(result("```sh\nls\n```\n"))

    assert started["title"] == "`cat README.md`"
    assert ended["content"][0]["content"]["text"] == "````\n```sh\nls\n```\n````"


def test_images_of_a_result_are_shown() -> None:
    translator = UpdateTranslator("/project")
    translator.translate(assistant(call("mcp__camera__shoot")))
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    [ended] = translator.translate(result([{"type": "image", "source": source}]))

    assert ended["content"][0]["content"] == {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def test_prompts_are_shown_only_when_a_session_is_replayed() -> None:
    prompt = message(type="user", message={"role": "user", "content": "Hello"})

    assert UpdateTranslator("/project").translate(prompt) == []
    assert UpdateTranslator("/project", is_replay=True).translate(prompt) == [
        {"sessionUpdate": "user_message_chunk", "content": text("Hello")}
    ]


def test_messages_that_the_engine_wrote_are_not_shown_as_prompts() -> None:
    reminder = message(type="user", message={"role": "user", "content": "The user ran /help"}, isSynthetic=True)

    assert UpdateTranslator("/project", is_replay=True).translate(reminder) == []
