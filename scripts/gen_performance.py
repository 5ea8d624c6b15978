"""Generate the table of docs/performance.md from docs/performance/engines.json, which `make bench-original` writes.

    python scripts/gen_performance.py

A cell has the median and the quartiles. See also: `bench/engines.py` measures, `plots.py` draws the same figures.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from pages import ROOT, fill, main, table

FIGURES = ROOT / "docs" / "performance" / "engines.json"
ORIGINAL = "original"
NAMES = {ORIGINAL: "Claude Code", "parley": "Parley", "resident": "Parley, resident"}
ROWS = {
    "process start until the response to `initialize`": ("first", "spawn to initialize response, ms"),
    "process start until `system/init`": ("first", "spawn to system/init, ms"),
    "process start until `result`": ("first", "spawn to result, ms"),
    "process start until `result`, over https": ("https", "spawn to result, ms"),
    "one-shot run (prompt as an argument): process start until exit": ("one-shot", "spawn to exit, ms"),
    "peak memory (RSS)": ("first", "peak RSS of all processes, MB"),
    "warm turn": ("warm", "user line to result, ms"),
    "warm turn that reads a file": ("read", "user line to result, ms"),
    "CPU time of a warm turn": ("warm", "CPU time of a turn, ms"),
    "CPU time of a warm turn that reads a file": ("read", "CPU time of a turn, ms"),
    "stream events, by elapsed time": ("stream", "stream events by the clock, /s"),
    "stream events, by CPU time": ("stream", "stream events by CPU time, /s"),
    "turn after 10 messages": ("long", "10 messages: user line to result, ms"),
    "turn after 1,000 messages": ("long", "1,000 messages: user line to result, ms"),
    "turn after 10,000 messages": ("long", "10,000 messages: user line to result, ms"),
    "turn after 100,000 messages": ("long", "100,000 messages: user line to result, ms"),
    "resume 10,000 messages: process start until `result`": ("long", "10,000 messages: spawn to result, ms"),
    "16 processes at once: first start until the last `result`": ("processes", "16: first spawn to last result, ms"),
    "memory of these 16 processes (PSS)": ("processes", "16: PSS of all, MB"),
}


class Figures:
    """The samples of a recorded run."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self.machine: dict[str, str] = recorded["machine"]
        self.engines: dict[str, str] = recorded["engines"]
        self.plan: dict[str, Any] = recorded["plan"]
        self._values = {(row["measure"], row["quantity"], row["engine"]): row["values"] for row in recorded["rows"]}

    def quartiles(self, measure: str, quantity: str, engine: str) -> tuple[float, float, float] | None:
        """The first quartile, the median and the third quartile; None if the engine has no samples."""
        values: Sequence[float] | None = self._values.get((measure, quantity, engine))
        if not values:
            return None
        first, median, third = statistics.quantiles(values, method="inclusive") if len(values) > 1 else [values[0]] * 3
        return first, median, third

    def name(self, engine: str) -> str:
        return NAMES.get(engine, engine)


def load() -> Figures:
    return Figures(json.loads(FIGURES.read_text(encoding="utf-8")))


def readable(value: float) -> str:
    """Two or three significant digits."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.{0 if value >= 20 else 1 if value >= 2 else 2}f}"


def cell(quartiles: tuple[float, float, float] | None, unit: str) -> str:
    if quartiles is None:
        return "-"
    first, median, third = map(readable, quartiles)
    return f"{median} {unit} ({first} to {third})"


def engine_table(figures: Figures) -> str:
    others = [engine for engine in figures.engines if engine != ORIGINAL]
    rows = []
    for title, (measure, quantity) in ROWS.items():
        unit = quantity.rpartition(", ")[2].replace("/s", "per second")
        found = {engine: figures.quartiles(measure, quantity, engine) for engine in figures.engines}
        original = found.get(ORIGINAL)
        ratios = [f"{one[1] / original[1]:.2g}" if original and (one := found[engine]) else "-" for engine in others]
        rows.append((title, *(cell(found[engine], unit) for engine in figures.engines), *ratios))
    ratio_names = [f"{figures.name(engine)} / {figures.name(ORIGINAL)}" for engine in others]
    return "\n".join(table(("", *map(figures.name, figures.engines), *ratio_names), rows))


def conditions(figures: Figures) -> str:
    engines = "; ".join(f"{figures.name(engine)}: {text}" for engine, text in figures.engines.items())
    machine = ", ".join(f"{name} {text}" for name, text in figures.machine.items())
    return f"Recorded with {figures.plan['runs']} runs. {engines}. Machine: {machine}."


def pages() -> dict[str, str]:
    figures = load()
    parts = {"engines": engine_table(figures), "conditions": conditions(figures)}
    return {"docs/performance.md": fill("docs/performance.md", parts)}


if __name__ == "__main__":
    raise SystemExit(main(pages()))
