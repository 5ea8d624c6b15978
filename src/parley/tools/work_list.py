"""The work list of the model, in two kinds: TodoWrite, and TaskCreate, TaskUpdate, TaskList and TaskGet.

TodoWrite replaces the whole list. The tasks of the other family can wait for each other: those of a session are one
`TaskBoard` in the notes of the context. A blocked task waits for the tasks in its `blockedBy`; `blocks` and `blockedBy`
are kept consistent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import HIDDEN, REQUIRED, WORK_LIST, Context, NoInput, Tool, ToolOutput
from parley.workspace.base import Scope

Status = Literal["pending", "in_progress", "completed"]
TaskId = Annotated[str, Meta(description="The task's number, as a string")]
PLAIN = {"subject": "subject", "description": "description", "activeForm": "active_form", "owner": "owner"}
"""Fields that are replaced, and their names on a task."""


class Todo(Struct, frozen=True, kw_only=True):
    # Older versions have an id, which is dropped, and no activeForm.
    content: Annotated[str, Meta(min_length=1, description="What is to be done: 'Run the tests'")]
    status: Annotated[Status, Meta(description="How far it is")]
    activeForm: Annotated[str, Meta(description="The same while it is done: 'Running the tests'"), REQUIRED] = ""

    def plain(self) -> Json:
        return {"content": self.content, "status": self.status, "activeForm": self.activeForm or self.content}


class TodoInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    todos: Annotated[list[Todo] | None, Meta(description="The complete new list"), REQUIRED] = None
    # The dialect spec001: one new item.
    subject: Annotated[Annotated[str, Meta(min_length=1)] | None, HIDDEN] = None
    description: Annotated[str, HIDDEN] = ""


class TodoWrite(Tool):
    name = "TodoWrite"
    reads_only = True
    input = TodoInput
    description = (
        "Keeps a list of the steps of your work, so that you and the user see what is done and what is left. Use it "
        "for work of three steps or more. Give the whole list every time. Keep exactly one item in_progress while you "
        "work, and mark an item completed as soon as it is really done, not before."
    )

    async def run(self, call: TodoInput, context: Context, reach: Scope) -> ToolOutput:
        old: list[Json] = context.state.notes.get(self.name, [])
        if call.todos is not None:
            new = [todo.plain() for todo in call.todos]
        elif call.subject is not None:
            words = f"{call.subject}: {call.description}" if call.description else call.subject
            new = [*old, Todo(content=words, status="pending").plain()]
        else:
            raise ToolError("`todos` is missing: give the whole list.")
        context.state.notes[self.name] = new
        rows = [f"- [{todo['status']}] {todo['content']}" for todo in new]
        context.state.notes[WORK_LIST] = lambda: describe_left(rows)
        return ToolOutput(content=format_summary(new), detail={"oldTodos": old, "newTodos": new})


def format_summary(todos: list[Json]) -> str:
    if not todos:
        return "The todo list is empty now."
    done = sum(todo["status"] == "completed" for todo in todos)
    under_way = [todo["content"] for todo in todos if todo["status"] == "in_progress"]
    now = f" In progress: {'; '.join(under_way)}." if under_way else ""
    return f"The todo list is updated: {done} of {len(todos)} done.{now} Continue with the next step."


class ListedTask(Struct, kw_only=True):
    id: str
    subject: str
    description: str
    status: str = "pending"
    active_form: str | None = None
    owner: str | None = None
    metadata: Json = field(default_factory=dict)
    blocked_by: list[str] = field(default_factory=list)


class TaskBoard:
    """All tasks of a session, in the order of creation."""

    def __init__(self) -> None:
        self.tasks: dict[str, ListedTask] = {}
        self._made = 0

    @classmethod
    def of(cls, context: Context) -> TaskBoard:
        board: TaskBoard = context.state.notes.setdefault("tasks", cls())
        context.state.notes[WORK_LIST] = lambda: describe_left(
            [task_line(task, board) for task in board.tasks.values()]
        )
        return board

    def describe(self, task: ListedTask | None, input: Json) -> Json:
        """A task as hooks see it, with the changes of a call; None for a new one."""
        return {
            "task_id": str(self._made + 1) if task is None else task.id,
            "task_subject": input.get("subject") or ("" if task is None else task.subject),
            "task_description": input.get("description") or ("" if task is None else task.description),
        }

    def add(self, task_fields: Json) -> ListedTask:
        self._made += 1
        task = ListedTask(id=str(self._made), **task_fields)
        self.tasks[task.id] = task
        return task

    def find(self, id: str) -> ListedTask:
        """Raises ToolError."""
        task = self.tasks.get(id.lstrip("#"))
        if task is None:
            known = ", ".join(f"#{id}" for id in self.tasks) or "none"
            raise ToolError(f"There is no task #{id.lstrip('#')}. The tasks are: {known}.")
        return task

    def remove(self, id: str) -> None:
        del self.tasks[id]
        for other in self.tasks.values():
            if id in other.blocked_by:
                other.blocked_by.remove(id)

    def add_dependency(self, first: ListedTask, then: ListedTask) -> bool:
        """Make one task wait for another; False if it does already. Raises ToolError if that would be a cycle."""
        if first.id in then.blocked_by:
            return False
        if first is then or then.id in self._waited_for(first):
            raise ToolError(f"Task #{then.id} cannot wait for #{first.id}, which waits for it.")
        then.blocked_by.append(first.id)
        return True

    def _waited_for(self, task: ListedTask) -> Iterator[str]:
        """All tasks that must be finished before a task."""
        waiting, seen = list(task.blocked_by), set[str]()
        while waiting:
            id = waiting.pop()
            if id not in seen:
                seen.add(id)
                yield id
                waiting += self.tasks[id].blocked_by

    def blocks(self, task: ListedTask) -> list[str]:
        return [other.id for other in self.tasks.values() if task.id in other.blocked_by]

    def still_blocking(self, task: ListedTask) -> list[str]:
        return [id for id in task.blocked_by if self.tasks[id].status != "completed"]


class TaskCreateInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    subject: Annotated[str, Meta(min_length=1, description="The task in a few words: 'Fix the login test'")]
    description: Annotated[str, Meta(description="What is to be done, and when it counts as done")]
    activeForm: Annotated[str | None, Meta(description="The same while it is done: 'Fixing the login test'")] = None
    metadata: Annotated[Json | None, Meta(description="Any other data to store with it")] = None


class TaskCreate(Tool):
    name = "TaskCreate"
    reads_only = True
    input = TaskCreateInput
    description = (
        "Adds a task to the list that shows you and the user what is to be done. Use the list for work of three "
        "steps or more; new tasks are pending. TaskUpdate changes them."
    )

    def task_event(self, input: Json, context: Context) -> Json | None:
        """The task that a call adds, as hooks see it before."""
        task = TaskBoard.of(context).describe(None, input)
        return {"event": "TaskCreated", **task}

    async def run(self, call: TaskCreateInput, context: Context, reach: Scope) -> ToolOutput:
        fields: Json = {"subject": call.subject, "description": call.description, "active_form": call.activeForm}
        task = TaskBoard.of(context).add({**fields, "metadata": dict(call.metadata or {})})
        detail = {"task": {"id": task.id, "subject": task.subject, "description": task.description}}
        return ToolOutput(content=f"Task #{task.id} was created: {task.subject}", detail=detail)


class TaskUpdateInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    taskId: TaskId
    status: Annotated[
        Status | Literal["deleted"] | UnsetType, Meta(description="`deleted` removes the task from the list")
    ] = UNSET
    subject: Annotated[str | UnsetType, Meta(description="The new subject")] = UNSET
    description: Annotated[str | UnsetType, Meta(description="The new description")] = UNSET
    activeForm: Annotated[str | UnsetType, Meta(description="The same while it is done")] = UNSET
    owner: Annotated[str | UnsetType, Meta(description="Who does it")] = UNSET
    metadata: Annotated[Json | UnsetType, Meta(description="Keys to set; null removes one")] = UNSET
    addBlocks: Annotated[list[str] | UnsetType, Meta(description="Tasks that must wait for this one")] = UNSET
    addBlockedBy: Annotated[list[str] | UnsetType, Meta(description="Tasks that this one must wait for")] = UNSET


class TaskUpdate(Tool):
    name = "TaskUpdate"
    reads_only = True
    input = TaskUpdateInput
    description = (
        "Changes a task. Set `in_progress` when you start it and `completed` when it is really done: not while "
        "tests fail or parts are missing. `addBlocks` and `addBlockedBy` let tasks wait for each other."
    )

    def task_event(self, input: Json, context: Context) -> Json | None:
        """The task that a call completes, as hooks see it before; None if it completes none."""
        board = TaskBoard.of(context)
        task = board.tasks.get(str(input["taskId"]).lstrip("#"))
        if task is None or input.get("status") != "completed" or task.status == "completed":
            return None
        return {"event": "TaskCompleted", **board.describe(task, input)}

    async def run(self, call: TaskUpdateInput, context: Context, reach: Scope) -> ToolOutput:
        board = TaskBoard.of(context)
        task = board.find(call.taskId)
        # Ties come first: they are all that can fail.
        # All or nothing: an unknown task or a cycle leaves the board unchanged.
        wishes = [("blocks", task, board.find(id)) for id in call.addBlocks or ()]
        wishes += [("blockedBy", board.find(id), task) for id in call.addBlockedBy or ()]
        before = {id: list(other.blocked_by) for id, other in board.tasks.items()}
        try:
            made = [name for name, first, then in wishes if board.add_dependency(first, then)]
        except ToolError:
            for id, blocked_by in before.items():
                board.tasks[id].blocked_by = blocked_by
            raise
        changed = list(dict.fromkeys(made))
        changed += apply_update(task, call)
        detail: Json = {"success": True, "taskId": task.id, "updatedFields": changed}
        if isinstance(call.status, str) and call.status != task.status:
            detail["statusChange"] = {"from": task.status, "to": call.status}
            changed.append("deleted" if call.status == "deleted" else "status")
            task.status = call.status
        if task.status == "deleted":
            board.remove(task.id)
        what = ", ".join(changed) or "nothing: it already has these values"
        return ToolOutput(content=f"Task #{task.id}: changed {what}", detail=detail)


def apply_update(task: ListedTask, call: TaskUpdateInput) -> list[str]:
    changed = []
    for name, attribute in PLAIN.items():
        value = getattr(call, name)
        if value is not UNSET and value != getattr(task, attribute):
            setattr(task, attribute, value)
            changed.append(name)
    if isinstance(call.metadata, dict) and call.metadata:
        task.metadata = {key: value for key, value in {**task.metadata, **call.metadata}.items() if value is not None}
        changed.append("metadata")
    return changed


class TaskList(Tool):
    name = "TaskList"
    reads_only = True
    input = NoInput
    description = (
        "Shows all tasks: number, status, subject, and what each still waits for. Take one that waits for nothing next."
    )

    async def run(self, call: NoInput, context: Context, reach: Scope) -> ToolOutput:
        board = TaskBoard.of(context)
        rows = [task_row(task, board) for task in board.tasks.values()]
        lines = [task_line(task, board) for task in board.tasks.values()]
        return ToolOutput(content="\n".join(lines) or "There are no tasks.", detail={"tasks": rows})


def task_row(task: ListedTask, board: TaskBoard) -> Json:
    owner = {} if task.owner is None else {"owner": task.owner}
    shown: dict[str, Any] = {"id": task.id, "subject": task.subject, "status": task.status, **owner}
    return {**shown, "blockedBy": board.still_blocking(task)}


def task_line(task: ListedTask, board: TaskBoard) -> str:
    owner = f" ({task.owner})" if task.owner else ""
    waits = ", ".join(f"#{id}" for id in board.still_blocking(task))
    return f"#{task.id} [{task.status}] {task.subject}{owner}" + (f" [waits for {waits}]" if waits else "")


class TaskGetInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    taskId: TaskId


class TaskGet(Tool):
    name = "TaskGet"
    reads_only = True
    input = TaskGetInput
    description = "Shows one task in full: its description, what it waits for and what waits for it."

    async def run(self, call: TaskGetInput, context: Context, reach: Scope) -> ToolOutput:
        board = TaskBoard.of(context)
        task = board.tasks.get(call.taskId.lstrip("#"))
        if task is None:
            return ToolOutput(content=f"There is no task #{call.taskId.lstrip('#')}.", detail={"task": None})
        blocks = board.blocks(task)
        ties = {"waits for": task.blocked_by, "is waited for by": blocks}
        lines = [f"Task #{task.id}: {task.subject}", f"Status: {task.status}", f"Description: {task.description}"]
        lines += [f"It {words} {', '.join('#' + id for id in ids)}" for words, ids in ties.items() if ids]
        shown: Json = {"id": task.id, "subject": task.subject, "description": task.description}
        detail = {"task": {**shown, "status": task.status, "blocks": blocks, "blockedBy": list(task.blocked_by)}}
        return ToolOutput(content="\n".join(lines), detail=detail)


def describe_left(rows: list[str]) -> str:
    """The work list as the model is reminded of it; empty if all is done."""
    return "" if all("[completed]" in row for row in rows) else "\n".join(["The work list:", *rows])
