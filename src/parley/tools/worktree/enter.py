"""EnterWorktree: continue the session in a git worktree."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.worktree.access import open_worktrees
from parley.workspace.base import Scope

LONGEST_NAME = 64
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


class EnterWorktreeShown(Struct, frozen=True, kw_only=True):
    """The input as the model sees it."""

    name: Annotated[str, Meta(description="The name of a new worktree")] = ""
    path: Annotated[str, Meta(description="The path of an existing worktree, instead of a name")] = ""


class EnterWorktreeInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str | None = None
    path: str | None = None


class EnterWorktree:
    name: ClassVar[str] = "EnterWorktree"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = EnterWorktreeInput
    shown: ClassVar[type[Struct]] = EnterWorktreeShown
    description: ClassVar[str] = (
        "Continues the session in a git worktree, beside the user's checkout. Only if the user asks for it."
    )

    async def run(self, call: EnterWorktreeInput, context: Context, reach: Scope) -> ToolOutput:
        if call.name and call.path:
            raise ToolError("Give either name or path, not both.")
        if call.name and (len(call.name) > LONGEST_NAME or not NAME.fullmatch(call.name)):
            raise ToolError(
                f"The name {call.name!r} is invalid: use letters, digits, dots, underscores and dashes, with / between "
                f"parts, at most {LONGEST_NAME} characters."
            )
        worktree = await open_worktrees(context).enter(call.name or None, call.path or None)
        text = (
            f"The session now works in the git worktree {worktree.path}, on the branch {worktree.branch}. The working "
            f"directory is {worktree.cwd}. Instead of files in {worktree.top}, use their copies in the worktree."
        )
        detail: Json = {"worktreePath": worktree.path, "worktreeBranch": worktree.branch, "message": text}
        return ToolOutput(content=text, detail=detail)
