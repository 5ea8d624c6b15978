"""Run hooks at the events of a session, and apply their answers.

HookRegistry     which hooks a session has (registry.py)
HookDispatcher   fires an event and merges the answers (dispatcher.py)
ToolHooks        events around a tool call (tool_hooks.py)
TurnHooks        events around a turn (turn_hooks.py)
SessionHooks     the other events of a session (session_hooks.py)
"""
