"""Run hooks at the events of a session, and apply their answers.

HookRegistry     which hooks a session has (registry.py)
SessionEvents    the events of a session, and what hooks can answer (base.py)
HookDispatcher   runs the hooks at these events (dispatcher.py)
"""
