"""Files: for a client that shows them beside the conversation, and rewound to an earlier message.

The client can read what the Read tool could read without a permission request. Anything else is refused.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import msgspec

from parley.engine.commands.expansion import HEADING, is_sent
from parley.engine.context.system_prompt import CWD, is_replaced
from parley.engine.control.settings import reload_plugins, reload_templates
from parley.errors import NotPossible, SessionError
from parley.permissions.base import Allow, InvalidUpdate, ToolRequest
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
        ignored=settings.merged.get("respectGitignore") is False,
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


def register_repo_root(session: Session, request: panel_requests.RegisterRepoRoot) -> Json:
    """Add a directory below the launch directories, for example a repository that was cloned there."""
    config = session.config
    if config.is_remote:
        raise NotPossible("register_repo_root: not possible in a remote workspace; start the session with --add-dir")
    if session.is_running and request.reload_claude_md is True:
        raise NotPossible("register_repo_root: reload_claude_md is not possible while a turn is running")
    directory = "" if "\0" in request.directory else os.path.realpath(os.path.join(config.cwd, request.directory))
    if not os.path.isdir(directory):
        raise NotPossible(f"register_repo_root: there is no directory {request.directory!r:.500}")
    launch = [
        os.path.realpath(os.path.join(config.cwd, root)) for root in (config.cwd, *(config.options.add_dirs or ()))
    ]
    if directory == launch[0]:
        raise NotPossible(f"register_repo_root: {directory} is the working directory of the session")
    known = {os.path.realpath(folder) for folder in config.permissions.policy.list_folders()}
    if directory in known:
        raise NotPossible(f"register_repo_root: {directory} is already a working directory")
    if not any(directory.startswith(root.rstrip("/") + "/") for root in launch):
        raise NotPossible(
            f"register_repo_root: {directory} is not below the working directory of the session "
            "or a directory of --add-dir"
        )
    add_directory(session, directory)
    session.hooks.events.notify("DirectoryAdded", {"directory": directory, "source": "register_repo_root"})
    if request.reload_plugins is True:
        reload_plugins(session, panel_requests.ReloadPlugins())
    elif request.reload_skills is True:
        reload_templates(session)
    if request.reload_claude_md is True:
        append_memory(session, directory)
    return {"directory": directory}


def set_cwd(session: Session, request: panel_requests.SetCwd) -> Json | Awaitable[Json]:
    """Move the session to another directory. The answer waits for the CwdChanged hooks.

    The settings, hooks and MCP servers of the folder are not read: they belong to the start of a session.
    """
    state = session.conversation.tool_context.state
    if session.config.is_remote:
        return reject("not_permitted", "Not possible in a remote workspace: start a session in that folder.")
    if not request.path or "\0" in request.path:
        raise NotPossible("set_cwd: path must be a non-empty string without null bytes")
    path = os.path.realpath(os.path.join(state.cwd, os.path.expanduser(request.path)))
    if not os.path.isdir(path):
        return reject("not_found", f"There is no directory {path}.")
    if session.is_running:
        return reject("busy", "A turn is running. Change the directory when it has ended.")
    if path == os.path.realpath(state.cwd):
        return {"status": "ok", "cwd": path, "changed": False, "transcript_relocated": False}
    try:
        add_directory(session, path)
    except NotPossible as exc:
        return reject("not_permitted", str(exc))
    old, state.cwd = state.cwd, path
    tell_model(session, path)
    answer = {"status": "ok", "cwd": path, "changed": True, "transcript_relocated": False}
    awaits_hooks = any(map(session.hooks.events.has_hooks, ("CwdChanged", "FileChanged")))
    return answer_after_hooks(session, answer, old) if awaits_hooks else answer


async def answer_after_hooks(session: Session, answer: Json, old_cwd: str) -> Json:
    await session.hooks.events.cwd_changed(old_cwd, answer["cwd"], None)
    return answer


def reject(reason: str, message: str) -> Json:
    return {"status": "rejected", "reason": reason, "message": message}


def add_directory(session: Session, directory: str) -> None:
    """Raises NotPossible."""
    update: Json = {"type": "addDirectories", "directories": [directory], "destination": "session"}
    try:
        session.gate.apply_updates([update])
    except (InvalidUpdate, SessionError) as exc:
        raise NotPossible(str(exc)) from None


def append_memory(session: Session, directory: str) -> None:
    """Send the memory files of a directory, unless the conversation has them."""
    conversation = session.conversation
    if is_replaced(conversation.instructions):
        return
    found = conversation.instructions.nested(os.path.join(directory, "CLAUDE.md"))
    new = [text for mark, text in found if not is_sent(conversation, mark)]
    if new:
        conversation.append_contexts(["\n\n".join([HEADING, *new])])


def tell_model(session: Session, path: str) -> None:
    """The system prompt names the directory; once it is sent, the conversation says what changed."""
    conversation = session.conversation
    if session.journal.system_text is not None:
        conversation.append_contexts([f"[{CWD}{path}]"])
        return
    facts = tuple(f"{CWD}{path}" if fact.startswith(CWD) else fact for fact in conversation.instructions.environment)
    conversation.instructions = msgspec.structs.replace(conversation.instructions, environment=facts)
