"""The conversation as the model sees it.

Conversation     one agent's history and messages (conversation.py)
History          the messages, folded from the log (history.py)
Instructions     the system prompt (system_prompt.py)
Compactor        replaces old messages by a summary (compactor.py; history.py decides when)
report_context   what fills the window (usage_report.py)
"""
