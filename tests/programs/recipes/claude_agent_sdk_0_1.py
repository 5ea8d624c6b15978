"""An old release of the Python SDK: a turn, a question, a hook."""

# /// script
# dependencies = ["claude-agent-sdk==0.1.50"]
# ///
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, PermissionResultAllow, ResultMessage
from recipe import within

seen = []


async def allow(name: str, input: dict[str, object], context: object) -> PermissionResultAllow:
    seen.append(("asked", name))
    return PermissionResultAllow()


async def watch(input: dict[str, object], tool_use_id: str | None, context: object) -> dict[str, object]:
    seen.append(("hooked", input["tool_name"]))
    return {}


async def main() -> None:
    path = Path("plums.txt").absolute()
    options = ClaudeAgentOptions(can_use_tool=allow, hooks={"PreToolUse": [HookMatcher(hooks=[watch])]})
    async with ClaudeSDKClient(options) as client:
        await client.query(f'call Write {{"file_path": "{path}", "content": "two"}}\nsay done')
        results = [line async for line in client.receive_response() if isinstance(line, ResultMessage)]
    assert [result.result for result in results] == ["done"]
    assert seen == [("hooked", "Write"), ("asked", "Write")]
    assert path.read_text() == "two"


within(main())
