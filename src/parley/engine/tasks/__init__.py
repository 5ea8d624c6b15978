"""Background tasks: commands and subagents that outlive the call that started them.

TaskManager            all tasks of a session (manager.py)
SessionTask            one task; CommandTask is a command (manager.py)
PendingNotifications   delivers the messages about ends (manager.py)
Scheduler              queues scheduled prompts at their times (wakeups.py)
"""
