"""Requests that change the directories of a session."""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import msgspec

from parley.engine.context.nested_memory import HEADING, is_sent
from parley.engine.context.system_prompt import CWD, is_replaced
from parley.engine.control.handlers.plugins import reload_plugins, reload_templates
from parley.errors import NotPossible, SessionError
from parley.permissions.base import InvalidUpdate
from parley.protocol.base import Json
from parley.protocol.messages import panel_requests

if TYPE_CHECKING:
    from parley.engine.session.session import Session


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
    if session.hooks.dispatcher is not None:
        details = {"directory": directory, "source": "register_repo_root"}
        session.hooks.dispatcher.session_hooks.notify("DirectoryAdded", details)
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
    return answer if session.hooks.dispatcher is None else answer_after_hooks(session, answer, old)


async def answer_after_hooks(session: Session, answer: Json, old_cwd: str) -> Json:
    if session.hooks.dispatcher is not None:
        await session.hooks.dispatcher.session_hooks.cwd_changed(old_cwd, answer["cwd"], None)
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
