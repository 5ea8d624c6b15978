"""Tell what the sandbox refused, from what a command wrote.

A refused system call is an ordinary error for a program: `cat: /home/me/.ssh/id_rsa: Permission denied`. Most programs
name the file. If the policy refuses that file, the sandbox is the reason, and the model is told so; otherwise the error
has nothing to do with the sandbox.
"""

from __future__ import annotations

import os
import re

from parley.workspace.sandbox.base import SandboxKind, SandboxPolicy
from parley.workspace.sandbox.mounts import find_root, is_beneath

ERRORS = re.compile(
    r"Read-only file system|Permission denied|Operation not permitted|Device or resource busy|File exists|No such file",
    re.IGNORECASE,
)
QUOTED_PATH = re.compile(r"['\"‘“`]([^'\"’”`\n]+)['\"’”`]")
PLAIN_PATH = re.compile(r"(?<![\w/])((?:/|\./|\.\./|~/)?[\w.@+-][^\s:'\"]*|/)(?=[:\s'\"]|$)")
NETWORK_ERRORS = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|getaddrinfo|EAI_AGAIN|ENOTFOUND|unable to resolve host",
    re.IGNORECASE,
)
SOCKET_ERRORS = re.compile(r"socket.{0,40}(Operation not permitted|EPERM)", re.IGNORECASE)
MAX_LINES = 400
MAX_VIOLATIONS = 10
NO_NETWORK = "the network: commands in the sandbox can reach only the hosts that the settings allow, through a proxy"
NO_SOCKET = "a socket: commands in the sandbox may not use Unix sockets"
NO_LANDLOCK_NETWORK = "the network: commands have no network under Landlock; install bubblewrap"


def find_violations(policy: SandboxPolicy, output: str, kind: SandboxKind) -> list[str]:
    """One sentence for each refusal that the output shows."""
    found: list[str] = []
    lines = output.splitlines()
    for line in [*lines[: MAX_LINES // 2], *lines[MAX_LINES // 2 :][-MAX_LINES // 2 :]]:
        if ERRORS.search(line) and not policy.filesystem_disabled:
            found += explain_paths(policy, line)
        if NETWORK_ERRORS.search(line):
            found.append(NO_LANDLOCK_NETWORK if kind == "landlock" else NO_NETWORK)
        elif SOCKET_ERRORS.search(line) and (kind == "landlock" or not policy.network.all_unix_sockets):
            found.append(NO_LANDLOCK_NETWORK if kind == "landlock" else NO_SOCKET)
    return list(dict.fromkeys(found))[:MAX_VIOLATIONS]


def explain_paths(policy: SandboxPolicy, line: str) -> list[str]:
    # The path is next to the error: `bash: line 1: /etc/x: Read-only file system`.
    error = ERRORS.search(line)
    before = line if error is None else line[: error.start()]
    words = [*reversed(QUOTED_PATH.findall(line)), *reversed(PLAIN_PATH.findall(before)), *PLAIN_PATH.findall(line)]
    for word in dict.fromkeys(words):
        path = os.path.normpath(os.path.join(policy.cwd, os.path.expanduser(word)))
        if reason := explain_path(policy, path, line):
            return [f"{path}: {reason}"]
    return []


def explain_path(policy: SandboxPolicy, path: str, line: str) -> str:
    """Why the policy refuses a path; "" if it does not."""
    hidden = find_root(path, policy.unreadable)
    shown = find_root(path, (*policy.writable, *policy.readable))
    if hidden is not None and (shown is None or len(shown) < len(hidden)):
        return "reading it is not allowed in the sandbox"
    root = find_root(path, policy.writable)
    if any(is_beneath(path, kept) for kept in policy.read_only):
        return "writing it is not allowed in the sandbox"
    if any(is_beneath(path, kept) for kept in policy.protected):
        return "it is protected in the sandbox, because it decides what runs later"
    if root is None and re.search(r"Read-only|Permission denied", line, re.IGNORECASE) and looks_like_path(path):
        return "it is outside of the folders that commands in the sandbox may change"
    return ""


def looks_like_path(path: str) -> bool:
    """Whether a word of an error message is a path, and not just any word."""
    return os.path.lexists(path) or (os.path.isdir(os.path.dirname(path)) and os.path.dirname(path) != "/")
