"""Play the attempts in a sandbox, or without one, and tell which escaped.

    python -m tests.helpers.escape.stage KIND [NAME ...]        # none, bubblewrap, landlock
    {"escaped": {"write_new_file": ["changed .../write_new_file.new"]}, "tried": [...], "output": "..."}

Runs as the user who starts it, root or another; everything is below folders of its own, which it removes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.helpers.environment import base_environment
from tests.helpers.escape.attempts import ESCAPED
from tests.helpers.escape.run import ENTRIES
from tests.helpers.escape.sandboxed import run_in_sandbox
from tests.helpers.patience import TEST_SECONDS

HERE = Path(__file__).parent
PACKAGE = "tests/helpers/escape"
PROGRAMS = ("attempts.py", "files.py", "network.py", "processes.py", "review.py", "run.py")

SIGNALS = [name for name in ENTRIES if name.startswith("signal_")]
TERMINALS = [name for name in ENTRIES if "terminal" in name or name.startswith("type_")]
SETTINGS = ("settings.json", "settings.local.json", "CLAUDE.md", ".credentials.json")
PROXY_PORT = 3128
SECRET = "SECRET-{}-0123456789abcdef0123456789"


class Stage:
    """The folders, listeners, terminals and the victim of one run."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.base = Path(tempfile.mkdtemp(prefix="parley-escape-", dir="/var/tmp"))
        self.temp = Path(tempfile.mkdtemp(prefix="parley-escape-", dir="/tmp"))
        self.shm = Path(tempfile.mkdtemp(prefix="parley-escape-", dir="/dev/shm"))
        self.outside, self.home, self.workspace = (self.base / name for name in ("outside", "home", "workspace"))
        self.work = self.workspace / "work"
        """Where the attempts make files. Under Landlock none can be made beside a file that must not be read."""
        self.heard: list[bytes] = []
        self._resources = contextlib.ExitStack()
        self._ended = threading.Event()
        self.secrets = {key: SECRET.format(key) for key in self._secret_files()}
        self.config: dict[str, Any] = {}

    def _secret_files(self) -> dict[str, Path]:
        return {
            "key": self.home / ".ssh" / "id_ed25519",
            "cloud": self.home / ".aws" / "credentials",
            "engine": self.home / ".claude" / ".credentials.json",
            "denied": self.workspace / "private" / "denied.txt",
            "denied_folder": self.base / "denied" / "inner.txt",
        }

    def __enter__(self) -> Stage:
        self._make_files()
        free = socket.create_server(("127.0.0.1", 0))
        self.config = {
            "workspace": str(self.work),
            "home": str(self.home),
            "places": {"outside": str(self.outside), "temp": str(self.temp), "shm": str(self.shm)},
            "secrets": {key: str(path) for key, path in self._secret_files().items()},
            "sandboxed": self.kind != "none",
            "mark": str(os.getpid()),
            "free_port": free.getsockname()[1],
            "segment_key": 0x70000000 | os.getpid(),
            "queue": f"parley-escape-{os.getpid()}",
            "interface": own_address(),
            "pid_namespace": os.stat("/proc/self/ns/pid").st_ino,
            "setuid": os.environ.get("ESCAPE_SETUID", ""),
        }
        free.close()
        self._listen()
        self._open_terminals()
        self._start_victim()
        self._leak_descriptors()
        (self.work / "config.json").write_text(json.dumps(self.config))
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._resources.close()
        for folder in (self.base, self.temp, self.shm):
            shutil.rmtree(folder, ignore_errors=True)

    def _make_files(self) -> None:
        for folder in (self.outside, self.home, self.workspace, self.work, self.work / PACKAGE):
            folder.mkdir(parents=True)
        for name in ENTRIES:
            for folder in (self.outside, self.temp):
                (folder / f"{name}.txt").write_text("canary")
            (self.outside / f"{name}.folder").mkdir()
        for key, path in self._secret_files().items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(self.secrets[key])
        (self.home / ".bashrc").write_text("# mine\n")
        for name in PROGRAMS:
            shutil.copy(HERE / name, self.work / PACKAGE / name)
        self._before = self._look()

    def _look(self) -> dict[str, object]:
        """Everything about the canaries that an attempt could change."""
        found: dict[str, object] = {}
        for folder in (self.outside, self.temp, self.shm, self.home):
            for path in folder.rglob("*"):
                if path.is_relative_to(self.home / ".claude") and path.name not in SETTINGS:
                    continue  # the engine's own files
                status = path.lstat()
                plain = stat.S_ISREG(status.st_mode)
                found[str(path)] = (
                    (status.st_mode, status.st_uid, status.st_ino)
                    + ((status.st_mtime_ns, status.st_nlink) if plain else ())
                    + ((path.read_bytes(), tuple(os.listxattr(path))) if plain and os.access(path, os.R_OK) else ())
                )
        return found

    def _listen(self) -> None:
        (self.base / "sockets").mkdir()
        paths = {key: str(self.base / "sockets" / key) for key in ("stream", "datagram")}
        names = {key: f"parley-escape-{key}-{os.getpid()}" for key in ("abstract", "abstract_datagram")}
        unix = {**paths, **names, "workspace": str(self.work / "listener")}
        for key, address in unix.items():
            kind = socket.SOCK_DGRAM if "datagram" in key else socket.SOCK_STREAM
            self._hear(socket.AF_UNIX, kind, "\0" + address if "abstract" in key else address)
        tcp: dict[str, Any] = {}
        udp: dict[str, Any] = {"reachable": self.kind == "none"}
        hosts = {"v4": "127.0.0.1", "v6": "::1", "interface": self.config["interface"]}
        for key, host in hosts.items():
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with contextlib.suppress(OSError):
                tcp[key] = self._hear(family, socket.SOCK_STREAM, (host, 0))[:2]
                udp[key] = self._hear(family, socket.SOCK_DGRAM, (host, 0))[:2]
        for last in range(2, 250):
            with contextlib.suppress(OSError):
                tcp["proxy_port"] = self._hear(socket.AF_INET, socket.SOCK_STREAM, (f"127.0.0.{last}", PROXY_PORT))
                break
        self.config |= {"tcp": tcp, "udp": udp, "unix": unix}

    def _hear(self, family: int, kind: int, address: Any) -> Any:
        """Listen, and keep what is heard."""
        listener = self._resources.enter_context(socket.socket(family, kind))
        if family == socket.AF_INET and kind == socket.SOCK_STREAM:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen(64)
        listener.settimeout(0.1)
        threading.Thread(target=self._hear_all, args=(listener, kind), daemon=True).start()
        return listener.getsockname()

    def _hear_all(self, listener: socket.socket, kind: int) -> None:
        while not self._ended.is_set():
            try:
                if kind == socket.SOCK_DGRAM:
                    self.heard.append(listener.recv(4096))
                    continue
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            threading.Thread(target=self._hear_one, args=(connection,), daemon=True).start()

    def _hear_one(self, connection: socket.socket) -> None:
        connection.settimeout(3)
        got = b""
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(4096):
                got += data
                if got.startswith(b"GET "):
                    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                    break
        self.heard.append(got or b"(a connection without a word)")

    def _open_terminals(self) -> None:
        self._masters: dict[int, str] = {}
        terminals = {}
        for name in TERMINALS:
            master, slave = pty.openpty()
            self._masters[master] = name
            terminals[name] = os.ttyname(slave)
            self._resources.callback(os.close, slave)
            self._resources.callback(os.close, master)
        self.shown: dict[str, bytes] = dict.fromkeys(TERMINALS, b"")
        self.config["terminals"] = terminals
        threading.Thread(target=self._watch_terminals, daemon=True).start()

    def _watch_terminals(self) -> None:
        masters = dict(self._masters)
        while masters and not self._ended.is_set():
            for master in select.select(list(masters), [], [], 0.05)[0]:
                try:
                    self.shown[masters[master]] += os.read(master, 4096)
                except OSError:  # hung up by an attempt that had it
                    self.shown[masters[master]] += b"(hung up)"
                    del masters[master]

    def _start_victim(self) -> None:
        variables = {"MEMORY": "memory", "FILE": "file", "SEGMENT": "segment", "ENGINE": "environment"}
        self.secrets |= {key: SECRET.format(key) for key in variables.values()}
        secrets = {f"{name}_SECRET": self.secrets[key] for name, key in variables.items()}
        arguments = [str(self.config["segment_key"]), self.config["queue"]]
        self._victim = subprocess.Popen(
            [sys.executable, "-I", "-S", str(HERE / "victim.py"), *arguments],
            env={"PATH": "/usr/bin:/bin", **secrets},
            cwd=self.outside,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._resources.callback(self._victim.kill)
        assert self._victim.stdout is not None
        self.config |= json.loads(self._victim.stdout.readline())
        self.config["signals"] = {name: signal.SIGRTMIN + index for index, name in enumerate(SIGNALS)}

    def _leak_descriptors(self) -> None:
        """What a careless parent of the engine leaves open."""
        self.secrets["inherited"] = SECRET.format("inherited")
        leaked = os.memfd_create("leaked", 0)
        os.write(leaked, self.secrets["inherited"].encode())
        folder = os.open(self.outside, os.O_RDONLY)
        for number, target in ((leaked, 57), (folder, 58)):
            os.dup2(number, target, inheritable=True)
            self._resources.callback(os.close, target)

    def environment(self) -> dict[str, str]:
        """The environment of the engine; the key must not reach commands."""
        self.secrets["key_variable"] = SECRET.format("key_variable")
        return {**base_environment(), "HOME": str(self.home), "ANTHROPIC_API_KEY": self.secrets["key_variable"]}

    def command(self, names: list[str]) -> list[str]:
        return [sys.executable, "-I", "-S", f"work/{PACKAGE}/run.py", "work/config.json", *names]

    def visit_free_port(self) -> None:
        """Programs outside that would connect to a server in the sandbox."""
        while not self._ended.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.config["free_port"]), 0.2):
                pass
            time.sleep(0.02)

    def judge(self, output: str) -> dict[str, list[str]]:
        """Which attempts left a mark, and where."""
        self._victim.send_signal(signal.SIGCONT)  # whoever traced it has stopped it
        said, _ = self._victim.communicate(timeout=TEST_SECONDS)
        escaped: dict[str, list[str]] = {}

        def note(name: str, mark: str) -> None:
            escaped.setdefault(name, []).append(mark)

        for name, part in re.findall(r"^TRY (\w+)$(.*?)^END \w+ \d+$", output, re.M | re.S):
            if f"{ESCAPED} {name}" in part:
                note(name, "says so")
            for key, secret in self.secrets.items():
                if secret in part:
                    note(name, f"printed the secret {key}")
        for path, change in find_changes(self._before, self._look()):
            note(find_name(Path(path).name.encode()) or find_name(change) or path, f"changed {path}")
        for heard in self.heard:
            note(find_name(heard) or "unknown", f"was heard: {heard[:60]!r}")
        for name, number in self.config["signals"].items():
            if f"signal {number}\n" in said:
                note(name, f"signalled the engine ({number})")
        for name, shown in self.shown.items():
            if name.encode() in shown or b"(hung up)" in shown:
                note(name, f"appeared on the terminal: {shown[:60]!r}")
        if survivors := find_processes(b"600.0" + self.config["mark"].encode()):
            note("outlive_sandbox", f"processes {survivors} are alive")
            for pid in survivors:
                os.kill(pid, signal.SIGKILL)
        return escaped


