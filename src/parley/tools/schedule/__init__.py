"""Tools that have a prompt come back later: ScheduleWakeup and the Cron family.

CronExpression     five fields, the next time they match (cron.py)
Schedule           the interface of scheduled prompts; the engine implements it (jobs.py)
open_schedule      the scheduled prompts of the session (access.py)
"""
