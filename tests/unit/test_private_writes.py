"""Who may make files, read off the syntax trees: everybody goes through `parley.workspace.private_files`.

A path that is opened for writing by name alone may lead elsewhere by a link. Whoever writes in another way, and
is right to, is in the table, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import paths

SOURCE = paths.SOURCE
HELPER = "parley.workspace.private_files"
ALLOWED = {
    "parley.workspace.atomic": "files of the working tree, by the descriptor of a folder within reach",
    "parley.settings.safe_folder": "settings and trust: by descriptors, no link followed, replaced as a whole",
    "parley.settings.files.user_config_edit": "the lock of .claude.json: a folder, which Claude Code makes as well",
    "parley.settings.files.plugin_source": "the files of a plugin, in a new folder of their own, from mkdtemp",
    "parley.settings.files.installed_plugins": "moves such a folder to its place, and makes one for its data",
    "parley.cli.commands.conformance.engine": "a report where the person says",
    "parley.conformance.client": "the folder of a scenario, from mkdtemp",
    "parley.conformance.driver": "the home and the project of a scenario, in a new folder from mkdtemp",
    "parley.conformance.scenarios.flags": "files of that project",
    "parley.conformance.scenarios.permissions": "files of that project, and one beside it",
    "parley.evals.results": "a new file with mode 0600 in the folder that the person names; no link followed",
    "parley.evals.runner": "a copy of a workspace, in the same folder",
    "parley.evals.session": "the files of a case, in a new folder of its own, from mkdtemp",
    "parley.cli.commands.sessions": "an export goes where the person says, be it a pipe or a device",
    "parley.cli.commands.setup.init": "new files of a project, in the directory that the user names",
    "parley.cli.commands.setup.link": "one link in the directory that the user names; never over a file",
    "parley.cli.commands.wire.tap": "text goes where the person says, be it a terminal or a pipe; and /dev/null",
    "parley.inspector.relay": "/dev/null in place of a closed stream",
    "parley.testing.launcher_script": "a script where the user says; never over a file of another",
    "parley.cli.bundle": "bytecode of our own modules, next to that of Python, in the folder of the package",
    "parley.gateway.demo.seed": "the example project of the demo, in a new folder of its own, from mkdtemp",
    "parley.gateway.wire.wire_log": "files with mode 0600 in the state folder, which has mode 0700",
    "parley.resident.protocol": "the folder of the sockets, with mode 0700; it is opened without following links",
    "parley.resident.adoption": "the OOM score of this very process",
    "parley.resident.control": "a lock, by the descriptor of the folder of the sockets",
    "parley.resident.launcher": "the same, and /dev/null",
    "parley.gateway.security.audit": "in the folder of the gateway, which has the mode 0700",
    "parley.gateway.database": "the same",
    "parley.gateway.hub": "makes that folder",
    "parley.gateway.session_log.session_log": "files with mode 0600 in the state folder, which has mode 0700",
    "parley.gateway.fork": "the log of a copy, in the same folder: it is moved to its place when it is complete",
    "parley.gateway.security.tokens": "a new token goes where the operator says; never over a file",
    "parley.cluster.operations.demo": "the files of a demo, in a new folder of its own, from mkdtemp",
    "parley.cluster.local.database": "a file that is made with mode 0600, where the caller says",
    "parley.cli.dial_out": "/dev/null in place of stdout",
    "parley.cli.process_secrets": "the memory of this very process, to erase keys",
    "parley.cli.stdio": "/dev/null in place of a closed stream",
    "parley.sdk.store.checkout": "in a new folder of its own, from mkdtemp",
    "parley.terminal.application": "/dev/null in place of a terminal that was closed",
    "parley.terminal.commands.memory": "the folder of a memory file, which the person opens in an editor",
    "parley.testing.plugin": "the folders of a test",
    "parley.workspace.sandbox.cleanup": "a private record, empty folders for masks, protected files in opened folders",
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


def writes(source: str) -> Iterator[tuple[int, str]]:
    """Line and call of everything that opens or makes a file by its name."""
    tree = ast.parse(source)
    flags = flags_of(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function, text = node.func, ast.unparse(node.func)
        by_descriptor = any(word.arg is not None and word.arg.endswith("dir_fd") for word in node.keywords)
        if text == "open" and node.args and not isinstance(node.args[0], ast.Call):
            mode = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
            if any(not isinstance(found, ast.Constant) or set(str(found.value)) & set("wax+") for found in mode):
                yield node.lineno, f"{text}(...)"
        elif text == "os.open":
            names = {found.id for part in node.args[1:] for found in ast.walk(part) if isinstance(found, ast.Name)}
            given = {name for part in node.args[1:] for name in attributes(part)}
            if (given | {flag for name in names for flag in flags.get(name, ())}) & WRITING_FLAGS:
                yield node.lineno, text
        elif (text == "sqlite3.connect" and ast.unparse(node.args[0]) not in ("':memory:'", "real", "address")) or (
            not by_descriptor and is_writing(function)
        ):
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
        "sqlite3.connect(path)",
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
        "sqlite3.connect(':memory:')",
    ],
)
def test_other_calls_are_not(source: str) -> None:
    assert list(writes(source)) == []
