"""The system prompt: instructions, facts about the environment, memory files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from parley.compose.launch_context import LaunchContext
from parley.compose.paths import plan_file
from parley.compose.permissions import requested_mode
from parley.engine.context.system_prompt import CWD, DATE, Instructions
from parley.errors import SessionError, UsageError
from parley.settings.base import OutputStyle
from parley.tools.base import Context

if TYPE_CHECKING:
    from parley.memory.base import SessionMemory


def make_instructions(
    launch: LaunchContext,
    session_id: str,
    style: OutputStyle,
    context: Context,
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
    return Instructions(
        replaced=replaced,
        appended=appended,
        environment=environment_facts(launch, session_id),
        style=style.text,
        # Called when files are read: the session decides what its rules hide, and it does not exist yet.
        memory=lambda: "\n\n".join(
            filter(None, (memory_text(launch, context.hides), remembered_text(launch, open_memory)))
        ),
        memory_files=lambda: memory_files(launch, context.hides),
        nested=lambda path: nested_memory(launch, path, context.hides),
    )


def environment_facts(launch: LaunchContext, session_id: str) -> tuple[str, ...]:
    if launch.options.exclude_dynamic_sections:
        return ()
    return (
        f"{CWD}{launch.cwd}",
        f"Platform: {sys.platform}",
        f"{DATE}{launch.clock.now()[:10]}",
        *plan_rules(launch, session_id),
    )


def plan_rules(launch: LaunchContext, session_id: str) -> tuple[str, ...]:
    """The instructions for a session that starts in plan mode."""
    if requested_mode(launch) != "plan":
        return ()
    rule = "The session begins in plan mode: look around and change nothing until the user has approved your plan."
    return (f"{rule} ExitPlanMode presents it; you may write it to {plan_file(launch, session_id)} first.",)


def nested_memory(launch: LaunchContext, path: str, denies: Callable[[str], bool]) -> list[tuple[str, str]]:
    """The memory files between the working directory and a file, each with the mark it starts with."""
    from parley.settings.files.memory_files import heading_for

    found = launch.settings.memory_between(path, launch.cwd, launch.additional_directories(), denies)
    for memory in found:
        for error in memory.problems:
            launch.warn(str(error))
    return [(heading_for(memory.files[0]), memory.nested) for memory in found if memory.files]


def memory_text(launch: LaunchContext, denies: Callable[[str], bool]) -> str:
    """The text of the memory files."""
    if launch.options.safe_mode:
        return ""
    found = launch.settings.memory(launch.cwd, launch.additional_directories(), denies)
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
    for path in launch.settings.memory(launch.cwd, launch.additional_directories(), denies).files:
        kind = "User" if path.startswith(own) else "Local" if path.endswith(".local.md") else "Project"
        with suppress(OSError):
            found.append((path, kind, os.path.getsize(path)))
    return found


def read_text_file(path: str, flag: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"option '{flag}': {path} cannot be read: {exc}") from None
