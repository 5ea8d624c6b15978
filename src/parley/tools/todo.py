"""TodoWrite: the model's list of what is to be done, replaced as a whole."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from parley.protocol.base import Json, Struct
from parley.tools.base import Context, Result
from parley.workspace.base import Reach

Status = Literal["pending", "in_progress", "completed"]


class Todo(Struct, frozen=True, kw_only=True):
    content: Annotated[str, Meta(min_length=1, description="What is to be done: 'Run the tests'")]
    status: Status
    activeForm: Annotated[str, Meta(min_length=1, description="The same while it is done: 'Running the tests'")]


class TodoWriteInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    todos: Annotated[list[Todo], Meta(description="The whole list as it is from now on")]


class TodoWrite:
    name: ClassVar[str] = "TodoWrite"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = TodoWriteInput
    description: ClassVar[str] = (
        "Keeps a list of the steps of your work, so that you and the user see what is done and what is left. Use it "
        "for work of three steps or more. Give the whole list every time. Keep exactly one item in_progress while you "
        "work, and mark an item completed as soon as it is really done, not before."
    )

    def prepare(self, input: Json, context: Context) -> Json:
        """Older spellings: items without activeForm (seed 003), one new item as subject and description (seed 001)."""
        if "todos" not in input and isinstance(input.get("subject"), str):
            words = [text for text in (input["subject"], input.get("description")) if isinstance(text, str) and text]
            return {"todos": [*current(context), completed({"content": ": ".join(words), "status": "pending"})]}
        todos = input.get("todos")
        return {**input, "todos": [*map(completed, todos)]} if isinstance(todos, list) else input

    async def run(self, call: TodoWriteInput, context: Context, reach: Reach) -> Result:
        old = current(context)
        new = context.notes[self.name] = [msgspec.to_builtins(todo) for todo in call.todos]
        return Result(content=summary(call.todos), detail={"oldTodos": old, "newTodos": new})


def current(context: Context) -> list[Json]:
    todos: list[Json] = context.notes.get(TodoWrite.name, [])
    return todos


def completed(todo: Json) -> Json:
    """The item with an activeForm."""
    if not isinstance(todo, dict) or todo.get("activeForm"):
        return todo
    return {**todo, "activeForm": todo.get("content")}


def summary(todos: list[Todo]) -> str:
    if not todos:
        return "The todo list is empty now."
    done = sum(todo.status == "completed" for todo in todos)
    under_way = [todo.content for todo in todos if todo.status == "in_progress"]
    now = f" Under way: {'; '.join(under_way)}." if under_way else ""
    return f"The todo list is updated: {done} of {len(todos)} done.{now} Go on with the next step."
