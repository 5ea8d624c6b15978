"""A computer from anywhere: a turn, a tool call, and a second turn in the same session."""

# /// script
# dependencies = ["cptr==0.9.21", "claude-agent-sdk==0.2.184"]
# ///
import os
from pathlib import Path

from cptr.utils.agents.attachments import PreparedAgentAttachments
from cptr.utils.agents.claude_code import run_claude_code_agent
from recipe import within


async def ask(prompt: str, state: object = None) -> list[object]:
    events = run_claude_code_agent(
        profile={"id": "plums", "command": os.environ["CLAUDE_CLI_PATH"]},
        model="default",
        workspace=os.getcwd(),
        messages=[{"role": "user", "content": prompt}],
        system_prompt="",
        chat_params={"tool_approval_mode": "full"},
        resume_state=state,
        attachments=PreparedAgentAttachments([], [], ""),
    )
    return [event async for event in events]


async def main() -> None:
    first = await ask("say two plums")
    assert "".join(event.text for event in first if type(event).__name__ == "AgentTextDelta") == "two plums", first
    path = Path("plums.txt").absolute()
    await ask(f'call Write {{"file_path": "{path}", "content": "two"}}\nsay done', first[-1].resume_state)
    assert path.read_text() == "two"


within(main())
