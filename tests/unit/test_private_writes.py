"""Who may create, replace and lock files, and open SQLite files, read off the syntax trees.

Everybody goes through `parley.workspace.private_files` and `parley.workspace.private_database`. A path that is opened
for writing by name alone may lead elsewhere by a link. Whoever writes in another way, and is right to, is in a table
here, with the reason. Devices and `/proc` are no files, and a name in an opened folder that is opened with O_NOFOLLOW
or O_EXCL leads nowhere else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import paths

SOURCE = paths.SOURCE
HELPER = "parley.workspace.private_files"
NAMED = "where the person says"
TEMPORARY = "in a new folder of its own, from mkdtemp"
ALLOWED = {
    "parley.cli.commands.kit.conform": f"a report {NAMED}",
    "parley.cli.commands.sessions": f"an export {NAMED}, be it a pipe or a device",
    "parley.cli.commands.setup": f"new files and links, {NAMED}; never over a file",
    "parley.cli.commands.kit.tap": f"text {NAMED}, be it a terminal or a pipe",
    "parley.gateway.security.tokens": f"a new token {NAMED}; never over a file",
    "parley.terminal.commands.overview": f"the folder of a memory file, {NAMED}",
    "parley.testing.launcher_script": f"a script {NAMED}; never over a file of another",
    "parley.cluster.demo": f"the files of a demo, {TEMPORARY}",
    "parley.conformance.client": f"the files of a scenario, {TEMPORARY}",
    "parley.conformance.driver": f"the home and the project of a scenario, {TEMPORARY}",
    "parley.evals.runner": "a copy of a workspace, in the folder with the results",
    "parley.evals.session": f"the files of a case, {TEMPORARY}",
    "parley.gateway.demo.seed": f"the example project of the demo, {TEMPORARY}",
    "parley.sdk.store.checkout": f"a copy of a session, {TEMPORARY}",
    "parley.settings.files.plugin_source": f"the files of a plugin, {TEMPORARY}",
    "parley.settings.files.installed_plugins": "moves such a folder to its place, and makes one for its data",
    "parley.terminal.application": f"what the person typed, {TEMPORARY}",
    "parley.testing.plugin": "the folders of a test",
    "parley.settings.mcp_files": "the lock of .claude.json: a folder, which Claude Code makes as well",
    "parley.resident.protocol": "the folder of the sockets, which is opened without following links",
    "parley.workspace.sandbox.cleanup": "a record in a private folder, and empty folders that hold a mask",
    "parley.gateway.hub": "makes the folder of the gateway, with mode 0700",
    "parley.gateway.reporting": "in that folder",
    "parley.gateway.wire_log": "in that folder",
}
ONE_MODULE = {
    "fcntl.flock": HELPER,
    "fcntl.lockf": HELPER,
    "os.rename": HELPER,
    "os.replace": HELPER,
    "sqlite3.connect": "parley.workspace.private_database",
}
"""The calls that one module makes for all."""
OTHERS = {
    ("parley.settings.files.installed_plugins", "os.rename"): "moves a folder, which cannot be replaced",
    ("parley.settings.files.plugin_source", "os.rename"): "moves a folder",
    ("parley.workspace.sandbox.cleanup", "os.rename"): "gives a folder its old name again",
    ("parley.workspace.sandbox.protected_entries", "os.rename"): "moves what commands have made to the quarantine",
}
WRITING_FLAGS = frozenset({"O_CREAT", "O_WRONLY", "O_RDWR", "O_APPEND", "O_TRUNC"})
WRITING_METHODS = frozenset({"write_text", "write_bytes", "touch", "mkdir", "symlink_to", "hardlink_to"})
WRITING_CALLS = frozenset({"makedirs", "mkdir", "mkfifo", "symlink", "link", "rename", "replace", "truncate"})
COPYING_CALLS = frozenset({"copy", "copy2", "copyfile", "copytree", "move"})


def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts): path
        for path in sorted((SOURCE / "parley").rglob("*.py"))
    }


MODULES = modules()


def attributes(node: ast.AST) -> set[str]:
    return {found.attr for found in ast.walk(node) if isinstance(found, ast.Attribute)}


def flags_of(tree: ast.Module) -> dict[str, set[str]]:
    """The names that are ever given flags, and which."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, set()).update(attributes(node.value))
    return found


