"""A model of Pydantic AI: an answer, and a second one with the history of the first."""

# /// script
# dependencies = ["pydantic-ai-claude-code==0.8.1", "pydantic-ai==1.39.1"]
# [tool.program]
# turns = [{ text = "two plums" }]
# ///
import os

from pydantic_ai import Agent
from pydantic_ai_claude_code import ClaudeCodeModel, ClaudeCodeProvider

provider = ClaudeCodeProvider({"working_directory": os.getcwd(), "use_sandbox_runtime": False})
agent = Agent(ClaudeCodeModel("sonnet", provider=provider))
first = agent.run_sync("How many plums?")
assert first.output == "two plums", first
again = agent.run_sync("And now?", message_history=first.all_messages())
assert again.output == "two plums", again
