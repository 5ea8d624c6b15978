"""The transcript of a conversation."""

from __future__ import annotations

from typing import Any

from parley.protocol.base import decode, encode_json
from parley.terminal.rendering.details import compare
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.transcript import TerminalTranscript


class Viewer:
    """A transcript, and what it printed."""

    def __init__(self) -> None:
        self.now = 0.0
        self.printed: list[str] = []
        styles = Styles(attributes=False)
        self.transcript = TerminalTranscript(self.printed.extend, styles, lambda: 60, lambda: self.now)
        self.transcript.more_hint = " (ctrl-o shows all)"

    def show(self, **message: Any) -> None:
        self.transcript.show(decode(encode_json(message)))

    def call(self, call_id: str, name: str, **given: Any) -> None:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": given}
        self.show(type="assistant", message={"role": "assistant", "content": [block]}, parent_tool_use_id=None)

    def finish(self, call_id: str, content: Any = "", detail: Any = None, **more: Any) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}
        self.show(type="user", message={"role": "user", "content": [block]}, tool_use_result=detail)


def test_an_edit_shows_its_diff_and_a_command_the_start_of_its_output() -> None:
    viewer = Viewer()
    viewer.call("1", "Edit", file_path="/a.txt", old_string="a", new_string="b")
    patch = [{"oldStart": 3, "newStart": 3, "lines": [" same", "-a\x1b[2J", "+b"]}]
    viewer.finish("1", "ok", {"filePath": "/a.txt", "structuredPatch": patch})
    viewer.call("2", "Bash", command="ls")
    viewer.finish("2", "\n".join(f"file {number}" for number in range(6)))

    assert viewer.printed == [
        "✓ Editing /a.txt · ok · 0.0 s",
        "    3  same",
        "    4 -a\\x1b[2J",
        "    4 +b",
        "✓ Running ls · ok · 0.0 s",
        "    file 0",
        "    file 1",
        "    file 2",
        "    … 3 more lines (ctrl-o shows all)",
    ]
    assert viewer.transcript.last_output == ("Running ls", "\n".join(f"file {number}" for number in range(6)))


def test_a_work_list_is_shown_after_each_change() -> None:
    viewer = Viewer()
    todos = [{"content": "Plan", "status": "completed"}, {"content": "Act", "status": "in_progress"}]
    viewer.call("1", "TodoWrite", todos=todos)
    viewer.finish("1", "ok", {"newTodos": [*todos, {"content": "Rest", "status": "pending"}]})

    assert viewer.printed == ["✓ Updating the work list · ok · 0.0 s", "  ☑ Plan", "  ◐ Act", "  ☐ Rest"]


def test_an_image_is_named() -> None:
    viewer = Viewer()
    viewer.call("1", "Read", file_path="/a.png")
    viewer.finish("1", [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}])

    assert viewer.printed[-1] == "    [image: image/png, 3 bytes]"


def test_a_subagent_has_one_line_with_its_steps_tokens_and_time() -> None:
    viewer = Viewer()
    viewer.call("1", "Task", description="Look around", prompt="Look", subagent_type="Explore")
    viewer.show(type="system", subtype="task_started", task_id="t", description="Look around", tool_use_id="1")
    block = {"type": "tool_use", "id": "2", "name": "Read", "input": {"file_path": "/a.txt"}}
    viewer.show(type="assistant", message={"role": "assistant", "content": [block]}, parent_tool_use_id="1")
    usage = {"total_tokens": 1200, "tool_uses": 1, "duration_ms": 5}
    viewer.show(type="system", subtype="task_progress", task_id="t", description="Reading /a.txt", usage=usage)
    viewer.now = 12.0
    [live] = viewer.transcript.live_lines()
    viewer.finish("1", "Nothing.")

    assert live.endswith("· 1 step · 1,200 tokens · 12 s")
    assert viewer.printed == ["✓ Delegating Look around · 1 step · 1,200 tokens · 12 s"]
    assert not viewer.transcript.calls.is_moving


def test_prompts_of_other_clients_are_shown_but_not_ones_own() -> None:
    viewer = Viewer()
    viewer.transcript.own_prompts.add("u1")
    for uuid, text in (("u1", "mine"), ("u2", "theirs"), ("u3", "[Request interrupted by user]")):
        viewer.show(type="user", uuid=uuid, message={"role": "user", "content": text})

    assert viewer.printed == ["> theirs"]


def test_a_call_that_waits_for_an_answer_does_not_spin() -> None:
    viewer = Viewer()
    viewer.call("1", "Bash", command="ls")
    viewer.transcript.calls.asked.add("1")

    assert viewer.transcript.live_lines() == []
    assert not viewer.transcript.is_moving


def test_changed_lines_are_found() -> None:
    assert compare("a\nb", "a\nc")[1:] == [" a", "-b", "+c"]


def test_a_result_that_repeats_a_remark_is_shown_once() -> None:
    viewer = Viewer()
    viewer.show(type="system", subtype="informational", content="unknown command /x", level="warning")
    viewer.show(type="result", subtype="success", is_error=True, result="unknown command /x")
    viewer.show(type="result", subtype="success", is_error=True, result="unknown command /x")

    assert [line.strip() for line in viewer.printed if line] == ["unknown command /x"] * 2
