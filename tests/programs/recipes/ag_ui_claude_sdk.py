"""AG-UI for browsers: the events of a run, and of a second one in the same thread."""

# /// script
# dependencies = ["ag-ui-claude-sdk==0.2.3"]
# ///
from ag_ui.core import RunAgentInput, UserMessage
from ag_ui_claude_sdk import ClaudeAgentAdapter
from recipe import within


async def ask(adapter: ClaudeAgentAdapter, run: str, prompt: str) -> list[object]:
    message = UserMessage(id=f"message-{run}", role="user", content=prompt)
    empty = {"state": {}, "tools": [], "context": [], "forwarded_props": {}}
    return [event async for event in adapter.run(RunAgentInput(thread_id="t", run_id=run, messages=[message], **empty))]


async def main() -> None:
    adapter = ClaudeAgentAdapter(name="plums", options={"permission_mode": "bypassPermissions"})
    for run, answer in (("one", "two plums"), ("two", "three plums")):
        events = await ask(adapter, run, f"say {answer}")
        kinds = [str(event.type.value) for event in events]
        assert (kinds[0], kinds[-1]) == ("RUN_STARTED", "RUN_FINISHED"), events
        assert "".join(event.delta for event in events if event.type.value == "TEXT_MESSAGE_CONTENT") == answer
    kinds = [event.type.value for event in await ask(adapter, "three", 'call Bash {"command": "echo 42"}\nshow')]
    assert {"TOOL_CALL_START", "TOOL_CALL_RESULT"} <= set(kinds), kinds


within(main())
