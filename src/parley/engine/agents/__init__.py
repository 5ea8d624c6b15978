"""Subagents, and the agent that a session runs as.

AgentRegistry      the agent definitions (registry.py)
Subagents          starts, resumes and messages subagents (subagents.py)
MainAgent          applies a definition to the session itself (main_agent.py)

They work with the conversation of the session and its parts (session/parts.py).
"""
