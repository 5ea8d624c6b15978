"""TodoWrite: replace the work list of the model."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.workspace.base import Scope

Status = Literal["pending", "in_progress", "completed"]


class Todo(Struct, frozen=True, kw_only=True):
    content: Annotated[str, Meta(min_length=1, description="What is to be done: 'Run the tests'")]
    status: Status
    activeForm: Annotated[str, Meta(min_length=1, description="The same while it is done: 'Running the tests'")]


class TodoWriteInput(Struct, frozen=True, kw_only=True):
    """The input as the model sees it."""

    todos: Annotated[list[Todo], Meta(description="The complete new list")]


class ReadTodo(Struct, frozen=True, kw_only=True):
    """The input as it is read: older versions have an id, which is dropped, and no activeForm."""

    content: Annotated[str, Meta(min_length=1)]
    status: Status
    activeForm: str = ""

    def plain(self) -> Json:
        return {"content": self.content, "status": self.status, "activeForm": self.activeForm or self.content}


class TodoInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    todos: list[ReadTodo] | None = None
    # The dialect spec001: one new item.
    subject: Annotated[str, Meta(min_length=1)] | None = None
    description: str = ""


class TodoWrite:
    name: ClassVar[str] = "TodoWrite"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = TodoInput
    shown: ClassVar[type[Struct]] = TodoWriteInput
    description: ClassVar[str] = (
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
            new = [*old, ReadTodo(content=words, status="pending").plain()]
        else:
            raise ToolError("`todos` is missing: give the whole list.")
        context.state.notes[self.name] = new
        return ToolOutput(content=format_summary(new), detail={"oldTodos": old, "newTodos": new})


def format_summary(todos: list[Json]) -> str:
    if not todos:
        return "The todo list is empty now."
    done = sum(todo["status"] == "completed" for todo in todos)
    under_way = [todo["content"] for todo in todos if todo["status"] == "in_progress"]
    now = f" In progress: {'; '.join(under_way)}." if under_way else ""
    return f"The todo list is updated: {done} of {len(todos)} done.{now} Continue with the next step."
