"""The modules of the console without a browser, in Node: `node --test` over the files in modules/."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import parley

CONSOLE = Path(parley.__file__).parent / "console"
HERE = Path(__file__).parent
STREAMS = HERE.parents[1] / "data" / "streams"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="there is no node on this machine; install Node.js 20 or newer")
@pytest.mark.parametrize("module", sorted(path.name for path in (HERE / "modules").glob("*.test.js")))
def test_module(module: str, tmp_path: Path) -> None:
    assert NODE is not None
    shutil.copytree(CONSOLE, tmp_path / "console")
    (tmp_path / "tests").mkdir()
    shutil.copy(HERE / "modules" / module, tmp_path / "tests")
    (tmp_path / "package.json").write_text('{"type": "module"}')

    done = subprocess.run(
        [NODE, "--test", f"tests/{module}"],
        cwd=tmp_path,
        env={**os.environ, "STREAMS": str(STREAMS)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
