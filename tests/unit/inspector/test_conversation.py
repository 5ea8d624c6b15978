from __future__ import annotations

from typing import Any

import pytest

from parley.inspector.conversation import Timeline, WireRow, describe
from parley.stores.wire_recording import Direction

IN, OUT = Direction.IN, Direction.OUT


def add(timeline: Timeline, *lines: tuple[Direction, Any]) -> list[WireRow]:
    return [
        timeline.add((number, float(number), direction, 10, line)) for number, (direction, line) in enumerate(lines, 1)
    ]


def ask(request_id: str, subtype: str = "initialize") -> Any:
    return {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype}}


def answer(request_id: str) -> Any:
    return {"type": "control_response", "response": {"subtype": "success", "request_id": request_id}}


def test_a_request_and_its_answer_are_paired_in_both_directions() -> None:
    timeline = Timeline()
    asked, question, answered = add(timeline, (IN, ask("a")), (OUT, ask("a", "can_use_tool")), (OUT, answer("a")))

    assert answered.request is asked
    assert answered.latency_ms == 2000
    assert timeline.open == [question]
    timeline.add((4, 4.0, OUT, 1, {"type": "control_cancel_request", "request_id": "a"}))
    assert timeline.open == []


def test_a_result_answers_the_prompts_that_it_names() -> None:
    timeline = Timeline()
    _, second, result = add(
        timeline,
        (IN, {"type": "user", "uuid": "p"}),
        (IN, {"type": "user", "uuid": "q"}),
        (OUT, {"type": "result", "user_message_uuids": ["p"]}),
    )

    assert timeline.open == [second]
    assert result.latency_ms == 2000


def test_a_result_without_names_answers_what_is_not_queued() -> None:
    timeline = Timeline()
    prompts = add(timeline, (IN, {"type": "user"}), (IN, {"type": "user"}), (IN, {"type": "user"}))
    timeline.add((4, 4.0, OUT, 1, {"type": "result", "queued_turn_count": 1}))

    assert timeline.open == [prompts[2]]


def test_requests_of_json_rpc_are_paired() -> None:
    timeline = Timeline()
    _, note, _ = add(
        timeline,
        (IN, {"jsonrpc": "2.0", "id": 1, "method": "prompt"}),
        (OUT, {"jsonrpc": "2.0", "method": "update"}),
        (OUT, {"jsonrpc": "2.0", "id": 1, "result": {}}),
    )

    assert timeline.open == []
    assert note.title == "jsonrpc update"


@pytest.mark.parametrize("line", [{"type": "control_request", "request_id": []}, {"type": "control_response"}, {}, 3])
def test_odd_lines_pass(line: Any) -> None:
    add(Timeline(), (OUT, line), (IN, line))


def test_lines_are_described() -> None:
    content = [{"type": "text"}, {"type": "tool_use"}, {"type": "text"}, 3]
    assert describe({"type": "assistant", "message": {"content": content}}, OUT) == ("assistant", "text, tool_use")
    assert describe("oops", OUT) == ("not JSON", "")
    assert describe([], OUT) == ("not an object", "")
    assert describe("oops", Direction.ERR) == ("stderr", "")
