"""Draw the plots of docs/performance.md from docs/performance/engines.json. Needs the extra `plots`.

    make plots                        # docs/performance/*.svg
    python scripts/plots.py --png     # PNG files in build/plots instead, to look at

A bar or a point is a median; its whisker goes from the first to the third quartile. Every axis of bars starts at zero.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from gen_performance import FIGURES, Figures, load, readable
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import NullLocator
from pages import ROOT

COLORS = {"original": "#E69F00", "parley": "#0072B2", "resident": "#009E73"}
OTHER_COLORS = ("#CC79A7", "#56B4E9", "#D55E00", "#000000")
"""Okabe and Ito's palette, which people with colour vision deficiency can tell apart."""
MARKERS = "osD^v"
LABEL_OFFSETS = {"o": 9, "s": -16}
"""Values above the first line and below the second one. Those of further lines would hide them."""
TEXT_COLOR = "#333333"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": TEXT_COLOR,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": TEXT_COLOR,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": TEXT_COLOR,
    "ytick.color": TEXT_COLOR,
    "svg.fonttype": "none",
    "svg.hashsalt": "parley",
}
Bars = dict[str, tuple[str, str]]
"""The label of each group of bars, with the measurement and the quantity."""

START: Bars = {
    "answer of initialize": ("first", "spawn to initialize response, ms"),
    "system/init": ("first", "spawn to system/init, ms"),
    "result, over http": ("first", "spawn to result, ms"),
    "result, over https": ("https", "spawn to result, ms"),
    "one-shot, exit": ("one-shot", "spawn to exit, ms"),
}
TURNS: Bars = {
    "warm turn": ("warm", "user line to result, ms"),
    "warm turn that\nreads a file": ("read", "user line to result, ms"),
}
STREAM: Bars = {
    "by the clock": ("stream", "stream events by the clock, /s"),
    "by CPU time\nof the engine": ("stream", "stream events by CPU time, /s"),
}


def color(figures: Figures, engine: str) -> str:
    others = [name for name in figures.engines if name not in COLORS]
    return COLORS.get(engine) or OTHER_COLORS[others.index(engine) % len(OTHER_COLORS)]


def draw_bars(axes: Axes, figures: Figures, groups: Bars, title: str, unit: str) -> None:
    """Horizontal bars: one group per quantity, one bar per engine, with the value at its end."""
    engines = list(figures.engines)
    height = 0.8 / len(engines)
    longest = 0.0
    for at, engine in enumerate(engines):
        for row, (measure, quantity) in enumerate(groups.values()):
            if (found := figures.quartiles(measure, quantity, engine)) is None:
                continue
            first, median, third = found
            y = row + (at - (len(engines) - 1) / 2) * height
            label = figures.name(engine) if row == 0 else None
            axes.barh(y, median, height * 0.9, color=color(figures, engine), label=label)
            axes.errorbar(
                median, y, xerr=[[median - first], [third - median]], color=TEXT_COLOR, elinewidth=1, capsize=2
            )
            axes.annotate(
                f"{readable(median)} {unit}".strip(), (third, y), (6, 0), textcoords="offset points", va="center"
            )
            longest = max(longest, third)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.18)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(axis="y", length=0)
    axes.set_title(title, loc="left", fontsize=11, pad=26)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(engines), frameon=False, borderaxespad=0.2)


def start(axes: Axes, figures: Figures) -> None:
    draw_bars(axes, figures, START, "From the start of a process until…, in ms (less is better)", "ms")


def turns(axes: Axes, figures: Figures) -> None:
    draw_bars(axes, figures, TURNS, "A turn of a running process, in ms (less is better)", "ms")


def stream(axes: Axes, figures: Figures) -> None:
    draw_bars(axes, figures, STREAM, "Stream events per second (more is better)", "")


def memory(axes: Axes, figures: Figures) -> None:
    groups = {
        f"{count} process{'es' if count > 1 else ''}": ("processes", f"{count}: PSS of all, MB")
        for count in figures.plan["processes"]
    }
    draw_bars(axes, figures, groups, "Memory of processes after one turn each: PSS in MB (less is better)", "MB")


def long_conversations(axes: Axes, figures: Figures) -> None:
    for engine, marker in zip(figures.engines, MARKERS, strict=False):
        points = [
            (length, *found)
            for length in figures.plan["lengths"]
            if (found := figures.quartiles("long", f"{length:,} messages: user line to result, ms", engine))
        ]
        if not points:
            continue
        lengths, firsts, medians, thirds = zip(*points, strict=True)
        shade = color(figures, engine)
        axes.plot(lengths, medians, marker=marker, color=shade, label=figures.name(engine))
        axes.fill_between(lengths, firsts, thirds, color=shade, alpha=0.2, linewidth=0)
        offset = LABEL_OFFSETS.get(marker)
        for at in zip(lengths, medians, strict=True) if offset else ():
            axes.annotate(f"{readable(at[1])} ms", at, (0, offset), textcoords="offset points", ha="center")
    for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axis.set_minor_locator(NullLocator())
    axes.margins(x=0.08, y=0.15)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_xlabel("messages in the conversation (logarithmic)")
    axes.set_title(
        "A turn in a long conversation, in ms (logarithmic; less is better)", loc="left", fontsize=11, pad=26
    )
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, borderaxespad=0.2)


PLOTS: dict[str, tuple[Callable[[Axes, Figures], None], float]] = {
    "start": (start, 3.8),
    "memory": (memory, 2.8),
    "turns": (turns, 2.2),
    "stream": (stream, 2.2),
    "long": (long_conversations, 3.8),
}
"""By file name: how a plot is drawn, and its height in inches with two engines."""


def save(folder: Path, suffix: str) -> None:
    figures = load()
    folder.mkdir(parents=True, exist_ok=True)
    for name, (draw, height) in PLOTS.items():
        with matplotlib.rc_context(STYLE):
            layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
            figure = Figure(figsize=(7.5, height * (1 + 0.2 * max(0, len(figures.engines) - 2))), layout=layout)
            draw(figure.subplots(), figures)
            figure.savefig(folder / f"{name}.{suffix}", dpi=100, metadata={"Date": None} if suffix == "svg" else None)


if __name__ == "__main__":
    if sys.argv[1:] == ["--png"]:
        save(ROOT / "build" / "plots", "png")
    else:
        save(FIGURES.parent, "svg")
