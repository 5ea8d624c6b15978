"""The last release of the first Python SDK: a turn, a second turn with a tool."""

# /// script
# dependencies = ["claude-code-sdk==0.0.25"]
# ///
from pathlib import Path

from claude_code_sdk import ClaudeCodeOptions, ClaudeSDKClient, ResultMessage
from recipe import within


async def main() -> None:
    path = Path("plums.txt").absolute()
    async with ClaudeSDKClient(ClaudeCodeOptions(permission_mode="acceptEdits")) as client:
        for prompt in ("say two plums", f'call Write {{"file_path": "{path}", "content": "two"}}\nsay done'):
            await client.query(prompt)
            results = [line async for line in client.receive_response() if isinstance(line, ResultMessage)]
            assert len(results) == 1
    assert path.read_text() == "two"


within(main())
