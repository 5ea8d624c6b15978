"""Background tasks that an earlier engine left behind: reported when its session goes on, once.

The log says which tasks began, how they ended, and the id of the prompt that was to tell the
model of it. One that never ended died with its engine. One whose prompt never came to be a
turn is over, and the model does not know yet. Both are told before the first turn.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.engine.task import RUNNING, notification
from parley.protocol.base import Json, Message
from parley.protocol.messages.system import TaskNotification, TaskUpdated
from parley.stores.base import Entry

LOST = "was lost: the engine that ran it ended"


class TaskBook:
    """What the log says of tasks: a fold over its entries."""

    def __init__(self) -> None:
        self._open: dict[str, Json] = {}
        self._unheard: dict[str, str] = {}
        """The news that wait for their turns, by the id of the prompt."""

    def apply(self, entry: Entry) -> None:
        if entry.kind == "user" and self._unheard:
            for uuid in (entry.message.get("uuid"), *(entry.message.get("user_message_uuids") or ())):
                self._unheard.pop(str(uuid), None)
        if entry.kind != "task":
            return
        task = entry.message
        if task["status"] == RUNNING:
            self._open[task["task_id"]] = task
            return
        self._open.pop(task["task_id"], None)
        if task.get("notice"):
            self._unheard[task["notice"]] = str(task.get("text"))
        for uuid in task.get("known", ()):
            self._unheard.pop(uuid, None)

    def report(
        self, note: Callable[[str, Json], None], tell: Callable[[Message], None], seconds: Callable[[], float]
    ) -> list[str]:
        """Tell of what was left behind; the words for the model. Raises SessionError."""
        news = list(self._unheard.values())
        for uuid in list(self._unheard):
            note("task", {"task_id": "", "status": "known", "known": [uuid]})
        for task in list(self._open.values()):
            words = f"The task {task['task_id']} ({task['description']}) {LOST}."
            news.append(notification(words, "failed", task["output_file"]))
            note("task", {"task_id": task["task_id"], "status": "failed", "notice": None})
            patch = {"status": "failed", "end_time": round(seconds() * 1000)}
            tell(TaskUpdated(task_id=task["task_id"], run_id=task["run_id"], patch=patch))
            tell(
                TaskNotification(
                    task_id=task["task_id"],
                    run_id=task["run_id"],
                    status="failed",
                    output_file=task["output_file"],
                    summary=f"{task['description']} {LOST}",
                )
            )
        return news
