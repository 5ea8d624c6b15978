"""What all tests share: the folders of helpers are importable by name."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "engine"))
sys.path.append(str(HERE / "programmes"))
