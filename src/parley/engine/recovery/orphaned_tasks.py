"""Background tasks that an earlier engine left behind: reported when its session goes on, once.

The log says which tasks began, how they ended, and the id of the prompt that was to tell the
model of it. One that never ended died with its engine. One whose prompt never came to be a
turn is over, and the model does not know yet. One whose lines were never marked as told may
be unknown to the host (tasks/delivery.py). The host is told before the first turn; the model with the
first turn that takes place, and it knows when the words are in the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from parley.engine.tasks.delivery import Owed
from parley.engine.tasks.task import RUNNING, notification
from parley.protocol.base import Json, convert
from parley.protocol.messages.system import TaskNotification, TaskUpdated
from parley.stores.base import Entry

LOST = "was lost: the engine that ran it ended"


class TaskBook:
    """What the log says of tasks: a fold over its entries."""

    def __init__(self) -> None:
        self._open: dict[str, Json] = {}
        self._unheard: dict[str, str] = {}
        """The news that wait for their turns, by the id of the prompt."""
        self._untold: dict[str, Json] = {}
        """The ends whose lines may not have reached the host, by the id of the last one."""

    def apply(self, entry: Entry) -> None:
        if entry.kind == "user" and self._unheard:
            for uuid in (entry.message.get("uuid"), *(entry.message.get("user_message_uuids") or ())):
                self._unheard.pop(str(uuid), None)
            said = texts_of(entry.message)
            for uuid in [uuid for uuid, words in self._unheard.items() if words in said]:
                del self._unheard[uuid]
        if entry.kind != "task":
            return
        task = entry.message
        if "told" in task:
            self._untold.pop(str(task["told"]), None)
            return
        if task.get("lines"):
            self._untold[task["lines"][-1]["uuid"]] = task
        if task["status"] == RUNNING:
            self._open[task["task_id"]] = task
            return
        self._open.pop(task["task_id"], None)
        if task.get("notice"):
            self._unheard[task["notice"]] = str(task.get("text"))
        for uuid in task.get("known", ()):
            self._unheard.pop(uuid, None)

    def unheard(self, among: Iterable[str]) -> dict[str, str]:
        """The words of those that the model has not heard yet, by the ids of their prompts."""
        return {uuid: self._unheard[uuid] for uuid in among if uuid in self._unheard}

    def report(self, owed: Owed, seconds: Callable[[], float], new_uuid: Callable[[], str]) -> list[str]:
        """Tell the host of what was lost, and what it may have missed; the ids under which the model's news wait."""
        for end in list(self._untold.values()):
            updated, ended = end["lines"]
            owed.tell(end, (convert(updated, TaskUpdated), convert(ended, TaskNotification)))
        waiting = list(self._unheard)
        for task in list(self._open.values()):
            words = f"The task {task['task_id']} ({task['description']}) {LOST}.{way_on(task)}"
            text, uuid = notification(words, "failed", task["output_file"]), new_uuid()
            waiting.append(uuid)
            end = {"task_id": task["task_id"], "status": "failed", "notice": uuid, "text": text}
            about = {"task_id": task["task_id"], "run_id": task["run_id"]}
            at, summary = round(seconds() * 1000), f"{task['description']} {LOST}"
            owed.settle(
                end,
                (
                    TaskUpdated(**about, patch={"status": "failed", "end_time": at}, uuid=new_uuid()),
                    TaskNotification(
                        **about, status="failed", output_file=task["output_file"], summary=summary, uuid=new_uuid()
                    ),
                ),
            )
        return waiting


class LeftBehind:
    """What an earlier engine left behind, until the model knows all of it."""

    def __init__(self, book: TaskBook) -> None:
        self._book = book
        self._waiting: list[str] | None = None

    def news(self, report: Callable[[TaskBook], list[str]]) -> list[str]:
        """The words for the model that it has not heard; the first time the host is told, by `report`."""
        if self._waiting is None:
            self._waiting = report(self._book)
        unheard = self._book.unheard(self._waiting)
        self._waiting = list(unheard)
        return list(unheard.values())


def way_on(task: Json) -> str:
    """An agent has its transcript, and can go on with it; what it changed in a worktree is there."""
    if task.get("task_type") != "local_agent":
        return ""
    place = task.get("worktree")
    apart = f" It worked in the git worktree {place}, which is kept if it changed anything." if place else ""
    return f"{apart} SendMessage to {task['task_id']} lets it go on."


def texts_of(line: Json) -> list[str]:
    content = (line.get("message") or {}).get("content")
    return [str(block.get("text", "")) for block in content] if isinstance(content, list) else []
