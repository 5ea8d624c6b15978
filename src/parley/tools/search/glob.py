"""Glob: find files by a path pattern, most recently changed first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, ClassVar

from msgspec import Meta

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.paths import resolve_path
from parley.workspace.base import FileListing, Scope, SearchArea

MOST_FILES = 100
TIMEOUT_SECONDS = 20.0


class GlobInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(description="The pattern, e.g. src/**/*.{ts,tsx}")]
    path: Annotated[str | None, Meta(description="The folder to search; default: the working directory")] = None


class GlobTool:
    name: ClassVar[str] = "Glob"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = GlobInput
    description: ClassVar[str] = (
        "Finds files by their paths, the most recently changed first. `*` and `?` stay within a name, `**` stands "
        "for any number of folders, `[a-z]` and `{a,b}` for choices; a pattern without a slash matches names in all "
        f"folders. Shows at most {MOST_FILES} files. Leaves out what ignore files such as .gitignore name, unless "
        "the pattern or `path` leads into it by name."
    )

    async def run(self, call: GlobInput, context: Context, reach: Scope) -> ToolOutput:
        started_at = context.clock()
        seconds = timeout_seconds(context.environment)
        given_up = threading.Event()

        def too_late() -> bool:
            return given_up.is_set() or context.clock() - started_at > seconds

        try:
            listing = await run_in_thread(lambda: find_files(call, context, reach, too_late))
        finally:
            given_up.set()
        if listing.stopped and not listing.paths:
            raise ToolError(f"No file was found within {seconds:g} seconds. Give a narrower pattern or path.")
        return format_result(listing, context.clock() - started_at)


def find_files(call: GlobInput, context: Context, reach: Scope, stop: Callable[[], bool]) -> FileListing:
    """Raises ToolError."""
    environment = context.environment
    if context.open_search is None:
        raise ToolError("Searching files is not available in this session.")
    if call.pattern.startswith("~/"):
        resolve_path(call.pattern, context)  # says what is wrong with it
    area = SearchArea(
        path=resolve_path(call.path, context) if call.path else context.state.cwd,
        cwd=context.state.cwd,
        scope=reach,
        hides=context.hides,
    )
    return context.open_search().files(
        call.pattern,
        area,
        most=MOST_FILES,
        ignored=environment.get("CLAUDE_CODE_GLOB_NO_IGNORE", "").lower() in ("1", "true"),
        hidden=environment.get("CLAUDE_CODE_GLOB_HIDDEN", "").lower() not in ("0", "false"),
        stop=stop,
    )


def timeout_seconds(environment: dict[str, str]) -> float:
    try:
        seconds = float(environment.get("CLAUDE_CODE_GLOB_TIMEOUT_SECONDS", ""))
    except ValueError:
        return TIMEOUT_SECONDS
    return seconds if 0 < seconds < float("inf") else TIMEOUT_SECONDS


def format_result(listing: FileListing, seconds: float) -> ToolOutput:
    shown, total = len(listing.paths), listing.total
    truncated = shown < total
    detail: Json = {
        "filenames": listing.paths,
        "durationMs": round(seconds * 1000),
        "numFiles": shown,
        "truncated": truncated,
        "totalMatches": total,
        "countIsComplete": listing.complete,
    }
    lines = listing.paths or ["No files found"]
    if truncated:
        lines = [*lines, f"(These are the {shown} newest of {total}. A narrower pattern or path shows others.)"]
    if listing.stopped:
        detail["timedOut"] = True
        lines = [*lines, f"(The search was stopped after {seconds:.0f} seconds; there may be more.)"]
    return ToolOutput(content="\n".join(lines), detail=detail)
