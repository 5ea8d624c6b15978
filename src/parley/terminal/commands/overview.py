"""Small pages, each from one request: `/help`, `/keys`, `/status`, `/agents`, `/doctor`, `/model`, `/cost`, `/context`.
`/memory` is about the instructions that every session here gets, in files named CLAUDE.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from parley.protocol.base import Json
from parley.terminal.base import View, run_program
from parley.terminal.commands import COMMANDS
from parley.terminal.interfaces.dialogs import Row
from parley.terminal.rendering.calls import format_seconds
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import cell_width, format_count, format_table, pad, reveal_line, shorten, wrap
from parley.workspace.search_path import with_absolute_python_path

RUN_SECONDS = 60
MAX_NAME_CELLS = 26
ANSWERED_HERE = frozenset({"help", "model", "context", "usage", "cost"})
"""Commands of the engine that the terminal answers itself."""
BLOCKS = " ▏▎▍▌▋▊▉"
"""Parts of a cell in eighths."""
MAX_BAR_CELLS = 40
MIN_BAR_CELLS = 8
NUMBERS = ("INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "COST")
FIGURES_CELLS = 16
"""Room for tokens and per cent after a bar."""
MAX_SHOWN_BYTES = 20_000


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
        if row.get("name") not in ANSWERED_HERE
    ]
    if theirs:
        lines += ["", styles.bold("Commands of the session"), *list_pairs(theirs, view)]
    view.print(
        [
            *lines,
            "",
            styles.dim(
                "@path in a prompt attaches a file, !command runs a command of your own, # text adds to a memory file."
            ),
        ]
    )


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
        view.say("The session has no subagents.")
        return
    view.print(list_pairs([(str(one.get("name", "")), describe_agent(one)) for one in agents], view))


def describe_agent(agent: Json) -> str:
    model = agent.get("model")
    about = str(agent.get("description", ""))
    return about if model in (None, "inherit") else f"{about} (model {model})"


async def run_doctor(view: View, argument: str) -> None:
    """The checks of this machine."""
    model = ((await view.client.get_settings()).get("applied") or {}).get("model")
    view.say(await run_parley(view, "doctor", may_fail=True, model=str(model or "")))


async def run_parley(view: View, *words: str, may_fail: bool = False, model: str = "") -> str:
    """Run a subcommand of the executable in a process of its own; returns its output. Raises OSError, ValueError."""
    variables = {"NO_COLOR": "1", "PYTHONUTF8": "1", **({"ANTHROPIC_MODEL": model} if model else {})}
    environment = with_absolute_python_path({**os.environ, **view.options.env, **variables})
    argv = (sys.executable, "-P", "-m", "parley", *words)
    try:
        code, output = await run_program(argv, environment, RUN_SECONDS, cwd=local_folder(view), with_errors=True)
    except TimeoutError:
        raise OSError(f"parley {words[0]} has not finished within {RUN_SECONDS} s") from None
    text = output.decode(errors="replace").rstrip()
    if code and not may_fail:
        raise ValueError(text)
    return text


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


def local_folder(view: View) -> str:
    """The directory of the session, or of this process if the session is on another machine."""
    return view.cwd if is_local(view) and os.path.isdir(view.cwd) else os.getcwd()


def is_local(view: View) -> bool:
    """Whether the session runs on this machine, with this user's files."""
    return view.options.engine in ("process", "local")


async def show_cost(view: View, argument: str) -> None:
    view.print(format_cost(await view.client.get_usage(), view.styles, view.width))


def format_cost(usage: Json, styles: Styles, width: int) -> list[str]:
    """The totals, and a row for each model."""
    session = usage.get("session") or {}
    seconds = [session.get(key, 0) / 1000 for key in ("total_api_duration_ms", "total_duration_ms")]
    parts = [
        styles.bold(format_dollars(session.get("total_cost_usd"))),
        f"{format_seconds(seconds[0])} in model calls",
        f"{format_seconds(seconds[1])} since the start",
        f"+{session.get('total_lines_added', 0)} -{session.get('total_lines_removed', 0)} lines",
    ]
    models = session.get("model_usage") or {}
    if not models:
        return [" · ".join(parts), styles.dim("No model calls yet.")]
    rows = [
        (
            reveal_line(name),
            *(f"{used.get(key, 0):,}" for key in ("inputTokens", "outputTokens")),
            *(f"{used.get(key, 0):,}" for key in ("cacheReadInputTokens", "cacheCreationInputTokens")),
            format_dollars(used.get("costUSD")),
        )
        for name, used in models.items()
    ]
    header, *lines = format_table(("MODEL", *NUMBERS), rows, right=NUMBERS, width=width)
    return [" · ".join(parts), "", styles.dim(header), *lines]


