"""Agno's wrapper of the Python SDK: an answer."""

# /// script
# dependencies = ["agno==3.1.10", "claude-agent-sdk==0.2.184"]
# ///
from agno.agents.claude import ClaudeAgent
from recipe import within

agent = ClaudeAgent(name="Plums")
answer = within(agent.arun("say two plums"))
assert answer.content == "two plums", answer
