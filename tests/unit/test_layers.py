"""Who may import whom (design, section 1), read off the syntax trees.

Down only; across families only `base`; varieties only from compose; nothing impure in protocol.
Imports inside functions and under TYPE_CHECKING count, and so does a string that names one
of our modules: compose and the tables in ROW_TABLES have rows as strings, and nothing else may have such rows.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.version import __version__
from tests.helpers import paths

SOURCE = paths.SOURCE
FAMILIES = frozenset(
    {"tools", "models", "permissions", "hooks", "stores", "workspace", "transports", "mcp", "memory", "settings"}
    | {"telemetry"}
)
LAYERS = (
    {"__init__", "__main__", "exports", "types", "_errors"},
    {"cli"},
    {"terminal"},
    {"cluster"},
    {"gateway"},
    {"acp"},
    {"conformance"},
    {"testing"},
    {"fake"},
    {"evals"},
    {"sdk"},
    {"resident"},
    {"local_engine"},
    {"compose"},
    {"inspector"},
    {"memory implementation"},
    {"engine"},
    FAMILIES,
    {"host", "observer", "_threads", "_launched", "entry_points", "jsonrpc"},
    {"protocol"},
    {"errors", "version"},
)
RANK = {unit: rank for rank, units in enumerate(LAYERS) for unit in units}
DIALECTS = "parley.protocol.dialects"

# Parts of a family that are no variety: words and rules that its users share with it. Each has its reason.
SHARED = {
    "parley.memory.base": "the tree at a glance: pure, and the same for a model and a person",
    "parley.mcp.host_transport": "a handshake that the client performed in advance: no I/O of its own",
    "parley.mcp.content": "what servers give, as models read it, and its names: pure",
    "parley.mcp.config": "what a client says of a server's tools: pure, and the handshake says it, too",
    "parley.mcp.server_connection": "one server's life: the same over every wire",
    "parley.mcp.tool_server": "the other end of the protocol, without I/O: whoever serves tools",
    "parley.models.catalog": "what a model's name stands for, and what it costs: whoever names or counts one needs it",
    "parley.models.endpoint": "where a backend is: settings find it, adapters use it",
    "parley.models.accumulator": "how events become blocks: the other half of the vocabulary in base",
    "parley.models.event_synthesis": "how blocks become events: the same the other way round",
    "parley.models.redaction": "what looks like a key: whoever writes down or shows what a model said needs it",
    "parley.models.faults": "what can go wrong: servers spoil their answers as adapters see them",
    "parley.models.script": "the format of scripts: test servers play the same files",
    "parley.models.http.response": "how events are cut from bytes: servers and adapters read alike",
    "parley.permissions.rule": "how a rule is written: pure, and for whoever takes one in",
    "parley.permissions.rules": "which tools a rule means: whoever grants one asks the same as who judges by it",
    "parley.models.tool_references": "what a search has found, as the API spells it: pure",
    "parley.settings.env_vars": "how environment variables are read: for every program that has its own",
    "parley.settings.keys": "which settings there are and what they do: pure, and a person picks from them",
    "parley.settings.secret_variables": "which variables carry our keys: whoever starts a process, or is one, needs it",
    "parley.stores.session_open": "which session is meant: whoever opens or names one needs it",
    "parley.tools.catalog": "what is true of each tool: permissions, approval and the CLI ask it",
    "parley.tools.agent": "what a model says to hand work on: the engine does it",
    "parley.tools.schedule": "what a scheduled prompt is, and when it is due: the engine queues it",
    "parley.tools.files.access": "what the model has seen of which file: a host may show it one, too",
    "parley.stores.memory": "transcripts in memory: a host of a cluster records what is appended to them",
    "parley.stores.numbered_log": "the interface of numbered logs, and the words in which they refuse",
    "parley.stores.sql.numbered_log": "numbered logs in SQL, without I/O: a cluster has the connections",
    "parley.stores.export": "sessions between stores: the same for all",
    "parley.stores.wire_recording": "recordings of conversations: the same for whoever writes or reads one",
    "parley.stores.wire_redaction": "what is left out of recordings, and of lines that people see: pure",
    "parley.stores.records": "the frame of recordings and results: the same for whoever appends to a file",
    "parley.stores.search_text": "what was said in an entry: pure",
    "parley.stores.request_usage": "what each request read from the prompt cache: pure",
    "parley.stores.files.entry_codec": "which lines an entry adds to a transcript, and its final figures: pure",
    "parley.stores.selection": "which store the options name: pure",
    "parley.hooks.event_spec": "how an event is declared: pure",
    "parley.hooks.event_types": "the types of events, which users import: pure",
    "parley.hooks.events": "which events there are, and what each is about: pure, and for whoever fires one",
    "parley.hooks.output": "what a hook may answer, and how it is read: pure, and for whoever asks hooks",
    "parley.hooks.merge": "what several answers come to: pure, and for whoever asks hooks",
    "parley.workspace.git": "git without what a repository configures: the same for whoever runs it",
    "parley.workspace.globs": "what a path pattern means: pure, and the same for every workspace",
    "parley.workspace.sensitive_names": "which files run later or hold keys: who judges, searches and confines agree",
    "parley.workspace.search_path": "where commands find programs: who judges and who runs must search alike",
    "parley.workspace.url": "how a URL is read: who judges it and who fetches it must read alike",
    "parley.workspace.private_database": "how SQLite files are opened: the same for whoever has one",
    "parley.workspace.private_files": "how files of our own are opened, replaced and locked: for whoever has any",
    "parley.workspace.syscalls": "calls of the system that Python has no name for: whoever needs one",
    "parley.workspace.process.processes": "the side of the workspace's door that runs commands; base names it as such",
    "parley.workspace.sandbox.commands": "the side of the workspace's door that confines commands",
    "parley.workspace.sandbox.launcher": "what confines a command: whoever starts one passes it on",
    "parley.workspace.remote.address": "where the files of a session are: whoever creates or runs one says it",
    "parley.workspace.web": "the side of the workspace's door that leads to the network; its words are not in base yet",
}

# Tables with one row per tool, backend and store: each names its class, which compose imports.
ROW_TABLES = ("parley.tools.catalog", "parley.models.catalog", "parley.stores.selection")

# Imports that break the design and are to go, by the folder that has them; the reason says how.
OWED: dict[tuple[str, str], str] = {}

# Imports that the rules forbid and we want all the same.
ALLOWED = {
    (
        "parley.hooks.event_types",
        "parley.sdk.hooks",
    ): "the type of `Hooks`, in the file of the events",
    ("parley", "parley.exports"): "the table of the names that it exports",
    ("parley.cli.main", "parley.workspace.process.tree"): "a launcher hides its memory as an engine does",
    (
        "parley.cli.commands.server.serve",
        "parley.workspace.process.tree",
    ): "a server hides its token as an engine does",
    (
        "parley.cli.commands.server.serve",
        "parley.workspace.remote.address",
    ): "an entry point chooses its transport",
    ("parley.cli.commands.server.cluster", "parley.workspace.process.tree"): "a host hides its token, too",
    ("parley.cli.commands.server.serve", "parley.workspace.remote.wire"): "and who may come in",
    ("parley.cluster.demo", "parley.workspace.process.tree"): "its processes end with it, as commands do",
    ("parley.cli.run", "parley.transports.stdio"): "an entry point chooses its transport",
    ("parley.cli.spare", "parley.transports.stdio"): "an entry point chooses its transport",
    ("parley.cli.commands.server.mcp", "parley.transports.stdio"): "an entry point chooses its transport",
    ("parley.cli.commands.server.acp", "parley.transports.stdio"): "an entry point chooses its transport",
    (
        "parley.sdk.runtime.connection",
        "parley.protocol.dialects.base",
    ): "the client's own language; compose loads the engine",
    ("parley.types", "parley"): "another door to the same names, for programs that know it by this one",
    ("parley.sdk.launch.in_process", "parley.transports.base"): "an entry point chooses its transport",
    ("parley.testing.model_server", "parley.models.replay"): "or a recording",
    ("parley.testing.model_server", "parley.models.fakes"): "or the offline model",
    ("parley.cli.commands.kit.recordings", "parley.transports.stdio"): "an entry point chooses its transport",
    ("parley.fake.serve", "parley.transports.stdio"): "a fake engine has the streams of a process",
    ("parley.fake.in_process", "parley.transports.base"): "or those of a test",
}

IMPURE = frozenset(
    [
        "asyncio",
        "os",
        "sys",
        "time",
        "random",
        "pathlib",
        "logging",
        "socket",
        "subprocess",
        "threading",
        "multiprocessing",
        "concurrent",
        "select",
        "signal",
        "io",
        "tempfile",
        "shutil",
        "glob",
        "datetime",
        "uuid",
        "secrets",
        "http",
        "urllib",
        "ssl",
        "sqlite3",
        "platform",
        "getpass",
        "locale",
        "httpx2",
    ]
)
IMPURE_CALLS = frozenset({"open", "print", "input", "__import__", "exec", "eval"})
MODULE_NAME = re.compile(r"(parley(?:\.\w+)+)(?::\w+)?")


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    found = {}
    for path in sorted((SOURCE / "parley").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def unit(module: str) -> str:
    """The part of the package a module belongs to: its top folder, or its own name."""
    return module.split(".")[1] if "." in module else "__init__"


def read_folders(distribution: str) -> tuple[str, ...]:
    """The packages that are in the wheel of `parley-server` or `parley-kit`."""
    project = tomllib.loads((SOURCE.parent / "packages" / distribution / "pyproject.toml").read_text(encoding="utf-8"))
    folders = project["tool"]["hatch"]["build"]["only-include"]
    return tuple(folder.removeprefix("src/").replace("/", ".") for folder in folders)


FOLDERS = {name: read_folders(name) for name in ("server", "kit")}

# Tables of names: one of another distribution is only looked for, or imported when it is used, with an error that says
# what installs it.
NAMES_OF_ALL = ("parley.testing", "parley.cli.commands.doctor")


def distribution(module: str) -> str:
    """`agent`, `server` or `kit`."""
    return next(
        (name for name, folders in FOLDERS.items() if f"{module}.".startswith(tuple(f"{one}." for one in folders))),
        "agent",
    )


def layer(module: str) -> str:
    """The row of `LAYERS`. The memory's implementation uses the engine, which knows only `memory.base`."""
    if unit(module) == "memory" and module not in ("parley.memory", "parley.memory.base"):
        return "memory implementation"
    return unit(module)


