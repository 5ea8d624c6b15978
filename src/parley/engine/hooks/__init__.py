"""Run hooks at the events of a session, and apply their answers.

HookRegistry     which hooks a session has (registry.py)
SessionEvents    the events of a session, and what hooks can answer (registry.py)
HookDispatcher   runs the hooks at these events (turn_hooks.py)
"""
