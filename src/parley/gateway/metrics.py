"""Figures of the server in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

Labels = tuple[tuple[str, str], ...]

LAG_SAMPLES = 1000
HELP = {
    "parley_prompts_total": "Prompts accepted.",
    "parley_results_total": "Turns ended, by outcome.",
    "parley_lines_total": "Engine lines stored.",
    "parley_live_lines_total": "Engine lines sent but not stored, such as stream events.",
    "parley_resyncs_total": "How often a client was so slow that its queue was discarded.",
    "parley_questions_total": "Questions asked by sessions.",
    "parley_decisions_total": "Questions decided.",
    "parley_refusals_total": "Requests and lines refused, by error code.",
    "parley_engine_starts_total": "Engines started.",
}


class Metrics:
    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._lags: deque[float] = deque(maxlen=LAG_SAMPLES)

    def record_lag(self, seconds: float) -> None:
        """How late the event loop was."""
        self._lags.append(seconds)

    def lag(self, share: float) -> float:
        """The lag that this share of the last samples did not exceed, in seconds."""
        ordered = sorted(self._lags)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        self._counts[name, tuple(labels.items())] += amount

    def render(self, gauges: Iterable[tuple[str, str, float]]) -> bytes:
        """The page. `gauges`: names, descriptions and values of what is measured now."""
        lines = []
        for name, help in HELP.items():
            lines += [f"# HELP {name} {help}", f"# TYPE {name} counter"]
            found = {labels: value for (counted, labels), value in self._counts.items() if counted == name}
            lines += [f"{name}{format_labels(labels)} {value}" for labels, value in (found or {(): 0}).items()]
        for name, help, value in gauges:
            lines += [f"# HELP {name} {help}", f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "".join(f"{line}\n" for line in lines).encode()


def format_labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{escape(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
