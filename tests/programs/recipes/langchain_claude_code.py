"""A chat model for LangChain, on the Python SDK: an answer, a stream, a tool that runs in the process."""

# /// script
# dependencies = ["langchain-claude-code==0.1.0"]
# ///
from pathlib import Path

from langchain_claude_code import ClaudeCodeChatModel

model = ClaudeCodeChatModel(permission_mode="acceptEdits", allowed_tools=["Write"])
assert model.invoke("Count.\nsay two plums").content == "two plums"
assert "".join(str(chunk.content) for chunk in model.stream("Count.\nsay three plums")).strip().endswith("three plums")

path = Path("plums.txt").absolute()
model.invoke(f'Write.\ncall Write {{"file_path": "{path}", "content": "four"}}\nsay done')
assert path.read_text() == "four"
