"""Background tasks that an earlier engine left behind. They are reported once, when the session is resumed.

The log says which tasks started, how they ended, and the id of the prompt that notifies the model:

    a task without an end              ended with its engine
    an end whose prompt had no turn    the model does not know it yet
    an end without a delivery mark     the client may not know it (tasks/delivery.py)

The client is notified before the first turn. The model is notified with the first turn that calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from parley.engine.tasks.delivery import RUNNING, PendingNotifications, notification_text
from parley.protocol.base import UNSET, Json, convert
from parley.protocol.messages.system import TaskNotification, TaskUpdated
from parley.stores.base import Entry

LOST = "was lost: the engine that ran it exited"
RESTARTED = "worker_restart"
"""The `reason` of the notification."""


class TaskLog:
    """The tasks in the log: a fold over its entries."""

    def __init__(self) -> None:
        self._open: dict[str, Json] = {}
        self._unread: dict[str, str] = {}
        """The notifications without a turn, by the id of their prompt."""
        self._unsent: dict[str, Json] = {}
        """The ends whose messages may not have reached the client, by the uuid of the last message."""

    def apply(self, entry: Entry) -> None:
        if entry.kind == "user" and self._unread:
            for uuid in (entry.message.get("uuid"), *(entry.message.get("user_message_uuids") or ())):
                self._unread.pop(str(uuid), None)
            said = find_texts(entry.message)
            for uuid in [uuid for uuid, words in self._unread.items() if words in said]:
                del self._unread[uuid]
        if entry.kind != "task":
            return
        task = entry.message
        if "told" in task:
            self._unsent.pop(str(task["told"]), None)
            return
        if task.get("lines"):
            self._unsent[task["lines"][-1]["uuid"]] = task
        if task["status"] == RUNNING:
            self._open[task["task_id"]] = task
            return
        self._open.pop(task["task_id"], None)
        if task.get("notice"):
            self._unread[task["notice"]] = str(task.get("text"))
        for uuid in task.get("known", ()):
            self._unread.pop(uuid, None)

    def find_unread(self, among: Iterable[str]) -> dict[str, str]:
        """The notifications that the model has not read, by the ids of their prompts."""
        return {uuid: self._unread[uuid] for uuid in among if uuid in self._unread}

    def report(
        self, notifications: PendingNotifications, seconds: Callable[[], float], new_uuid: Callable[[], str]
    ) -> list[str]:
        """Notify the client of lost tasks and undelivered ends; the ids of the notifications for the model."""
        for end in list(self._unsent.values()):
            updated, ended = end["lines"]
            notifications.send(end, (convert(updated, TaskUpdated), convert(ended, TaskNotification)))
        waiting = list(self._unread)
        for task in list(self._open.values()):
            words = f"The task {task['task_id']} ({task['description']}) {LOST}.{continue_hint(task)}"
            text, uuid = notification_text(words, "failed", task["output_file"]), new_uuid()
            waiting.append(uuid)
            end = {"task_id": task["task_id"], "status": "failed", "notice": uuid, "text": text}
            about = {"task_id": task["task_id"], "run_id": task["run_id"]}
            at, summary = round(seconds() * 1000), f"{task['description']} {LOST}"
            patch = {"status": "killed", "end_time": at, "error": LOST}
            notifications.append_and_send(
                end,
                (
                    TaskUpdated(**about, patch=patch, uuid=new_uuid()),
                    TaskNotification(
                        **about,
                        status="stopped",
                        reason=RESTARTED,
                        output_file=task["output_file"],
                        summary=summary,
                        ambient=task.get("ambient", UNSET),
                        uuid=new_uuid(),
                    ),
                ),
            )
        return waiting


class OrphanedTasks:
    """The tasks of an earlier engine, until the model has read about all of them."""

    def __init__(self, log: TaskLog) -> None:
        self._log = log
        self._waiting: list[str] | None = None

    def unread_texts(self, report: Callable[[TaskLog], list[str]]) -> list[str]:
        """The texts that the model has not read. The first call notifies the client through `report`."""
        if self._waiting is None:
            self._waiting = report(self._log)
        unread = self._log.find_unread(self._waiting)
        self._waiting = list(unread)
        return list(unread.values())


def continue_hint(task: Json) -> str:
    """How the model can continue an agent: from its transcript, and in its worktree."""
    if task.get("task_type") != "local_agent":
        return ""
    place = task.get("worktree")
    apart = f" It worked in the git worktree {place}, which is kept if it changed anything." if place else ""
    return f"{apart} SendMessage to {task['task_id']} resumes it."


def find_texts(line: Json) -> list[str]:
    content = (line.get("message") or {}).get("content")
    return [str(block.get("text", "")) for block in content] if isinstance(content, list) else []
