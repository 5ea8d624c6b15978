"""An agent on a laptop, on the Python SDK: a turn, and a tool call."""

# /// script
# dependencies = ["pocketpaw==0.4.18", "claude-agent-sdk==0.2.184"]
# ///
from pathlib import Path

from pocketpaw.agents.claude_sdk import ClaudeSDKBackend
from pocketpaw.config import Settings
from recipe import within


async def main() -> None:
    backend = ClaudeSDKBackend(Settings(bypass_permissions=True))
    backend.set_working_directory(Path.cwd())
    events = [event async for event in backend.run("say two plums")]
    assert "two plums" in "".join(str(event.content) for event in events if event.type == "message"), events
    path = Path("plums.txt").absolute()
    events = [event async for event in backend.run(f'call Write {{"file_path": "{path}", "content": "two"}}\nsay done')]
    assert path.read_text() == "two", events
    await backend.cleanup()


within(main())