def format_dollars(cost_usd: Any) -> str:
    """The engine does not know the price of every model."""
    if not isinstance(cost_usd, int | float):
        return "cost unknown"
    return f"${cost_usd:.4f}" if cost_usd else "$0"


async def show_context(view: View, argument: str) -> None:
    usage: Any = await view.client.get_context_usage()
    view.print(format_context(usage, view.styles, view.width))


def format_context(usage: Json, styles: Styles, width: int) -> list[str]:
    """A bar for each category, as a part of the window, and what the larger ones consist of."""
    most, categories = max(1, usage["maxTokens"]), usage["categories"]
    names = [reveal_line(str(row["name"])) for row in categories]
    name_cells = min(max(map(cell_width, names), default=0), max(8, width // 3))
    bar_cells = max(MIN_BAR_CELLS, min(MAX_BAR_CELLS, width - name_cells - FIGURES_CELLS - 4))
    title = f"{reveal_line(str(usage['model']))}: {format_count(usage['totalTokens'])} of {format_count(most)} tokens"
    lines = [styles.bold(shorten(f"{title} ({usage['percentage']:.0f} %)", width)), ""]
    for name, row in zip(names, categories, strict=True):
        share = row["tokens"] / most
        is_free = row.get("kind") != "used"  # free, or kept free for compaction
        bar = styles.dim(draw_free(share, bar_cells)) if is_free else styles.accent(draw_bar(share, bar_cells))
        figures = f"{format_count(row['tokens']):>7} {100 * share:5.1f} %"
        lines.append(f"{pad(shorten(name, name_cells), False, name_cells)}  {bar}  {figures}")
    return [*lines, *list_parts(usage, styles, width)]


def draw_bar(share: float, cells: int) -> str:
    """A bar of this part of the cells, to an eighth of a cell; what is there at all can be seen."""
    eighths = min(8 * cells, round(share * 8 * cells)) or (1 if share > 0 else 0)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (BLOCKS[part] if part else "")).ljust(cells)


def draw_free(share: float, cells: int) -> str:
    return ("░" * int(share * cells)).ljust(cells)


def list_parts(usage: Json, styles: Styles, width: int) -> list[str]:
    """Memory files, MCP tools and agents with their tokens, largest first."""
    lines: list[str] = []
    for title, key, name in (("Memory files", "memoryFiles", "path"), ("MCP tools", "mcpTools", "name")):
        parts = sorted(usage.get(key) or (), key=lambda part: -part.get("tokens", 0))
        if parts:
            lines += ["", styles.bold(title)]
            lines += [
                shorten(f"  {format_count(part.get('tokens', 0)):>6}  {reveal_line(str(part.get(name, '')))}", width)
                for part in parts
            ]
    return lines


async def open_memory(view: View, argument: str) -> None:
    """Opens the file in an editor; one of a session on another machine is only shown."""
    files = await view.client.get_memory_files()
    rows = [
        Row(str(one["path"]), str(one.get("label") or one["path"]), describe_file(one), "●" if one["exists"] else "○")
        for one in files
    ]
    if not rows:
        view.say("The session reads no memory files.")
        return
    title = "Memory files (● exists, ○ does not exist yet)"
    picked = await view.choose(title, rows, search=False)
    if picked is None:
        return
    if not is_local(view):
        found = await view.client.read_file(picked.key, MAX_SHOWN_BYTES)
        view.say(str(found.get("contents", "")))
        return
    os.makedirs(os.path.dirname(picked.key), exist_ok=True)
    await view.edit(picked.key)
    view.say(describe_edit(picked.key))


def describe_edit(path: str) -> str:
    """What became of a file after the editor was closed."""
    if not os.path.exists(path):
        return "The editor wrote no file."
    return f"Sessions that start from now on read {path}."


def describe_file(file: dict[str, object]) -> str:
    return f"{file['path']}{'' if file['exists'] else ' (new)'}"