def imports(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything that is imported, wherever it stands."""
    package = module if module in MODULES and MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, name.name) for name in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                start = ".".join([*above, *([source] if source else [])])
                for name in names:
                    inner = f"{start}.{name.name}"
                    yield node.lineno, inner if inner in MODULES else start
            case ast.Constant(value=str(text)) if named := MODULE_NAME.fullmatch(text):
                if named[1] in MODULES and module not in ROW_TABLES:
                    yield node.lineno, named[1]


def objection(module: str, imported: str) -> str | None:
    """What is wrong with this import; None if nothing."""
    mine, other = layer(module), layer(imported)
    if mine not in RANK or other not in RANK:
        return f"{mine if mine not in RANK else other} is in no layer: give it a place in LAYERS"
    if (module, imported) in ALLOWED or (mine, imported) in OWED:
        return None
    if mine != "compose" and is_variety(imported) and folder(module) != folder(imported):
        return "a variety, which only compose may know"
    across_families = mine in FAMILIES and other in FAMILIES
    if mine == other or across_families or RANK[mine] < RANK[other]:
        return None
    return f"{other} is not below {mine}"


def folder(module: str) -> str:
    """The family a module belongs to."""
    return DIALECTS if module.startswith(DIALECTS) else unit(module)


def is_variety(module: str) -> bool:
    """Whether a module is one of many behind an interface."""
    in_family = unit(module) in FAMILIES or module.startswith(f"{DIALECTS}.")
    return in_family and not module.endswith(".base") and module not in SHARED


def violations(module: str, source: str) -> list[tuple[int, str, str]]:
    """Line, imported module and objection of every import that breaks the rules."""
    ours = [(line, name) for line, name in imports(module, ast.parse(source)) if name.split(".")[0] == "parley"]
    return sorted({(line, name, found) for line, name in ours if (found := objection(module, name))})


def impurities(module: str, source: str) -> list[tuple[int, str]]:
    """Line and name of everything impure in a module of the protocol, its part as a script left out."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not is_script(node)]
    impure = [(line, name) for line, name in imports(module, tree) if name.split(".")[0] in IMPURE]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    named = [(call.lineno, call.func.id) for call in calls if isinstance(call.func, ast.Name)]
    return sorted(impure + [(line, f"{name}()") for line, name in named if name in IMPURE_CALLS])


def is_script(node: ast.stmt) -> bool:
    """Whether a statement is what runs when the module is started as a program."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_imports_only_what_it_may(module: str) -> None:
    path = MODULES[module]

    assert [
        f"{path.relative_to(SOURCE.parent)}:{line}: {module} may not import {imported}: {found}"
        for line, imported, found in violations(module, path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize("module", [name for name in MODULES if name not in NAMES_OF_ALL])
def test_a_distribution_imports_only_itself_and_the_core(module: str) -> None:
    found = imports(module, ast.parse(MODULES[module].read_text(encoding="utf-8")))

    assert [
        f"line {line}: {module} may not import {name} of parley-{distribution(name)}"
        for line, name in found
        if name in MODULES and distribution(name) not in ("agent", distribution(module))
    ] == []


def test_every_module_is_in_exactly_one_wheel_and_all_wheels_have_one_version() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    excluded = project["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]

    pins = [
        line
        for folder in ("", *(f"packages/{name}" for name in FOLDERS))
        for line in (SOURCE.parent / folder / "pyproject.toml").read_text(encoding="utf-8").splitlines()
        if re.search(r'"parley-\w+==', line)
    ]
    assert len(pins) == 4
    assert all(f"=={__version__}" in pin for pin in pins)
    assert sorted(excluded) == sorted(f"src/{one.replace('.', '/')}" for folders in FOLDERS.values() for one in folders)
    assert all((SOURCE.parent / folder).is_dir() for folder in excluded)


@pytest.mark.parametrize("module", [name for name in MODULES if unit(name) == "protocol"])
def test_the_protocol_is_pure(module: str) -> None:
    path = MODULES[module]

    assert [
        f"{path.relative_to(SOURCE.parent)}:{line}: {name}"
        for line, name in impurities(module, path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize("module", [name for name in SHARED if unit(name) == "models"])
def test_what_the_models_share_does_not_lead_to_an_adapter(module: str) -> None:
    found = imports(module, ast.parse(MODULES[module].read_text(encoding="utf-8")))

    assert [f"line {line}: {name}" for line, name in found if name.startswith("parley.") and is_variety(name)] == []


@pytest.mark.parametrize(("module", "imported"), ALLOWED)
def test_an_exception_that_no_one_uses_is_taken_out_of_the_table(module: str, imported: str) -> None:
    found = imports(module, ast.parse(MODULES[module].read_text(encoding="utf-8")))

    assert imported in {name for _, name in found}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("parley.engine.x", "from parley.models.base import Model"),
        ("parley.engine.x", "from parley.models import catalog, base"),
        ("parley.engine.x", "from parley.engine import turn"),
        ("parley.engine.x", "from parley.memory.base import MemoryWorker"),
        ("parley.memory.x", "from parley.engine.context.compactor import Compactor"),
        ("parley.engine.x", "from . import turn\nfrom .turn import Turn\nfrom ..protocol import base"),
        ("parley.tools.x", "from parley.workspace.base import Files\nimport parley.tools.bash"),
        ("parley.models.x", "from parley.models.script import Scripted"),
        (
            "parley.compose",
            "from parley.models.fakes import Offline\nROWS = {'a': 'parley.stores.files.store:Claude'}",
        ),
        ("parley.compose", "import parley.protocol.dialects.base"),
        ("parley.cli.x", "from parley.compose import Composer\nfrom parley.engine.session.session import Session"),
        ("parley.cli.run", "from parley.transports.stdio import Stdio"),
        ("parley.protocol.connection", "from parley.protocol.dialects.base import Dialect"),
        ("parley.__main__", "from parley.cli.main import run"),
        ("parley.host", "import msgspec, asyncio\n'parley.no.module'\n'see parley.models.fakes'"),
    ],
)
def test_what_the_design_allows_is_not_a_violation(module: str, source: str) -> None:
    assert violations(module, source) == []


VARIETY = "a variety, which only compose may know"


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        (
            "parley.engine.x",
            "from parley.models.fakes import Offline",
            [(1, "parley.models.fakes", VARIETY)],
        ),
        ("parley.engine.x", "from parley.models import fakes", [(1, "parley.models.fakes", VARIETY)]),
        (
            "parley.engine.x",
            "def f():\n    import parley.stores.files.store",
            [(2, "parley.stores.files.store", VARIETY)],
        ),
        (
            "parley.engine.x",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from parley.compose import Composer",
            [(3, "parley.compose", "compose is not below engine")],
        ),
        ("parley.engine.x", "ROW = 'parley.models.fakes:Offline'", [(1, "parley.models.fakes", VARIETY)]),
        ("parley.engine.x", "from ..models.fakes import Offline", [(1, "parley.models.fakes", VARIETY)]),
        ("parley.engine.x", "from parley.settings import sources", [(1, "parley.settings.sources", VARIETY)]),
        ("parley.engine.x", "from parley.memory import worker", [(1, "parley.memory.worker", VARIETY)]),
        (
            "parley.memory.base",
            "from parley.engine.clock import Clock",
            [(1, "parley.engine.clock", "engine is not below memory")],
        ),
        ("parley.stores.x", "from parley.tools.bash import Bash", [(1, "parley.tools.bash", VARIETY)]),
        (
            "parley.stores.x",
            "from parley.engine.clock import iso",
            [(1, "parley.engine.clock", "engine is not below stores")],
        ),
        ("parley.cli.x", "from parley.stores.files.store import Store", [(1, "parley.stores.files.store", VARIETY)]),
        (
            "parley.sdk.x",
            "from parley.testing import model_server",
            [(1, "parley.testing.model_server", "testing is not below sdk")],
        ),
        ("parley.protocol.x", "from parley.host import Host", [(1, "parley.host", "host is not below protocol")]),
        (
            "parley.protocol.x",
            "from parley.protocol.dialects.miriad import Miriad",
            [(1, "parley.protocol.dialects.miriad", VARIETY)],
        ),
        (
            "parley.errors",
            "from parley.version import __version__",
            [(1, "parley.version", "version is not below errors")],
        ),
        ("parley.compose", "from parley.cli import run", [(1, "parley.cli.run", "cli is not below compose")]),
        (
            "parley.helpers.x",
            "import parley.errors",
            [(1, "parley.errors", "helpers is in no layer: give it a place in LAYERS")],
        ),
    ],
)
def test_what_the_design_forbids_is_found_with_its_line(
    module: str, source: str, expected: list[tuple[int, str, str]]
) -> None:
    assert violations(module, source) == expected


def test_what_is_impure_is_found_wherever_it_stands() -> None:
    source = "import re, os.path\ndef f():\n    from time import time\n    return open('x')\n"
    script = "if __name__ == '__main__':\n    import sys\n    print(sys.argv)\n"

    assert impurities("parley.protocol.x", source + script) == [(1, "os.path"), (3, "time"), (4, "open()")]
