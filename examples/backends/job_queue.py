"""A queue of jobs in SQLite, and the worker that does them. A worker that is killed leaves nothing undone.

    python job_queue.py add "Summarize the README."
    python job_queue.py work                          until the queue is empty
    python job_queue.py list

Each job has a session of its own. If the worker is killed, the next one continues the session of the job, so the model
knows what was already done. A job that fails is tried again, at most three times.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
from uuid import uuid4

from parley import ClaudeSDKError, Options, get_session_info, run

MODEL = os.environ.get("JOB_MODEL", "offline")
WORKERS = int(os.environ.get("JOB_WORKERS", "4"))
MOST_ATTEMPTS = 3
LEASE_SECONDS = 600.0
"""A job that was started so long ago belongs to a worker that is gone."""
CONTINUE = "You were interrupted. Continue with this task: "


def open_queue() -> sqlite3.Connection:
    queue = sqlite3.connect("jobs.db", isolation_level=None, timeout=30)
    queue.execute(
        "CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, prompt TEXT, state TEXT DEFAULT 'waiting', answer TEXT, "
        "attempts INTEGER DEFAULT 0, started_at REAL DEFAULT 0)"
    )
    return queue


def claim(queue: sqlite3.Connection) -> tuple[str, str] | None:
    """Take a job that waits, or whose worker is gone. One statement, so no two workers take the same."""
    found: tuple[str, str] | None = queue.execute(
        "UPDATE jobs SET state = 'running', attempts = attempts + 1, started_at = ? WHERE id = (SELECT id FROM jobs "
        "WHERE state = 'waiting' OR (state = 'running' AND started_at < ?) ORDER BY started_at LIMIT 1) "
        "RETURNING id, prompt",
        (time.time(), time.time() - float(os.environ.get("JOB_LEASE_SECONDS", LEASE_SECONDS))),
    ).fetchone()
    return found


async def work(queue: sqlite3.Connection) -> None:
    while (job := claim(queue)) is not None:
        job_id, prompt = job
        has_started = get_session_info(job_id, directory=os.getcwd()) is not None
        options = Options(
            model=MODEL,
            engine="local",
            permission_mode="acceptEdits",
            resume=job_id if has_started else None,
            session_id=None if has_started else job_id,
        )
        try:
            answer = await run(CONTINUE + prompt if has_started else prompt, options)
        except ClaudeSDKError as exc:
            end = f"CASE WHEN attempts < {MOST_ATTEMPTS} THEN 'waiting' ELSE 'failed' END"
            queue.execute(f"UPDATE jobs SET state = {end}, answer = ? WHERE id = ?", (str(exc), job_id))
        else:
            queue.execute("UPDATE jobs SET state = 'done', answer = ? WHERE id = ?", (answer.text, job_id))


async def main(command: str, *words: str) -> None:
    queue = open_queue()
    if command == "add":
        queue.executemany("INSERT INTO jobs (id, prompt) VALUES (?, ?)", [(str(uuid4()), word) for word in words])
    elif command == "work":
        await asyncio.gather(*(work(queue) for _ in range(WORKERS)))
    for state, prompt, answer in queue.execute("SELECT state, prompt, answer FROM jobs ORDER BY rowid"):
        print(f"{state}\t{prompt}\t{answer or ''}")


asyncio.run(main(*sys.argv[1:] or ["list"]))
