"""Generate the tables of docs/scale.md from what `bench/scale.py` measured and `simulate_scale.py` simulated."""

from __future__ import annotations

import json

from pages import fill, main
from simulate_scale import MEASURED, SIMULATED, Costs, parts

PAGE = "docs/scale.md"


def pages() -> dict[str, str]:
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    simulated = json.loads(SIMULATED.read_text(encoding="utf-8"))
    return {PAGE: fill(PAGE, parts(measured, Costs(**measured["costs"]), simulated))}


if __name__ == "__main__":
    raise SystemExit(main(pages()))
