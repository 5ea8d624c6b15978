"""Slash commands and skills.

Commands        all commands of a session, and the expansion of prompts (commands.py)
LOCAL           commands that the engine answers itself (local.py, compact_clear.py)
TurnOverrides   rules and a model until the end of a turn (expansion.py)
"""
