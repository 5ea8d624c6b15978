"""Files: for a client that shows them beside the conversation, and rewound to an earlier message.

The client can read what the Read tool could read without a permission request. Anything else is refused.
"""

from __future__ import annotations

import asyncio
import base64
import os
from typing import TYPE_CHECKING

import msgspec

from parley.errors import NotPossible
from parley.permissions.base import Allow, ToolRequest
from parley.protocol.base import UNSET, Json
from parley.protocol.messages import panel_requests
from parley.tools.files.access import mark_seen
from parley.workspace.base import Scope, SearchArea

if TYPE_CHECKING:
    from parley.engine.session.session import Session

MAX_BYTES = 1 << 20
"""The longest part of a file in one reply, unless the client asks for less."""
MAX_SUGGESTIONS = 15
MAX_FILES = 20_000
SEARCH_SECONDS = 10
ENCODINGS = ("utf-8", "base64")


async def read_file(session: Session, request: panel_requests.ReadFile) -> Json:
    """Raises NotPossible or ToolError."""
    encoding = request.encoding or "utf-8"
    if encoding not in ENCODINGS:
        raise NotPossible(f"the encoding must be one of {', '.join(ENCODINGS)}, not {encoding!r}")
    # The reply is limited like any other line; base64 adds a third.
    cap = session.limits.max_line_bytes // 2
    wanted = request.max_bytes if isinstance(request.max_bytes, int) and request.max_bytes > 0 else MAX_BYTES
    path, reach = resolve_path(session, request.path), check_read(session, request.path)
    snapshot = await asyncio.to_thread(session.config.workspace.files.read, path, reach, min(wanted, cap))
    answer: Json = {"absPath": snapshot.path}
    if snapshot.size > len(snapshot.data):
        answer["truncated"] = True
    if encoding == "base64":
        return {"contents": base64.b64encode(snapshot.data).decode(), **answer, "encoding": "base64"}
    try:
        return {"contents": snapshot.data.decode(), **answer, "lossy": False}
    except UnicodeDecodeError:
        return {"contents": snapshot.data.decode(errors="replace"), **answer, "lossy": True}


async def seed_read_state(session: Session, request: panel_requests.SeedReadState) -> None:
    """The client has shown this file to the model: it counts as read, unless it has changed since."""
    context = session.conversation.tool_context
    path, reach = resolve_path(session, request.path), check_read(session, request.path)
    snapshot = await asyncio.to_thread(context.files.peek, path, reach)
    # Times of the client are whole milliseconds.
    if snapshot is not None and snapshot.mtime_ns // 1_000_000 <= request.mtime:
        mark_seen(context, snapshot, whole=True)


async def file_suggestions(session: Session, request: panel_requests.FileSuggestions) -> Json:
    """Files of the working directory that match a query."""
    context, settings = session.conversation.tool_context, session.config.settings
    if context.open_search is None:
        return {"suggestions": []}
    cwd = context.state.cwd
    area = SearchArea(path=cwd, cwd=cwd, scope=Scope(folders=(cwd,)), hides=context.hides)
    last_moment = context.clock() + SEARCH_SECONDS
    found = await asyncio.to_thread(
        context.open_search().files,
        "**/*",
        area,
        most=MAX_FILES,
        ignored=settings is not None and settings.merged.get("respectGitignore") is False,
        hidden=False,
        stop=lambda: context.clock() > last_moment,
    )
    return {"suggestions": [{"path": path} for path in rank_suggestions(found.paths, request.query)]}


def rank_suggestions(paths: list[str], query: str) -> list[str]:
    """Paths that contain the query: matches in the file name first, then the shortest."""
    query = query.lower()
    fitting = [path for path in paths if query in path.lower()]
    return sorted(fitting, key=lambda path: (query not in os.path.basename(path).lower(), len(path), path))[
        :MAX_SUGGESTIONS
    ]


def resolve_path(session: Session, path: str) -> str:
    return os.path.normpath(os.path.join(session.conversation.tool_context.state.cwd, path))


def check_read(session: Session, path: str) -> Scope:
    """The scope of a read of this path. Raises NotPossible."""
    where = resolve_path(session, path)
    context = session.conversation.tool_context
    request = ToolRequest(
        tool="Read", input={"file_path": where}, cwd=context.state.cwd, reads_only=True, worktree=context.worktree
    )
    decision = session.config.permissions.policy.decide(request, session.mode)
    if not isinstance(decision, Allow):
        raise NotPossible(f"reading {path} is not allowed: {decision.reason or 'it needs approval'}")
    return decision.scope


async def rewind_files(session: Session, request: panel_requests.RewindFiles) -> panel_requests.RewindAnswer:
    if not session.config.options.file_checkpointing:
        raise NotPossible("File rewinding is not enabled.")
    dry_run = request.dry_run is True
    files = session.config.workspace.files
    with_diffs = dry_run and request.diffs is True
    rewound = await asyncio.to_thread(files.rewind, request.user_message_id, dry_run=dry_run, with_diffs=with_diffs)
    # Clients ignore the answer to a rewind, but not an error. A dry run answers with the reason.
    if not rewound.possible and not (dry_run and rewound.left_alone):
        raise NotPossible(rewound.reason)
    reason = rewound.reason or UNSET
    if not dry_run:
        return panel_requests.RewindAnswer(canRewind=True, error=reason, skippedLinks=rewound.skipped_links)
    return panel_requests.RewindAnswer(
        canRewind=rewound.possible,
        error=reason,
        filesChanged=list(rewound.files),
        insertions=rewound.insertions,
        deletions=rewound.deletions,
        diffs=[msgspec.structs.asdict(diff) for diff in rewound.diffs] if with_diffs else UNSET,
    )
