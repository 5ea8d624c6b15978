"""What came of a command, and how it is asked to end."""

from __future__ import annotations

import subprocess
import sys

TURNS_INTO_ANOTHER = """
import os, signal
from parley.workspace.process.tree import ProcessTree

heard, says = os.pipe()
wait, go = os.pipe()
done, becoming = os.pipe()
child = os.fork()
if child == 0:
    os.close(done)
    signal.signal(signal.SIGTERM, lambda number, frame: os.write(says, b"a"))
    os.write(says, b"r")
    while not os.read(wait, 1):
        pass
    os.execv("/bin/sleep", ["sleep", "600"])
os.close(becoming)
os.read(heard, 1)
tree = ProcessTree()
tree.ask_to_end()
os.read(heard, 1)
tree.ask_to_end()
os.write(go, b"!")
os.read(done, 1)  # its end is closed by the exec
os.set_blocking(heard, False)
try:
    print("asked again:", os.read(heard, 1))
except BlockingIOError:
    print("asked once")
tree.ask_to_end()
print("ended by", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_is_asked_once_and_again_when_it_has_become_another_program() -> None:
    """A shell that notes the signal for later and then turns into the command would sleep on for the whole grace."""
    argv = [sys.executable, "-c", TURNS_INTO_ANOTHER]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("asked once\nended by -15\n", "")
