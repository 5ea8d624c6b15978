"""The table of errors in the documentation."""

from __future__ import annotations

import re

from parley.gateway.refusal import STATUS, close_code
from tests.helpers import paths


def test_the_documentation_lists_every_code_with_its_status() -> None:
    page = (paths.DOCS / "gateway" / "secure.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \|", page, flags=re.MULTILINE)
    assert rows == [(code, str(status), str(close_code(code))) for code, status in STATUS.items()]