def is_device(node: ast.expr) -> bool:
    """Whether a path is `/dev/null` or below `/proc`."""
    if ast.unparse(node) == "os.devnull":
        return True
    first = node.values[0] if isinstance(node, ast.JoinedStr) else node
    return isinstance(first, ast.Constant) and str(first.value).startswith("/proc/")


def writes(source: str) -> Iterator[tuple[int, str]]:
    """Line and call of everything that opens or makes a file by its name."""
    tree = ast.parse(source)
    flags = flags_of(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function, text = node.func, ast.unparse(node.func)
        by_descriptor = any(word.arg is not None and word.arg.endswith("dir_fd") for word in node.keywords)
        if text in ("open", "os.open") and is_device(node.args[0]):
            continue
        if text == "open" and node.args and not isinstance(node.args[0], ast.Call):
            mode = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
            if any(not isinstance(found, ast.Constant) or set(str(found.value)) & set("wax+") for found in mode):
                yield node.lineno, f"{text}(...)"
        elif text == "os.open":
            names = {found.id for part in node.args[1:] for found in ast.walk(part) if isinstance(found, ast.Name)}
            given = {name for part in node.args[1:] for name in attributes(part)}
            given |= {flag for name in names for flag in flags.get(name, ())}
            if given & WRITING_FLAGS and not (by_descriptor and given & {"O_NOFOLLOW", "O_EXCL"}):
                yield node.lineno, text
        elif not by_descriptor and is_writing(function):
            yield node.lineno, text


def is_writing(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute):
        return False
    of = {"os": WRITING_CALLS, "shutil": COPYING_CALLS}.get(ast.unparse(function.value), WRITING_METHODS)
    return function.attr in of


@pytest.mark.parametrize("module", [name for name in MODULES if name not in ALLOWED and name != HELPER])
def test_no_module_makes_files_by_itself(module: str) -> None:
    path = MODULES[module]

    assert [
        f"{path.relative_to(SOURCE.parent)}:{line}: {call} writes by name: use {HELPER}"
        for line, call in writes(path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize("module", ALLOWED)
def test_an_exception_that_no_one_needs_is_taken_out_of_the_table(module: str) -> None:
    assert list(writes(MODULES[module].read_text(encoding="utf-8")))


def calls(source: str) -> set[str]:
    """The functions that are called by their full names, such as `os.rename`."""
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)}


def test_files_are_locked_and_replaced_and_databases_opened_in_one_module() -> None:
    made = {
        (module, call)
        for module, path in MODULES.items()
        for call in calls(path.read_text(encoding="utf-8")) & ONE_MODULE.keys()
        if module != ONE_MODULE[call]
    }

    assert made == OTHERS.keys()


def test_locks_and_databases_are_not_imported_under_other_names() -> None:
    imported = {
        f"{module}: from {node.module} import {name.name}"
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if f"{node.module}.{name.name}" in ONE_MODULE
    }

    assert imported == set()


@pytest.mark.parametrize(
    "source",
    [
        "open(path, 'w')",
        "open(path, mode='ab')",
        "open(path, how)",
        "os.open(path, os.O_RDWR | os.O_CREAT)",
        "NEW = os.O_WRONLY\nos.open(path, NEW, 0o600)",
        "def f():\n    flags = os.O_RDWR\n    return os.open(path, flags | os.O_CLOEXEC)",
        "Path(path).write_text('x')",
        "path.parent.mkdir()",
        "os.replace(a, b)",
        "os.makedirs(path)",
        "shutil.copy2(a, b)",
        "os.open(name, os.O_WRONLY, dir_fd=folder)",
    ],
)
def test_a_write_by_name_is_found(source: str) -> None:
    assert len(list(writes(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "open(path)",
        "open(path, 'rb')",
        "open(private_files.open_file(path, os.O_WRONLY), 'wb')",
        "os.open(path, os.O_RDONLY | os.O_CLOEXEC)",
        "os.rename(a, b, src_dir_fd=folder, dst_dir_fd=folder)",
        "text.replace('a', 'b')",
        "os.open(os.devnull, os.O_RDWR)",
        "open('/proc/self/oom_score_adj', 'wb', 0)",
        "os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, dir_fd=folder)",
    ],
)
def test_other_calls_are_not(source: str) -> None:
    assert list(writes(source)) == []
