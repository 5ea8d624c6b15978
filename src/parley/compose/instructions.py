"""What the model is told before anybody speaks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from parley.compose.launch_context import Basis
from parley.compose.paths import plan_file
from parley.compose.permissions import wanted_mode
from parley.engine.context.system_prompt import CWD, DATE, Instructions
from parley.errors import SessionError, UsageError
from parley.settings.base import Style
from parley.tools.base import Context

if TYPE_CHECKING:
    from parley.memory.base import Keeper


def instructions(
    basis: Basis,
    session_id: str,
    style: Style,
    context: Context,
    make_keeper: Callable[[], Keeper] | None = None,
) -> Instructions:
    """Raises UsageError if a file cannot be read."""
    options = basis.options
    replaced = options.system_prompt
    if options.system_prompt_file is not None:
        replaced = text_file(options.system_prompt_file, "--system-prompt-file")
    appended = options.append_system_prompt or ""
    if options.append_system_prompt_file is not None:
        appended = text_file(options.append_system_prompt_file, "--append-system-prompt-file")
    return Instructions(
        replaced=replaced,
        appended=appended,
        surroundings=surroundings(basis, session_id),
        style=style.text,
        # Asked when they are read: only the session says what its rules hide, and it is not there yet.
        memory=lambda: "\n\n".join(filter(None, (memory(basis, context.hides), known(basis, make_keeper)))),
        memory_files=lambda: memory_files(basis, context.hides),
        nested=lambda path: nested(basis, path, context.hides),
    )


def surroundings(basis: Basis, session_id: str) -> tuple[str, ...]:
    if basis.options.exclude_dynamic_sections:
        return ()
    return (
        f"{CWD}{basis.cwd}",
        f"Platform: {sys.platform}",
        f"{DATE}{basis.stamp.now()[:10]}",
        *plan_rules(basis, session_id),
    )


def plan_rules(basis: Basis, session_id: str) -> tuple[str, ...]:
    """What a model must know whose session begins in plan mode."""
    if wanted_mode(basis) != "plan":
        return ()
    rule = "The session begins in plan mode: look around and change nothing until the user has approved your plan."
    return (f"{rule} ExitPlanMode presents it; you may write it to {plan_file(basis, session_id)} first.",)


def nested(basis: Basis, path: str, denies: Callable[[str], bool]) -> list[tuple[str, str]]:
    """What memory files say between the working directory and a file, each with the mark that it begins with."""
    from parley.settings.files.memory_files import contents_of

    found = basis.settings.memory_between(path, basis.cwd, basis.folders(), denies)
    for memory in found:
        for flaw in memory.flaws:
            basis.complain(str(flaw))
    return [(contents_of(memory.files[0]), memory.inner) for memory in found if memory.files]


def memory(basis: Basis, denies: Callable[[str], bool]) -> str:
    """The text of the memory files there are."""
    if basis.options.safe_mode:
        return ""
    found = basis.settings.memory(basis.cwd, basis.folders(), denies)
    for flaw in found.flaws:
        basis.complain(str(flaw))
    return found.text


def known(basis: Basis, make_keeper: Callable[[], Keeper] | None) -> str:
    """What the session remembers of earlier ones, at a glance."""
    if make_keeper is None:
        return ""
    try:
        return make_keeper().outline()
    except SessionError as flaw:
        basis.complain(str(flaw))
        return ""


def memory_files(basis: Basis, denies: Callable[[str], bool]) -> list[tuple[str, str, int]]:
    """Path, kind and size of the memory files there are."""
    if basis.options.safe_mode:
        return []
    own = str(basis.config)
    found: list[tuple[str, str, int]] = []
    for path in basis.settings.memory(basis.cwd, basis.folders(), denies).files:
        kind = "User" if path.startswith(own) else "Local" if path.endswith(".local.md") else "Project"
        with suppress(OSError):
            found.append((path, kind, os.path.getsize(path)))
    return found


def text_file(path: str, flag: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as flaw:
        raise UsageError(f"option '{flag}': {path} cannot be read: {flaw}") from None
