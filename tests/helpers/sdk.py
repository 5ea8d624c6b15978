"""What a test of the client needs: a folder, a scripted model, an engine of either kind, a loop of any kind.

options = ClientHarness(tmp_path).options("process")
run("trio", play, options)      # play(options) is the program of a user
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from parley import Message, Options
from parley.sdk.launch.worker_pool import get_pool
from tests.helpers.patience import PATIENCE_SECONDS

ENGINES = ("process", "local", "workers")
LOOPS = ("asyncio", "trio", "uvloop")
HELLO = 'at_end = "repeat"\n[[turn]]\ntext = "Hello."\n'

Play = Callable[..., Awaitable[Any]]


class ClientHarness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warnings: list[str] = []

    def options(self, engine: str, script: str = HELLO, **given: Any) -> Options:
        """Options for an engine that finds nothing of the person's own."""
        (self.folder / "script.toml").write_text(script)
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        environment = {
            "HOME": str(self.folder / "home"),
            "CLAUDE_CONFIG_DIR": str(self.folder / "config"),
            "ANTHROPIC_API_KEY": "a-key-for-tests",
            "IS_SANDBOX": "1",
            **given.pop("env", {}),
        }
        where = {"engine": "local", "workers": 1} if engine == "workers" else {"engine": engine}
        return Options(
            **{
                **where,
                "model": f"scripted:{self.folder / 'script.toml'}",
                "cwd": work,
                "env": environment,
                "stderr": self.warnings.append,
                **given,
            }
        )


def run(loop: str, play: Play, *given: Any) -> Any:
    """Run a program on a loop, and end it if it hangs."""

    async def timed() -> Any:
        with anyio.fail_after(PATIENCE_SECONDS):
            return await play(*given)

    if loop == "uvloop":
        return anyio.run(timed, backend="asyncio", backend_options={"use_uvloop": True})
    return anyio.run(timed, backend=loop)


def kinds(messages: list[Message]) -> list[str]:
    """The classes of messages, with the subtype of those that have one."""
    return [":".join(filter(None, (type(one).__name__, getattr(one, "subtype", None)))) for one in messages]


def children() -> set[int]:
    """The processes that this one has started and that are still there, so far as the system tells.

    Without the worker processes, which stay until this one ends.
    """
    found: set[int] = set()
    if not os.path.isdir("/proc/self/task"):
        return found
    for task in os.listdir(f"/proc/{os.getpid()}/task"):
        try:
            found |= {int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{task}/children").read_text().split()}
        except OSError:
            continue
    return found - {worker.child.pid for worker in get_pool().workers}
