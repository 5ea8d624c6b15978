"""Start a supervisor in the sandbox. All commands of one policy run under it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from parley.protocol.base import Struct
from parley.workspace.sandbox import cleanup, seccomp
from parley.workspace.sandbox.base import (
    PRIVATE_TEMP,
    PROXY_PORT,
    SandboxOffer,
    SandboxPolicy,
    choose_mounts,
    find_root,
    is_beneath,
    plan_mounts,
    plan_paths,
)
from parley.workspace.sandbox.cleanup import ProtectedFiles

ROOT = Path(__file__).parents[3]
BOOT = "import sys; sys.path.append(sys.argv[1]); from parley.workspace.sandbox.{module} import main; "
INSIDE = BOOT.format(module="inside") + "main(*map(int, sys.argv[2:]))"
CLEANUP = BOOT.format(module="cleanup") + "main(*map(int, sys.argv[2:]))"
"""Our modules come last on the path, so that they cannot shadow the standard library."""
CLEANER_DELAY_SECONDS = 0.015
"""Bubblewrap and an interpreter take longer to start, so no command has run by then."""


class SandboxFolders(Struct, frozen=True, kw_only=True):
    """Private folders of the sandbox on the host."""

    temp: str
    """The /tmp of commands, for a session."""
    empty: str
    records: str
    quarantine: str
    """For files with a protected name that a command created."""


class SandboxRun:
    """A supervisor in the sandbox, and what must be cleaned up after it."""

    def __init__(self, records: list[cleanup.PlaceholderRecord], restore: Callable[[], object]) -> None:
        self._records = records
        self._restore = restore
        self._watched, self.alive = (end.detach() for end in socket.socketpair())
        """The sandbox and this process hold `alive`; when both are gone, the cleaner starts its work."""
        self.errors = os.memfd_create("parley-sandbox-errors")
        self._cleaner: subprocess.Popen[bytes] | None = None
        self._job = b""
        self.stop_serving: Callable[[], object] = lambda: None
        """Closes the port of the proxy. An open one would keep the network namespace."""
        self._timer: asyncio.TimerHandle | None = None
        self.helpers: tuple[int, ...] = ()
        self.process: subprocess.Popen[bytes]

    def start_cleaner_soon(self, job: bytes) -> None:
        """Start it while the sandbox starts, so that the first command does not wait for it."""
        self._job = job
        self._timer = asyncio.get_running_loop().call_later(CLEANER_DELAY_SECONDS, self._try_to_start_cleaner)

    def replace_cleaner(self, job: bytes) -> None:
        """Let it know of another state to restore."""
        self._job = job
        if self._cleaner is not None:
            before = self._cleaner
            self._start_cleaner()
            before.kill()
            before.wait()

    def _try_to_start_cleaner(self) -> None:
        with contextlib.suppress(OSError):  # if our interpreter cannot be executed, the sandbox does not start either
            self._start_cleaner()

    def _start_cleaner(self) -> None:
        job_file = open_memory(self._job)
        try:
            self._cleaner = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", CLEANUP, str(ROOT), str(self._watched), str(job_file)],
                pass_fds=[self._watched, job_file],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        finally:
            os.close(job_file)
        self.helpers = (self._cleaner.pid,)

    def finish(self) -> str:
        """All processes are gone: clean up. Returns what the supervisor or bubblewrap wrote to stderr."""
        self._restore()
        self.stop_serving()
        for record in self._records:
            record.release()
        if self._timer is not None:
            self._timer.cancel()
        if self._cleaner is not None:
            self._cleaner.kill()
            self._cleaner.wait()
            self._cleaner = None
        text = os.pread(self.errors, 2000, 0)
        for descriptor in (self._watched, self.alive, self.errors):
            os.close(descriptor)
        return text.decode(errors="replace").strip()


class SandboxLauncher:
    """A policy, and how to start a supervisor that runs commands under it."""

    def __init__(
        self,
        offer: SandboxOffer,
        policy: SandboxPolicy,
        folders: SandboxFolders,
        protected: ProtectedFiles,
        serve: Callable[[socket.socket], Callable[[], object]] | None = None,
    ) -> None:
        """`serve`: takes the listening socket for the proxy."""
        self.policy = policy
        self.temp = PRIVATE_TEMP if offer.kind == "bubblewrap" and not policy.writable else folders.temp
        self._offer = offer
        self._folders = folders
        self._protected = protected
        self._serve = serve
        self._is_idle = True
        """Whether all processes of commands have ended, and what they changed was restored."""
        self._undone: list[str] = []
        """What was restored and not yet reported."""
        self._run: SandboxRun | None = None
        """The last one."""

    def start(self, control: socket.socket, environment: Mapping[str, str]) -> SandboxRun:
        """Start the supervisor. Raises OSError."""
        run = SandboxRun(self._take_placeholders(), self.after_command)
        self._protected.look()  # at the placeholders
        self.before_command()
        hello, far_hello = socket.socketpair()
        machine = os.uname().machine
        more: seccomp.Code = []
        if self._offer.kind == "landlock" and not self.policy.filesystem_disabled:
            from parley.workspace.sandbox.metadata_guard import notify_rules

            more = notify_rules(machine)
        program = seccomp.build_filter(self._filter_rules(), machine, more)
        filter_file = open_memory(program)
        wrap, plan_data = self._plan(program, filter_file)
        plan = open_memory(json.dumps(plan_data).encode())
        port = 0 if self._serve is None else PROXY_PORT
        numbers = (control.fileno(), far_hello.fileno(), port, plan, run.alive)
        own = [sys.executable, "-I", "-S", "-c", INSIDE, str(ROOT), *map(str, numbers)]
        try:
            run.process = subprocess.Popen(
                [*wrap, *own],
                pass_fds=[control.fileno(), far_hello.fileno(), run.alive, filter_file, plan],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=run.errors,
                env=dict(environment),
                start_new_session=True,
            )
        except BaseException:
            hello.close()
            run.finish()
            raise
        finally:
            far_hello.close()
            os.close(filter_file)
            os.close(plan)
        if self.policy.writable:
            run.start_cleaner_soon(self._encode_job())
        self._run = run
        self._receive_listener(hello, run)
        return run

    def before_command(self) -> None:
        """Take the protected files as they are now: the user may have changed them."""
        self._restore()  # if commands of a supervisor that does not respond are left
        self._is_idle = False
        self._protected.save()

    def accept(self, path: str) -> None:
        """The user has changed a file, which may be protected."""
        if self._protected.accept(path) and self._run is not None:
            self._run.replace_cleaner(self._encode_job())

    def _encode_job(self) -> bytes:
        folders = self._folders
        places = {"records": folders.records, "temp": folders.temp, "quarantine": folders.quarantine}
        return cleanup.encode_job(places, self.policy.writable, self._protected)

    def after_command(self) -> list[str]:
        """Restore protected files. Returns what commands created or changed, one sentence each."""
        self._restore()
        undone, self._undone = self._undone, []
        return undone

    def after_last_process(self) -> None:
        """A process that a command left behind may have changed protected files after the end of the command."""
        self._restore()
        self._is_idle = True

    def _restore(self) -> None:
        if self._is_idle:
            return
        reason = "it is protected, because it decides what runs later"
        try:
            changed = self._protected.restore(self._folders.quarantine)
            self._undone += [f"{path}: {reason}; the change was undone" for path in changed]
        except OSError as exc:
            self._undone.append(f"{exc.filename}: {reason}, but the change could not be undone: {exc.strerror}")

    def _take_placeholders(self) -> list[cleanup.PlaceholderRecord]:
        if self._offer.kind != "bubblewrap" or self.policy.filesystem_disabled:
            return []
        records = {root: cleanup.PlaceholderRecord(self._folders.records, root) for root in self.policy.writable}
        for record in records.values():
            record.hold()
        _, placeholders = choose_mounts(self.policy, ())
        for path in placeholders:
            root = find_root(path, self.policy.writable)
            if root is not None:
                records[root].create(path)
        return list(records.values())

    def _filter_rules(self) -> seccomp.FilterRules:
        network, has_namespaces = self.policy.network, self._offer.kind == "bubblewrap"
        families: tuple[int, ...] = (seccomp.AF_INET, seccomp.AF_INET6) if has_namespaces else ()
        if network.all_unix_sockets:
            families = (*families, seccomp.AF_UNIX)
        return seccomp.FilterRules(
            families=families, namespaces=self.policy.nested_user_namespaces, shares_host=not has_namespaces
        )

    def _plan(self, program: bytes, filter_file: int) -> tuple[list[str], dict[str, Any]]:
        """What comes before the command line of the supervisor, and what the supervisor has to know."""
        policy, runtime = self.policy, runtime_paths(self.policy)
        if self._offer.kind == "bubblewrap":
            mounts = plan_mounts(policy, temp=self._folders.temp, empty=self._folders.empty, runtime=runtime)
            wrap = [self._offer.bwrap, *mounts.arguments, "--seccomp", str(filter_file), "--"]
            return wrap, {"mounts": mounts.expected}

        return [], {
            "filter": base64.b64encode(program).decode(),
            "files": not policy.filesystem_disabled,
            "paths": [] if policy.filesystem_disabled else plan_paths(policy, runtime, self._folders.temp),
        }

    def _receive_listener(self, hello: socket.socket, run: SandboxRun) -> None:
        if self._serve is None:
            hello.close()
            return
        loop, serve = asyncio.get_running_loop(), self._serve

        def receive() -> None:
            loop.remove_reader(hello)
            with hello:
                _, descriptors, _, _ = socket.recv_fds(hello, 1, 1)
            for descriptor in descriptors:
                run.stop_serving = serve(socket.socket(fileno=descriptor))

        loop.add_reader(hello, receive)


def open_memory(data: bytes) -> int:
    """A file in memory with this content, to be read from its start."""
    file = os.memfd_create("parley-sandbox")
    os.write(file, data)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def installation_paths() -> tuple[str, ...]:
    """The folders of our program. A command that can change them runs outside of the sandbox with our next import."""
    folders = (str(ROOT / "parley"), sys.prefix, sys.base_prefix)
    return tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders))


def runtime_paths(policy: SandboxPolicy) -> tuple[str, ...]:
    """The folders of our interpreter that the policy would hide."""
    hidden = ("/tmp", "/run", *policy.unreadable)
    needed = [str(ROOT / "parley"), sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), sys.executable]
    found = (path for name in needed for path in (os.path.realpath(name), name))
    return tuple(
        dict.fromkeys(
            path for path in found if any(is_beneath(path, top) for top in hidden) and not os.path.islink(path)
        )
    )
