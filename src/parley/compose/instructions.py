"""The system prompt: instructions, facts about the environment, memory files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from parley.compose.launch_context import LaunchContext, plan_file, read_git_head
from parley.compose.permissions import denies_user_files, requested_mode
from parley.engine.context.system_prompt import CWD, DATE, Instructions
from parley.errors import SessionError, UsageError
from parley.settings.base import OutputStyle
from parley.settings.files.memory_files import MemoryText, heading_for
from parley.settings.safe_read import HOST_TREE, UnreadableFile

if TYPE_CHECKING:
    from parley.memory.session_memory import SessionMemory

MAX_LANGUAGE_CHARS = 100
MAX_BRANCH_CHARS = 200


def make_instructions(
    launch: LaunchContext,
    session_id: str,
    style: OutputStyle,
    hides: Callable[[str], bool],
    open_memory: Callable[[], SessionMemory] | None = None,
) -> Instructions:
    """Raises UsageError if a file cannot be read."""
    options = launch.options
    replaced = options.system_prompt
    if options.system_prompt_file is not None:
        replaced = read_text_file(options.system_prompt_file, "--system-prompt-file")
    appended = options.append_system_prompt or ""
    if options.append_system_prompt_file is not None:
        appended = read_text_file(options.append_system_prompt_file, "--append-system-prompt-file")
    instructions = Instructions(
        replaced=replaced,
        appended=appended,
        environment=environment_facts(launch, session_id),
        excludes_dynamic=options.exclude_dynamic_sections,
        style=style.text,
        memory=lambda: "\n\n".join(filter(None, (memory_text(launch, hides), remembered_text(launch, open_memory)))),
        memory_files=lambda: memory_files(launch, hides),
        usual_memory_files=(
            ("User", str(launch.config / "CLAUDE.md")),
            ("Project", os.path.join(launch.started_in, "CLAUDE.md")),
        ),
        memory_imports=lambda: memory_imports(launch, hides),
        nested=lambda path: nested_memory(launch, path, hides),
    )
    if launch.worktree is None:
        return instructions
    from parley.engine.agents.setup import worktree_instructions

    return worktree_instructions(instructions, launch.worktree)


def environment_facts(launch: LaunchContext, session_id: str) -> tuple[str, ...]:
    return (
        f"{CWD}{launch.cwd}",
        f"Platform: {sys.platform if launch.remote is None else launch.remote.welcome.platform}",
        f"{DATE}{launch.clock.now()[:10]}",
        *launch.with_facts(lambda: branch(launch)),
        *preferences(launch),
        *plan_rules(launch, session_id),
    )


def preferences(launch: LaunchContext) -> tuple[str, ...]:
    """What the settings `language` and `attribution` ask for."""
    merged = launch.settings.merged
    found: list[str] = []
    if language := " ".join(merged.get("language", "").split()):
        found.append(f"Answer in this language, unless the user asks for another: {language[:MAX_LANGUAGE_CHARS]}")
    attribution = merged.get("attribution")
    for key, place in (("commit", "git commits"), ("pr", "descriptions of pull requests")):
        text = attribution.get(key, "") if isinstance(attribution, dict) else ""
        if text.strip():
            found.append(f"End the messages of {place} with this text: {text.strip()}")
    return tuple(found)


def plan_rules(launch: LaunchContext, session_id: str) -> tuple[str, ...]:
    """The instructions for a session that starts in plan mode."""
    if requested_mode(launch) != "plan":
        return ()
    rule = "The session starts in plan mode: read and search, and change nothing until the user has approved your plan."
    return (f"{rule} ExitPlanMode presents it; you may write it to {plan_file(launch, session_id)} first.",)


def branch(launch: LaunchContext) -> tuple[str, ...]:
    """The branch that is checked out."""
    _, found, name = read_git_head(launch.cwd, launch.tree).partition("refs/heads/")
    text = f"Git branch at the start: {name[:MAX_BRANCH_CHARS]} (`git status` shows what has changed)"
    return (text,) if found else ()


def nested_memory(launch: LaunchContext, path: str, denies: Callable[[str], bool]) -> list[tuple[str, str]]:
    """The memory files between the working directory and a file, each with the mark it starts with."""
    folder, name = os.path.split(os.path.join(launch.started_in, path))
    is_plain = launch.remote is None and not os.path.islink(os.path.join(folder, name))
    if folder == launch.started_in and name not in ("", ".", "..") and is_plain:
        return []  # the usual case: nothing is between them

    roots = launch.additional_directories()
    found = launch.with_facts(lambda: launch.settings.memory_between(path, launch.started_in, roots, denies))
    for memory in found:
        for error in memory.problems:
            launch.warn(str(error))
    return [(heading_for(memory.files[0]), memory.nested) for memory in found if memory.files]


def memory_text(launch: LaunchContext, denies: Callable[[str], bool]) -> str:
    """The text of the memory files."""
    if launch.options.safe_mode:
        return str(launch.settings.merged.get("claudeMd", ""))
    found = load_memory(launch, denies)
    for error in found.problems:
        launch.warn(str(error))
    return found.text


def remembered_text(launch: LaunchContext, open_memory: Callable[[], SessionMemory] | None) -> str:
    """An outline of the long-term memory."""
    if open_memory is None:
        return ""
    try:
        return open_memory().outline()
    except SessionError as exc:
        launch.warn(str(exc))
        return ""


def memory_files(launch: LaunchContext, denies: Callable[[str], bool]) -> list[tuple[str, str, int]]:
    """Path, kind and size of each memory file."""
    if launch.options.safe_mode:
        return []
    own = str(launch.config)
    found: list[tuple[str, str, int]] = []
    for path in load_memory(launch, denies).files:
        kind = "User" if path.startswith(own) else "Local" if path.endswith(".local.md") else "Project"
        tree = HOST_TREE if kind == "User" else launch.tree
        with suppress(UnreadableFile):
            found.append((path, kind, tree.read_file(path).status.st_size))
    return found


def load_memory(launch: LaunchContext, denies: Callable[[str], bool]) -> MemoryText:
    """The memory files. Raises SessionError if a remote workspace does not answer."""
    roots = launch.additional_directories()
    denies_user = denies_user_files(launch, denies)
    return launch.with_facts(lambda: launch.settings.memory(launch.started_in, roots, denies, denies_user))


def memory_imports(launch: LaunchContext, denies: Callable[[str], bool]) -> dict[str, str]:
    """The memory files that others import, and the files that import them."""
    return dict(load_memory(launch, denies).imports)


def read_text_file(path: str, flag: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"option '{flag}': {path} cannot be read: {exc}") from None
