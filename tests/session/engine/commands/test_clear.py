"""`/clear` ends a session and begins another one in the same process. Both can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.helpers.session import Json, SessionHarness


def says(*texts: str) -> str:
    return "".join(f"[[turn]]\ntext = '{text}'\n" for text in texts)


def touching(name: str) -> str:
    call = f"{{ name = 'Bash', id = 'touch', input = {{ command = 'touch {name}' }} }}"
    return f"[[turn]]\ntools = [{call}]\n[[turn]]\ntext = 'Done.'\n"


def texts(harness: SessionHarness) -> list[str]:
    return [message["content"][0]["text"] for message in harness.session.journal.history.render()]


async def prompted(harness: SessionHarness, text: str, **fields: Any) -> Json:
    harness.prompt(text, **fields)
    return await harness.receive("result")


async def test_the_reset_has_the_old_id_and_everything_after_it_the_new_one(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one", "two")) as harness:
        await prompted(harness, "first")
        old = harness.session.id
        await prompted(harness, "/clear")
        await prompted(harness, "second")
    at = next(index for index, line in enumerate(harness.lines) if line["type"] == "conversation_reset")
    before, after = harness.lines[: at + 1], harness.lines[at + 1 :]

    assert {line["session_id"] for line in before if "session_id" in line} == {old}
    [new] = {line["session_id"] for line in after if "session_id" in line}
    assert new not in (old, harness.lines[at]["new_conversation_id"])
    assert next(line["subtype"] for line in after if line["type"] == "system") == "init"


async def test_both_sessions_can_be_resumed(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one", "two")) as harness:
        await prompted(harness, "first")
        old = harness.session.id
        await prompted(harness, "/clear")
        await prompted(harness, "second")
        new = harness.session.id

    async with SessionHarness(tmp_path, says("three"), resume=old) as resumed:
        await prompted(resumed, "third")
        assert texts(resumed) == ["first", "one", "third", "three"]
    async with SessionHarness(tmp_path, says("four"), resume=new) as resumed:
        await prompted(resumed, "fourth")
        assert texts(resumed) == ["second", "two", "fourth", "four"]


async def test_the_old_session_is_free_for_others_as_soon_as_it_is_cleared(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one")) as harness:
        await prompted(harness, "first")
        old = harness.session.id
        await prompted(harness, "/clear")
        async with SessionHarness(tmp_path, says("two"), resume=old) as other:
            result = await prompted(other, "second")
    assert (result["result"], result["session_id"]) == ("two", old)


async def test_a_clear_that_is_sent_twice_runs_once(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one", "two")) as harness:
        await prompted(harness, "first")
        await prompted(harness, "/clear", uuid="6f1d3f9e-0000-4000-8000-000000000001")
        harness.prompt("/clear", uuid="6f1d3f9e-0000-4000-8000-000000000001")
        await prompted(harness, "second")
    assert len(list(harness.messages("conversation_reset"))) == 1


async def test_what_was_granted_stays_and_belongs_to_the_new_session(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, touching("a") + touching("b"), permission_prompt_tool="stdio") as harness:
        harness.prompt("first")
        asked = await harness.receive("control_request")
        rule = {"toolName": "Bash", "ruleContent": "touch:*"}
        update = {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}
        answer = {"behavior": "allow", "updatedPermissions": [update]}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
        harness.send({"type": "control_response", "response": response})
        await harness.receive("result")
        await harness.request("set_permission_mode", mode="acceptEdits")
        await prompted(harness, "/clear")
        await prompted(harness, "second")
        new = harness.session.id
    assert len(list(harness.messages("control_request"))) == 1
    assert (tmp_path / "b").exists()

    async with SessionHarness(tmp_path, touching("c"), permission_prompt_tool="stdio", resume=new) as resumed:
        await prompted(resumed, "third")
    assert (tmp_path / "c").exists()
    assert list(resumed.messages("control_request")) == []
    assert next(line for line in resumed.messages("system"))["permissionMode"] == "acceptEdits"


class Rewinding(SessionHarness):
    def __init__(self, folder: Path, script: str, **options: Any) -> None:
        super().__init__(folder, script, permission_mode="acceptEdits", **options)
        self.environment["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"] = "true"


async def test_files_can_be_rewound_in_the_new_session(tmp_path: Path) -> None:
    path, uuid = tmp_path / "note.txt", "6f1d3f9e-0000-4000-8000-000000000002"
    call = f"{{ name = 'Write', id = 'w', input = {{ file_path = '{path}', content = 'new' }} }}"
    script = says("one") + f"[[turn]]\ntools = [{call}]\n" + says("Done.")
    async with Rewinding(tmp_path, script) as harness:
        await prompted(harness, "first")
        await prompted(harness, "/clear")
        await prompted(harness, "write it", uuid=uuid)
        new = harness.session.id
    assert path.read_text() == "new"
    async with Rewinding(tmp_path, says("two"), resume=new) as resumed:
        answer = await resumed.request("rewind_files", user_message_id=uuid)
    assert (answer["response"]["subtype"], path.exists()) == ("success", False)
