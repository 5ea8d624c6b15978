"""A PostgreSQL server of our own on loopback, for as long as the tests run.

The programs come from the PATH or from where Debian and its like put them. The server refuses
to run as root, so root runs it as someone else.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.ports import free_port

START_SECONDS = 60
QUICK = ("-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=40")


def programs() -> Path | None:
    """The folder with the server's programs; None where there is no server."""
    places = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists() and (place / "pg_ctl").exists()), None)


def owner() -> pwd.struct_passwd:
    """Who runs the server."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    names = {user.pw_name: user for user in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


@contextmanager
def server(bin: Path) -> Iterator[str]:
    """The address of a server that is ready."""
    user = owner()
    folder = Path(tempfile.mkdtemp(prefix="parley-postgres-"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    data = folder / "data"

    def run(*words: str) -> None:
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        # The server keeps what it is given as stdout: a pipe would never end.
        with (folder / "log").open("ab") as log:
            subprocess.run([str(word) for word in words], check=True, stdout=log, stderr=log, cwd=folder, **who)  # type: ignore[call-overload]  # what only root gives

    try:
        run(f"{bin}/initdb", "-D", f"{data}", "-U", "parley", "--auth=trust", "-E", "UTF8", "--no-sync", "--no-locale")
        port = free_port()
        more = " ".join((*QUICK, "-c", f"port={port}", "-c", "listen_addresses=127.0.0.1", "-k", f"{folder}"))
        run(f"{bin}/pg_ctl", "-D", f"{data}", "-w", "-t", str(START_SECONDS), "-o", more, "start")
        try:
            yield f"postgres://parley@127.0.0.1:{port}/postgres"
        finally:
            run(f"{bin}/pg_ctl", "-D", f"{data}", "-m", "immediate", "-w", "stop")
    except subprocess.CalledProcessError as exc:
        raise RuntimeError(f"{exc}\n{(folder / 'log').read_text(errors='replace')}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
