"""Deletions that need approval in every mode."""

from __future__ import annotations

import pytest

from parley.permissions.shell import is_critical_delete


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /", "rm -rf /*", "rm -rf //", "rm -rf /.", "rm -rf /etc", "rm -r /etc/", "rmdir /usr", "rm -rf ~",
        "rm -rf ~/", "rm -rf ~/*", "rm -rf ~root", "rm -rf $HOME", 'rm -rf "$HOME"/', "rm -rf ${HOME}",
        "rm -rf /home/me", "rm -rf /home", "rm -rf .", "rm -rf ./", "rm -rf ..", "rm -rf ../..", "rm -rf $PWD",
        "rm -rf `pwd`", "rm -rf /home/me/p", "rm -rf *", "rm -rf ./*", "rm -rf $X/", 'rm -rf "$X"/*',
        "rm -rf ${X}/etc", "sudo rm -rf /", "bash -c 'rm -rf ~'", "ls; rm -rf /", "echo $(rm -rf /)", "/bin/rm -rf /",
        "find / -delete", "find . -exec rm {} +", "rm -fr '/'", "rm --recursive /var",
        "find / -name x -delete", "find . -exec /bin/rm {} +", "cd / && rm -rf usr", "rm -rf {/,x}",
        "rm -rf /proc/self/root", "pushd / && rm -r etc", "rm -rf $(git rev-parse --show-toplevel)",
        "rm -rf " + "x" * 5_000, "cd /x && rm -rf ..", "rm -rf x /",
    ],
)  # fmt: skip
def test_a_critical_delete_is_seen(command: str) -> None:
    assert is_critical_delete(command, "/home/me/p", "/home/me")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build", "rm a.txt", "rm *", "rm -rf ./build/*", "rm -rf /tmp/x", "rm -rf ~/x", "rm -rf $X",
        "rm -rf $X/build", "rm -rf a$X/", "echo rm -rf /", "ls /", "find . -name x", "find / -name x",
        "find build -delete", "rm -rf ../q", "git rm x", "true", "rm -rf /home/me/p/x", "rm", "rm -rf ${X}*",
        "rm -rf ''",
    ],
)  # fmt: skip
def test_other_deletes_are_not_critical(command: str) -> None:
    assert not is_critical_delete(command, "/home/me/p", "/home/me")
