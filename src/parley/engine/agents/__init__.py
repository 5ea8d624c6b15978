"""Subagents, and the agent that a session runs as.

AgentRegistry      the agent definitions (registry.py)
Subagents          starts, resumes and messages subagents (subagents.py)
MainAgent          applies a definition to the session itself (setup.py)
"""
