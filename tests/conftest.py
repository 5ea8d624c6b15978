"""What all tests share: the folders of helpers are importable by name, and no example has a deadline."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "engine"))
sys.path.append(str(HERE / "programmes"))

# How long an example takes says nothing about what it shows: machines have other work to do.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
