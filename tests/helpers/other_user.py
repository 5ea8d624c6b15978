"""Run Python as another user, who may not be able to read this checkout: the home folder of root is closed.

program = other_user.find_interpreter()
other_user.run([program, "-m", "parley"], PYTHONPATH=other_user.import_path())
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tests.helpers import paths
from tests.helpers.environment import base_environment
from tests.helpers.patience import TEST_SECONDS

OTHER_USER = 65534


def run(argv: list[str], *, as_root: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program as the other user; as this one if this is not root, or with `as_root`."""
    identity: dict[str, Any] = {}
    if os.geteuid() == 0 and not as_root:
        identity = {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": []}
    return subprocess.run(
        argv,
        cwd="/",
        env={**base_environment(), "PYTHONDONTWRITEBYTECODE": "1", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_SECONDS,
        **identity,
    )


@functools.cache
def find_interpreter() -> str | None:
    """An interpreter of our version that the other user can run."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, shutil.which(name, path="/usr/bin:/usr/local/bin")):
        if program is None:
            continue
        with contextlib.suppress(PermissionError):
            if run([program, "-c", "import ctypes"]).returncode == 0:
                return program
    return None


@functools.cache
def import_path() -> str:
    """PYTHONPATH with Parley, what it needs, and the tests; a copy if the other user cannot read the originals."""
    import msgspec

    originals = (paths.ROOT, paths.SOURCE, Path(msgspec.__file__).parents[1])
    if all(run(["test", "-r", str(folder)]).returncode == 0 for folder in originals):
        return os.pathsep.join(map(str, originals))
    copy = Path(tempfile.mkdtemp(prefix="parley-copy-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    copy.chmod(0o755)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(paths.SOURCE / "parley", copy / "parley", ignore=ignored)
    shutil.copytree(paths.TESTS / "helpers", copy / "tests" / "helpers", ignore=ignored)
    for file in list_installed_files("parley-agent"):
        target = copy / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file.locate(), target)
    return str(copy)


def list_installed_files(name: str) -> set[metadata.PackagePath]:
    """The files of what a distribution needs, and of what that needs, without extras."""
    found: set[metadata.PackagePath] = set()
    seen, waiting = {name}, [name]
    while waiting:
        distribution = metadata.distribution(waiting.pop())
        if distribution.name != name:
            files = distribution.files or []
            found |= {file for file in files if file.parts[0] != ".." and "__pycache__" not in file.parts}
        for text in distribution.requires or []:
            needed = Requirement(text)
            if needed.name not in seen and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
                seen.add(needed.name)
                waiting.append(needed.name)
    return found
