"""The work of a session: `/todos`, `/tasks`, `/diff`, `/plan`, `/copy`, and `#` for what is to be remembered."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Iterator
from itertools import dropwhile

from parley.errors import ToolError
from parley.sdk.errors import ControlError
from parley.settings.secret_variables import without_secrets
from parley.terminal.base import View
from parley.terminal.commands.overview import describe_file, is_local
from parley.terminal.interfaces.dialogs import Row
from parley.terminal.rendering.details import HUNK, paint_diff, split_lines
from parley.terminal.rendering.text import reveal_line, reveal_text, shorten
from parley.workspace import private_files
from parley.workspace.git import Git
from parley.workspace.process.processes import Processes
from parley.workspace.search_path import find_trusted, with_trusted_path

COPY_PROGRAMS = (
    ("TMUX", "tmux", "load-buffer", "-w", "-"),
    ("WAYLAND_DISPLAY", "wl-copy"),
    ("DISPLAY", "xclip", "-selection", "clipboard"),
    ("", "pbcopy"),
)
"""The variable without which a program is of no use, and the program, which reads the text."""
COPY_SECONDS = 5
MAX_DIFF_LINES = 400
NO_TODOS = "The session has no todos."
NO_TASKS = "Nothing runs in the background, and nothing has."


async def show_todos(view: View, argument: str) -> None:
    view.print(view.transcript.work.lines(view.styles, view.width) or [view.styles.dim(NO_TODOS)])


async def toggle_thinking(view: View, argument: str) -> None:
    view.toggle_thinking()


async def manage_tasks(view: View, argument: str) -> None:
    """Shows the background tasks; pick one to see its output or to stop it."""
    tasks = view.transcript.calls.background
    if not tasks:
        view.say(NO_TASKS)
        return
    rows = [Row(id, task.title, task.status, "●" if task.is_running else " ") for id, task in tasks.items()]
    picked = await view.choose("Background tasks", rows)
    if picked is None:
        return
    actions = [Row("o", "show its output"), *([Row("s", "stop it")] if tasks[picked.key].is_running else [])]
    action = await view.choose(reveal_line(picked.label), actions, search=False)
    if action is not None and action.key == "s":
        await view.client.stop_task(picked.key)
    elif action is not None:
        text = str((await view.client.get_task_output(picked.key)).get("output", "")) or "(no output)"
        view.say(text)


async def show_diff(view: View, argument: str) -> None:
    """The changes that are not committed; outside of a repository, those that the session has made."""
    lines = await diff_repository(view, argument) if is_local(view) else None
    lines = lines if lines is not None else await diff_session(view)
    painted: list[str] = []
    files: dict[str, list[str]] = {}
    name, is_head = "", False
    for line in lines:
        if line.startswith("diff --git "):
            name, is_head = line.rpartition(" b/")[2], True
            files.setdefault(name, [])
        elif is_head and not line.startswith(("@@", " ", "Binary")):
            continue
        else:
            is_head = False
            files[name].append(line)
    for name, changed in files.items():
        counts = " ".join(f"{sign}{sum(line.startswith(sign) for line in changed)}" for sign in "+-")
        painted.append(view.styles.bold(shorten(f"{reveal_line(name)} ({counts})", view.width)))
        painted += paint_diff(changed, view.styles, view.width, MAX_DIFF_LINES, name)
    view.print(painted or [view.styles.dim("Nothing has changed.")])


async def diff_repository(view: View, path: str) -> list[str] | None:
    """What git says, which runs no programs of the repository; None outside of one. Raises ValueError."""
    processes = Processes()
    git = Git(processes, without_secrets(os.environ), lambda: view.folders)
    words = ("--", path) if path else ()
    try:
        if (await git.run(view.cwd, "rev-parse", "--is-inside-work-tree")).strip() != "true":
            return None
    except ToolError:
        return None
    else:
        flags = ("--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")
        try:
            text = await git.run(view.cwd, "diff", *flags, "HEAD", *words)
            new = await git.run(view.cwd, "ls-files", "--others", "--exclude-standard", *words)
        except ToolError as exc:
            raise ValueError(str(exc)) from None
        added = [line for name in split_lines(new) for line in (f"diff --git a/{name} b/{name}", " (not tracked)")]
        return [*split_lines(text), *added]
    finally:
        await processes.close()


async def diff_session(view: View) -> list[str]:
    """A rewind to the first prompt, the other way round."""
    if not view.prompts:
        return []
    try:
        report = await view.client.rewind_files(view.prompts[0][0], dry_run=True, diffs=True)
    except ControlError as exc:
        raise ValueError(str(exc)) from None
    lines: list[str] = []
    for one in report.get("diffs") or ():
        lines.append(f"diff --git a/x b/{str(one.get('path', '')).removeprefix(view.cwd + '/')}")
        lines += swap_sides(split_lines(str(one.get("diff", ""))))
    return lines


def swap_sides(lines: Iterable[str]) -> Iterator[str]:
    """The hunks of a unified diff, the other way round."""
    added: list[str] = []
    for line in dropwhile(lambda line: not line.startswith("@@ "), lines):
        if line.startswith("-"):
            added.append(f"+{line[1:]}")
        elif line.startswith("+"):
            yield f"-{line[1:]}"
        else:
            yield from added
            added.clear()
            yield HUNK.sub(r"@@ -\2 +\1 @@", line)
    yield from added


async def plan(view: View, argument: str) -> None:
    """Plan mode, and a prompt in it if one is given."""
    await view.client.set_permission_mode("plan")
    view.session.mode = "plan"
    view.say("Plan mode: the model changes nothing until you have approved its plan.")
    if argument:
        view.enqueue(argument)


async def copy_answer(view: View, argument: str) -> None:
    """The last answer, without what acts on the program into which it is pasted."""
    text = view.transcript.last_answer
    if not text.strip():
        raise ValueError("there is no answer to copy")
    text = reveal_text(text)
    if not await copy_with_program(text, view) and not view.interface.copy(base64.b64encode(text.encode()).decode()):
        raise ValueError("there is no clipboard here: no xclip, wl-copy, pbcopy or tmux, and no escape sequences")
    view.say(f"Copied {len(text):,} characters.")


async def copy_with_program(text: str, view: View) -> bool:
    """Whether a program in none of the folders of the session took the text. It may live on to hold it."""
    environment = with_trusted_path(without_secrets(os.environ), view.folders)
    for variable, name, *words in COPY_PROGRAMS:
        if (variable and not os.environ.get(variable)) or (name == "pbcopy" and sys.platform != "darwin"):
            continue
        program = find_trusted(name, os.environ, view.folders)
        if program is None:
            continue
        process = await asyncio.create_subprocess_exec(
            program, *words, env=environment, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )
        try:
            async with asyncio.timeout(COPY_SECONDS):
                await process.communicate(text.encode())
        except TimeoutError:
            process.kill()
        if process.returncode == 0:
            return True
    return False


async def remember(view: View, text: str) -> str | None:
    """Add a line to a memory file that is picked; returns what the model is told. A gateway's files are not ours."""
    if not is_local(view):
        raise ValueError("the memory files are on the machine of the gateway; use /memory to read them")
    files = await view.client.get_memory_files()
    rows = [Row(str(one["path"]), str(one.get("label") or one["path"]), describe_file(one)) for one in files]
    picked = await view.choose(f"Remember {reveal_line(text)!r} in …", rows, search=False)
    if picked is None:
        return None
    await asyncio.to_thread(append_line, picked.key, f"- {text}\n")
    view.say(f"Added to {picked.key}; the model is told with your next prompt.")
    return f"I added this to {picked.key}, to be remembered:\n{text}"


def append_line(path: str, line: str) -> None:
    """Raises OSError, also for a link: it may lead anywhere."""
    with os.fdopen(private_files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        file.write((line if file.read(1) in (b"", b"\n") else f"\n{line}").encode())
