"""Tune Python's garbage collector for a process with many sessions."""

from __future__ import annotations

import gc

THRESHOLDS = (10_000, 50, 100)
"""With Python's own thresholds, a process with 1,000 sessions collects every few turns."""


def tune_gc() -> None:
    """Tune Python's garbage collector for a process that runs many sessions with `engine="local"`.

        tune_gc()
        clients = [Client(Options(engine="local")) for _ in range(1000)]

    Call it once, after your program has loaded its modules and before it opens sessions. It loads the engine,
    excludes all objects that exist from later collections (`gc.freeze`) and raises the thresholds of the collector,
    so that collections are rare and short. It changes the whole process, so Parley never calls it in yours; worker
    processes (`Options.workers`) call it themselves. A collector that you have disabled stays disabled.
    """
    load_engine()
    gc.collect()
    gc.freeze()
    current = gc.get_threshold()
    if current[0]:
        gc.set_threshold(*map(max, current, THRESHOLDS))


def load_engine() -> None:
    """Import what every session needs."""
    import parley.compose.composer
    import parley.engine.session.pump
    import parley.engine.turn.turn  # noqa: F401  # imported to be loaded, as are the others
