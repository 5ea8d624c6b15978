"""An environment for Harbor without containers.

Commands run on this machine with everything that it has, except that /app, /logs, /tests and /solution are those of
the trial.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult

OWN = ("app", "logs", "tests", "solution", "installed-agent")
HIDDEN = ("proc", "dev", "tmp")


class LocalEnvironment(BaseEnvironment):  # type: ignore[misc]  # harbor is installed only where it runs
    @staticmethod
    def type() -> str:
        return "local"

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="harbor-"))
        for name in (*OWN, "home", "logs/agent", "logs/verifier", "logs/artifacts"):
            (self._root / name).mkdir(exist_ok=True)

    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    def _place(self, path: str) -> Path:
        """Where a path of the environment is on the machine."""
        name = path.lstrip("/")
        return self._root / name if name.split("/")[0] in OWN else Path(path)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._place(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source_path, self._place(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._place(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy2(self._place(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._place(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
        **more: Any,
    ) -> ExecResult:
        binds = [f"/{name}" for name in os.listdir("/") if name not in (*OWN, *HIDDEN)]
        words = ["bwrap", "--dev", "/dev", "--proc", "/proc", "--bind", "/tmp", "/tmp"]
        for path in binds:
            link = os.path.islink(path)
            words += ["--symlink", os.readlink(path), path] if link else ["--bind", path, path]
        for name in OWN:
            words += ["--bind", str(self._root / name), f"/{name}"]
        process = await asyncio.create_subprocess_exec(
            *words, "--chdir", cwd or "/app", "bash", "-c", command,
            env={**os.environ, "HOME": str(self._root / "home"), **self._merge_env(env)},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        stdout, stderr = await asyncio.wait_for(process.communicate(), timeout_sec)
        assert process.returncode is not None
        return ExecResult(stdout=stdout.decode(), stderr=stderr.decode(), return_code=process.returncode)

    def _merge_env(self, env: dict[str, str] | None) -> dict[str, str]:
        return {**self._persistent_env, **(env or {})}