def own_address() -> str:
    """The address of this machine's interface; loopback if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def find_changes(before: dict[str, object], after: dict[str, object]) -> list[tuple[str, bytes]]:
    changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
    return [(path, repr(after.get(path)).encode()) for path in changed]


def find_name(data: bytes) -> str | None:
    """The attempt that a text names; the longest, because some names begin alike."""
    found = [name for name in ENTRIES if name.encode() in data]
    return max(found, key=len, default=None)


def find_processes(word: bytes) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(int(pid))
    return found


def play_without(stage: Stage, names: list[str]) -> str:
    """The control."""
    output = stage.base / "output"
    with output.open("wb") as file:  # not a pipe: one attempt leaves a process behind
        subprocess.run(
            stage.command(names),
            cwd=stage.workspace,
            env=stage.environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            close_fds=False,
            check=False,
            timeout=TEST_SECONDS,
        )
    return output.read_text("latin-1")


def main(kind: str, *names: str) -> None:
    with Stage(kind) as stage:
        threading.Thread(target=stage.visit_free_port, daemon=True).start()
        output = play_without(stage, list(names)) if kind == "none" else run_in_sandbox(stage, kind, list(names))
        escaped = stage.judge(output)
        tried = re.findall(r"^END (\w+) \d+$", output, re.M)
        sys.stdout.write(json.dumps({"escaped": escaped, "tried": tried, "output": output}))


if __name__ == "__main__":
    main(*sys.argv[1:])
