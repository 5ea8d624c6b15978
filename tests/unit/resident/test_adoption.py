"""What a server checks of a launcher."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from parley.resident.adoption import find_difference, is_peer_alive, read_status

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
CONNECT = "import socket, sys; one = socket.socket(socket.AF_UNIX); one.connect(sys.argv[1]); sys.stdin.read()"


def test_a_child_does_not_differ_and_a_process_that_is_gone_cannot_be_read() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        assert find_difference(child.pid, read_status(child.pid)) == ""
    with pytest.raises(FileNotFoundError):
        find_difference(child.pid, read_status(child.pid))


def test_a_peer_that_has_ended_is_not_alive(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{here}/socket")
            listener.listen()
            command = [sys.executable, "-c", CONNECT, str(tmp_path / "socket")]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
                connection = listener.accept()[0]
                assert is_peer_alive(connection)
            assert child.returncode == 0
            with connection:
                assert not is_peer_alive(connection)
    finally:
        os.close(here)
