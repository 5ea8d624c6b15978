"""Tools that move the session into a git worktree and back: EnterWorktree and ExitWorktree."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Protocol

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, Tool, ToolOutput, open_service
from parley.workspace.base import Scope, Worktree, WorktreeChanges

LONGEST_NAME = 64
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


class SessionWorktrees(Protocol):
    async def enter(self, name: str | None, path: str | None) -> Worktree:
        """Create a worktree, or find the one at `path`, and continue in it. Raises ToolError."""

    async def leave(self, *, remove: bool, discard: bool) -> tuple[Worktree, WorktreeChanges]:
        """Return to the session's checkout. Returns the worktree, and what was discarded with it. Raises ToolError."""


class EnterWorktreeInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str | None, Meta(description="The name of a new worktree")] = None
    path: Annotated[str | None, Meta(description="The path of an existing worktree, instead of a name")] = None


class EnterWorktree(Tool):
    name = "EnterWorktree"
    reads_only = False
    input = EnterWorktreeInput
    description = "Continues the session in a git worktree, beside the user's checkout. Only if the user asks for it."

    async def run(self, call: EnterWorktreeInput, context: Context, reach: Scope) -> ToolOutput:
        if call.name and call.path:
            raise ToolError("Give either name or path, not both.")
        if call.name and (len(call.name) > LONGEST_NAME or not NAME.fullmatch(call.name)):
            raise ToolError(
                f"The name {call.name!r} is invalid: use letters, digits, dots, underscores and dashes, with / between "
                f"parts, at most {LONGEST_NAME} characters."
            )
        worktree = await open_service(context.session.open_worktrees, "Git worktrees").enter(
            call.name or None, call.path or None
        )
        text = (
            f"The session now works in the git worktree {worktree.path}, on the branch {worktree.branch}. The working "
            f"directory is {worktree.cwd}. Instead of files in {worktree.top}, use their copies in the worktree."
        )
        detail: Json = {"worktreePath": worktree.path, "worktreeBranch": worktree.branch, "message": text}
        return ToolOutput(content=text, detail=detail)


class ExitWorktreeInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    action: Annotated[Literal["keep", "remove"], Meta(description="What happens to the worktree")]
    discard_changes: Annotated[bool | None, Meta(description="Remove the worktree even if work is lost")] = None


class ExitWorktree(Tool):
    name = "ExitWorktree"
    reads_only = False
    input = ExitWorktreeInput
    description = "Returns from the worktree of EnterWorktree to the user's checkout."

    async def run(self, call: ExitWorktreeInput, context: Context, reach: Scope) -> ToolOutput:
        remove = call.action == "remove"
        worktree, lost = await open_service(context.session.open_worktrees, "Git worktrees").leave(
            remove=remove, discard=call.discard_changes is True
        )
        what = "was removed with its branch" if remove else f"is kept, on the branch {worktree.branch}"
        text = f"The session works in the user's checkout again. The worktree {worktree.path} {what}."
        detail: Json = {
            "action": call.action,
            "originalCwd": worktree.original(worktree.cwd),
            "worktreePath": worktree.path,
            "worktreeBranch": worktree.branch,
            "message": text,
        }
        if remove:
            detail |= {"discardedFiles": lost.files, "discardedCommits": lost.commits}
        return ToolOutput(content=text, detail=detail)
