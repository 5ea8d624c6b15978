"""Install the wheels of a folder in clean environments outside the checkout, try what each adds, and print their sizes.

    python scripts/try_dist.py dist

Packages of others come from the package index, in their newest versions; constraints.txt has no effect here. The size
of an installation is what it adds to an empty environment, with bytecode.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pages import table

HELLO = ("--print", "--model", "offline", "say Hello.")
TRIES: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "": (
        (HELLO, "Hello."),
        (("serve",), "pip install 'parley-agent[server]'"),
        (("conform", "--list"), "pip install 'parley-agent[kit]'"),
    ),
    "server": ((HELLO, "Hello."), (("mcp", "serve"), ""), (("console", "--demo", "--no-browser"), "console on http")),
    "kit": ((HELLO, "Hello."), (("schema",), "control_request"), (("conform", "--list"), "core")),
    "all": ((HELLO, "Hello."),),
}
"""What each extra is tried with: the words of a command, and a part of what it prints."""


def main(folder: Path) -> int:
    [wheel] = folder.glob("parley_agent-*.whl")
    rows = []
    for extra, tries in TRIES.items():
        with tempfile.TemporaryDirectory() as place:
            name = f"parley-agent[{extra}]" if extra else "parley-agent"
            environment = Path(place, "venv")
            run(sys.executable, "-m", "venv", str(environment))
            before = measure(environment)
            pip = (str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")
            target = f"{wheel.resolve()}[{extra}]" if extra else str(wheel.resolve())
            run(*pip, "install", "--quiet", "--find-links", str(folder.resolve()), target)
            added = measure(environment) - before
            packages = run(*pip, "list", "--format", "freeze").splitlines()
            for words, expected in tries:
                try_command(environment, words, expected)
            own = [line for line in packages if line.partition("==")[0] not in ("pip", "setuptools", "wheel")]
            rows.append((f"`{name}`", str(len(own)), f"{added / 1e6:.1f} MB"))
    print("\n".join(table(("installation", "packages", "size"), rows)))
    return 0


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def try_command(environment: Path, words: Sequence[str], expected: str) -> None:
    """Run a command in an empty environment until it ends, or prints what is expected. Raises SystemExit."""
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(
            [environment / "bin" / "parley", *words],
            cwd=home,
            env={"HOME": home, "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed = ""
        assert process.stdout is not None
        for line in process.stdout:
            printed += line
            if expected and expected in printed:
                break
        process.terminate()
        process.communicate()
        if expected not in printed:
            raise SystemExit(f"parley {' '.join(words)}: expected {expected!r}, printed:\n{printed}")


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
