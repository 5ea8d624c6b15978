"""Patterns in rules: texts with `*`, the paths of Read and Edit rules, and the hosts of WebFetch rules.

In the name of a tool, a command or a host, each `*` stands for any text. Paths have gitignore syntax with four anchors:

    //etc/**      from the root              ~/notes/**    from the home folder
    /src/**       from the rule's own root   docs/*.md     from the working directory (also ./docs/*.md)

A pattern that matches a folder matches everything in it. To deny, a pattern is read widely: a single name matches at
any depth, below every working directory, in any case and Unicode spelling. To allow, it is read narrowly: a folder is
the one directly below the anchor, with exact spelling.

`domain:example.com` is that host, `domain:*.example.com` every host below it. Hosts are compared label by label, never
as text: `example.com.evil.org` and `notexample.com` are other hosts. A `*` within a label stays within the label.
Addresses are compared in their shortest form, in the rule and in the URL.

See also: symlinks (filesystem.py), the contents of Bash rules (shell/command_rules.py), the rules themselves
(rules.py).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence

from parley.errors import ToolError
from parley.workspace.globs import WILD, PathGlob
from parley.workspace.sensitive_names import normalize_name
from parley.workspace.url import is_numeric, is_public, matches_host, read_address, read_url

MAX_PATH_CHARACTERS = 4096
MAX_NAME_CHARACTERS = 255
"""The kernel's limits for a path and for one part of it."""
_normalize_cached = functools.lru_cache(maxsize=256)(normalize_name)
"""Cached, because a path is compared with every rule."""
LOCAL_NAME = re.compile(r"(.*\.)?(localhost|local|localdomain|internal|intranet|lan|home|corp|svc|private|home\.arpa)")
"""Names of this machine or of its local network."""


def matches_text(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern in which each `*` stands for any text."""
    return matches_pieces(pattern.split("*"), text)


def matches_pieces(pieces: Sequence[str], text: str) -> bool:
    """As `matches_text`, with the pattern split at its stars."""
    if len(pieces) == 1:
        return text == pieces[0]
    if not text.startswith(pieces[0]):
        return False
    index = len(pieces[0])
    for piece in pieces[1:-1]:
        index = text.find(piece, index)
        if index < 0:
            return False
        index += len(piece)
    return len(text) - len(pieces[-1]) >= index and text.endswith(pieces[-1])


def may_be_path(text: str) -> bool:
    """Whether a text is short enough to be a path; a commit message or a script is not.

    A program may normalize `..` itself, so the part before it does not have to be a valid name.
    """
    if len(text) <= MAX_NAME_CHARACTERS:
        return True
    parts = text.split("/")
    return ".." in parts or (
        len(text) < MAX_PATH_CHARACTERS and all(len(part) <= MAX_NAME_CHARACTERS for part in parts)
    )


def anchor(spec: str, root: str, cwd: str, home: str) -> tuple[str, str, bool]:
    """The folder at which a pattern starts, the rest of the pattern, and whether it has no anchor."""
    if spec.startswith("//"):
        return "/", spec.lstrip("/"), False
    if spec.startswith("~/"):
        return home, spec[2:], False
    if spec.startswith("/"):
        return root, spec.lstrip("/"), False
    base, pattern = cwd, spec
    while pattern.startswith(("./", "../")):
        if pattern.startswith("../"):
            base = os.path.dirname(base)
        pattern = pattern.partition("/")[2]
    return base, pattern, True


def literal_prefix(spec: str, root: str, cwd: str, home: str) -> str:
    """The normalized path before the first wildcard of a pattern."""
    base, pattern, _ = anchor(spec, root, cwd, home)
    literal = pattern if (wild := WILD.search(pattern)) is None else pattern[: wild.start()].rpartition("/")[0]
    return normalize_name(os.path.normpath(os.path.join(base, literal)))


def matches_widely(spec: str, path: str, *, root: str, cwds: tuple[str, ...], home: str) -> bool:
    """Whether a pattern, read widely, matches an absolute path or a folder above it."""
    path = _normalize_cached(path)
    for base, pattern in _anchor_wide(spec, root, cwds, home):
        inner = relative_parts(path, base)
        if inner is not None and pattern.matches_part(inner):
            return True
    return False


@functools.lru_cache(maxsize=1024)
def _anchor_wide(spec: str, root: str, cwds: tuple[str, ...], home: str) -> tuple[tuple[str, PathPattern], ...]:
    """The start and the rest of a pattern; one per working directory if it has no anchor."""
    found = [anchor(spec, root, cwd, home) for cwd in cwds]
    starts = found if found and found[0][2] else found[:1]
    return tuple(
        (normalize_name(base), compile_wide(normalize_name(pattern), floats)) for base, pattern, floats in starts
    )


def matches_narrowly(spec: str, path: str, *, root: str, cwd: str, home: str) -> bool:
    """Whether a pattern, read narrowly, matches an absolute path or a folder above it."""
    base, pattern, floats = anchor(spec, root, cwd, home)
    inner = relative_parts(path, base)
    return inner is not None and compile_narrow(pattern, floats).matches_part(inner)


def relative_parts(path: str, folder: str) -> list[str] | None:
    """The parts of a path below a folder; empty for the folder itself, None if the path is not in it."""
    if path == folder:
        return []
    top = folder if folder.endswith("/") else folder + "/"
    return path[len(top) :].split("/") if path.startswith(top) else None


class PathPattern:
    """A compiled pattern, without its anchor."""

    def __init__(self, parts: list[str], whole: list[str]) -> None:
        self._parts = PathGlob.of(*parts) if parts else None
        """Matches the path or a folder above it."""
        self._whole = PathGlob.of(*whole) if whole else None
        """Matches only the path itself."""

    def matches_part(self, inner: list[str]) -> bool:
        if self._whole is not None and self._whole.matches("/".join(inner)):
            return True
        return self._parts is not None and self._parts.matches_beginning(inner)


@functools.lru_cache(maxsize=1024)
def compile_wide(pattern: str, floats: bool) -> PathPattern:
    """`secrets`, `secrets/` and `secrets/**` all match the folder and everything in it."""
    name = pattern.removesuffix("/**").rstrip("/") or "**"
    return PathPattern([f"**/{name}" if floats and "/" not in name else name], [])


@functools.lru_cache(maxsize=1024)
def compile_narrow(pattern: str, floats: bool) -> PathPattern:
    if floats and "/" not in pattern:
        # A name without a folder matches a file at any depth, but a folder only directly below the anchor.
        return PathPattern([pattern], [f"**/{pattern}"])
    if pattern.endswith("/"):
        return PathPattern([], [f"{pattern}**"])
    return PathPattern([pattern], [])


def parse_host(url: str) -> str | None:
    """The host of a URL, in lower case and without a final dot; None if the URL is not valid."""
    try:
        return read_url(url).host.lower().removesuffix(".")
    except ToolError:
        return None


def matches_rule_host(spec: str, host: str) -> bool:
    """Whether the contents of a rule match a host."""
    pattern = spec.removeprefix("domain:").lower().removesuffix(".").strip("[]")
    return matches_host(read_address(pattern) or pattern, host)


def is_local(host: str) -> bool:
    """Whether a host is, or may be, local or private: by name, by address or by a number."""
    if is_numeric(host):
        try:
            return not is_public(host)
        except ValueError:
            return True
    return "." not in host or LOCAL_NAME.fullmatch(host) is not None
