"""`/help`, `/keys`, `/status`, `/agents`, `/doctor`, `/model` and `/theme`: small pages, each from one request."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from typing import Any

from parley.protocol.base import Json
from parley.terminal.base import Row, View
from parley.terminal.commands import COMMANDS
from parley.terminal.rendering.style import THEMES
from parley.terminal.rendering.tables import pad
from parley.terminal.rendering.text import cell_width, reveal_line, reveal_text, shorten, wrap
from parley.workspace.search_path import with_absolute_python_path

DOCTOR_SECONDS = 60
MAX_NAME_CELLS = 26
UNTOLD = frozenset({"help", "model", "context", "usage", "cost"})
"""Commands of the engine that the terminal answers itself."""


def list_pairs(pairs: Iterable[tuple[str, str]], view: View) -> list[str]:
    """Names and what they mean, in two columns."""
    rows = [(reveal_line(name), reveal_line(about)) for name, about in pairs]
    cells = min(MAX_NAME_CELLS, max((cell_width(name) for name, _ in rows), default=0))
    room = max(20, view.width - cells - 4)
    lines: list[str] = []
    for name, about in rows:
        first, *more = wrap(about, room)
        start = pad(name, False, cells) if cell_width(name) <= cells else name
        if cell_width(name) > cells:
            lines.append(f"  {view.styles.code(start)}")
            start, more = " " * cells, [first, *more]
            first = more.pop(0)
        lines.append(f"  {view.styles.code(start)}  {first}")
        lines += [f"  {' ' * cells}  {line}" for line in more]
    return lines


async def show_help(view: View, argument: str) -> None:
    styles = view.styles
    ours = [(f"/{one.name} {one.argument}".rstrip(), one.summary) for one in COMMANDS]
    lines = [styles.bold("Commands of the terminal"), *list_pairs(ours, view)]
    theirs = [
        (f"/{row.get('name', '')} {row.get('argumentHint', '')}".rstrip(), str(row.get("description", "")))
        for row in await view.client.supported_commands()
        if row.get("name") not in UNTOLD
    ]
    if theirs:
        lines += ["", styles.bold("Commands of the session"), *list_pairs(theirs, view)]
    view.print([*lines, "", styles.dim("@path in a prompt attaches a file, !command runs a command of your own.")])


async def show_keys(view: View, argument: str) -> None:
    from parley.terminal.interfaces.keys import KEYS

    view.print(list_pairs(KEYS, view))


async def show_status(view: View, argument: str) -> None:
    found = await view.client.get_status()
    lines: list[str] = []
    for section in found:
        rows = [(str(row.get("label", "")), str(row.get("value", ""))) for row in section.get("rows", ())]
        lines += [*([""] if lines else []), view.styles.bold(reveal_line(str(section.get("title", ""))))]
        lines += list_pairs(rows, view)
    view.print(lines)


async def show_agents(view: View, argument: str) -> None:
    agents = await view.client.supported_agents()
    if not agents:
        view.print([view.styles.dim("The session has no subagents.")])
        return
    view.print(list_pairs([(str(one.get("name", "")), describe_agent(one)) for one in agents], view))


def describe_agent(agent: Json) -> str:
    model = agent.get("model")
    about = str(agent.get("description", ""))
    return about if model in (None, "inherit") else f"{about} (model {model})"


async def run_doctor(view: View, argument: str) -> None:
    """Runs `parley doctor`, which checks this machine, in a process of its own."""
    environment = with_absolute_python_path({**os.environ, **view.options.env, "NO_COLOR": "1", "PYTHONUTF8": "1"})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "parley", "doctor"),
        cwd=local_folder(view),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(DOCTOR_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise OSError(f"parley doctor has not finished within {DOCTOR_SECONDS} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = reveal_text(output.decode(errors="replace").rstrip())
    view.print([line for part in text.split("\n") for line in wrap(part, view.width)])


async def choose_model(view: View, argument: str) -> None:
    """Without an argument, picks from the models that the engine knows."""
    wanted = argument
    if not wanted:
        settings = await view.client.get_settings()
        now = (settings.get("applied") or {}).get("model")
        rows = [describe_model(model, now) for model in await view.client.supported_models()]
        picked = await view.choose(f"Model (now {reveal_line(str(now))})", rows)
        if picked is None:
            return
        wanted = picked.key
    answer = await view.client.set_model(wanted)
    name = reveal_line(str(answer.get("model", wanted)))
    view.print([f"The model is {view.styles.bold(name)} from the next model call on."])


def describe_model(model: Json, now: Any) -> Row:
    value = str(model.get("value", ""))
    is_now = now in (value, model.get("resolvedModel"))
    return Row(value, value, str(model.get("description", "")), "●" if is_now else " ")


async def choose_theme(view: View, argument: str) -> None:
    """The theme is stored in the user's settings, unless the session is on another machine."""
    name = argument
    if not name:
        rows = [Row(one, one, describe_theme(one), "●" if one == view.theme.name else " ") for one in THEMES]
        picked = await view.choose("Theme", rows, search=False)
        if picked is None:
            return
        name = picked.key
    if name not in THEMES:
        raise ValueError(f"unknown theme {name!r} (choose from {', '.join(THEMES)})")
    view.set_theme(name)
    if is_local(view):
        await view.client.update_settings("userSettings", {"theme": name})
    view.print([shorten(f"The theme is {name}.", view.width)])


def describe_theme(name: str) -> str:
    theme = THEMES[name]
    return "no colours" if not theme.code else "default" if name == next(iter(THEMES)) else ""


def local_folder(view: View) -> str:
    """The directory of the session, or of this process if the session is on another machine."""
    return view.cwd if is_local(view) and os.path.isdir(view.cwd) else os.getcwd()


def is_local(view: View) -> bool:
    """Whether the session runs on this machine, with this user's files."""
    return view.options.engine in ("process", "local")
