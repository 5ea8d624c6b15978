"""ExitWorktree: return to the checkout of the session."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.worktree.access import open_worktrees
from parley.workspace.base import Scope


class ExitWorktreeShown(Struct, frozen=True, kw_only=True):
    """The input as the model sees it."""

    action: Literal["keep", "remove"]
    discard_changes: Annotated[bool, Meta(description="Remove the worktree even if work is lost")] = False


class ExitWorktreeInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    action: Literal["keep", "remove"]
    discard_changes: bool | None = None


class ExitWorktree:
    name: ClassVar[str] = "ExitWorktree"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = ExitWorktreeInput
    shown: ClassVar[type[Struct]] = ExitWorktreeShown
    description: ClassVar[str] = "Returns from the worktree of EnterWorktree to the user's checkout."

    async def run(self, call: ExitWorktreeInput, context: Context, reach: Scope) -> ToolOutput:
        remove = call.action == "remove"
        worktree, lost = await open_worktrees(context).leave(remove=remove, discard=call.discard_changes is True)
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
