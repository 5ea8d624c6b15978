"""`/cost` and `/context`: what the session has used."""

from __future__ import annotations

from typing import Any

from parley.protocol.base import Json
from parley.terminal.base import View
from parley.terminal.rendering.calls import format_seconds
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.tables import format_count, format_table, pad
from parley.terminal.rendering.text import cell_width, reveal_line, shorten

BLOCKS = " ▏▎▍▌▋▊▉"
"""Parts of a cell in eighths."""
MAX_BAR_CELLS = 40
MIN_BAR_CELLS = 8
NUMBERS = ("INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "COST")
FIGURES_CELLS = 16
"""Room for tokens and per cent after a bar."""


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
