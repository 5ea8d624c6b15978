"""Scheduled prompts: what CronCreate and ScheduleWakeup ask for.

Scheduler       queues the prompts at their times (scheduler.py)
ScheduleLog     the jobs in the log: a fold over its entries (scheduler.py)
"""
