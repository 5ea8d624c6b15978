"""The file that `parley eval` runs: cases, what is expected of them, and the configurations to compare.

    runs = 3
    models = ["sonnet", "haiku"]

    [defaults]
    allowed_tools = ["Read", "Write"]

    [[case]]
    name = "greeting"
    prompt = "Write a greeting to hello.txt."
    expect.file_contains = { "hello.txt" = "Hello" }

Paths in the file are relative to it. Unknown keys are errors. A suite consists of every case with every configuration,
several times (`plan_runs`).
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from parley.errors import UsageError
from parley.evals.toml_errors import KeyPath, convert_toml, key_error
from parley.protocol.base import Json, Struct
from parley.protocol.option_kinds import add_options
from parley.protocol.options import FIELDS
from parley.sdk.spelling import hint

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Texts = str | list[str]
RunKey = tuple[str, str, int]
"""The names of the case and the configuration, and the number of the run."""
MODEL_FILE = re.compile(r"(scripted|replay):(.+)", re.DOTALL)
CASE = "{case}"
"""In the name of a model, this stands for the name of the case: `scripted:scripts/{case}.toml`."""
PROMPT = "{prompt}"
SLUG_CHARS = 60


class ExpectedCommand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that must exit with 0 after the session."""

    run: str
    timeout_seconds: Seconds = 60


class Expectations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be true after the session. Every case also expects that no turn fails."""

    result_contains: Texts = []
    result_matches: Texts = []
    """Regular expressions, searched in the last answer."""
    files: dict[str, str] = {}
    """Paths and their whole contents."""
    file_contains: dict[str, Texts] = {}
    missing_files: list[str] = []
    tools: list[str] = []
    """Tools that must have been called."""
    no_tools: list[str] = []
    commands: list[str | ExpectedCommand] = []
    rubric: str | None = None
    """What the judge decides by."""

    def list_commands(self) -> list[ExpectedCommand]:
        return [ExpectedCommand(run=each) if isinstance(each, str) else each for each in self.commands]


class EvalCase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task for an agent."""

    name: str
    prompt: str | None = None
    prompts: list[str] = []
    """Several prompts, sent one after the other in one session."""
    workspace: str | None = None
    """A folder that is copied to the workspace."""
    files: dict[str, str] = {}
    """More files of the workspace, with their contents."""
    allowed_tools: list[str] = []
    """Rules in addition to those of the configuration."""
    timeout_seconds: Seconds = 600
    """How long the session may take."""
    expect: Expectations = Expectations()

    def list_prompts(self) -> list[str]:
        return [self.prompt] if self.prompt is not None else self.prompts


class ConfigurationKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a configuration has besides the options that are an evaluation's too."""

    name: str | None = None
    model: str | None = None
    """`{case}` in it is replaced by the name of the case."""
    prompt_template: str = PROMPT
    """`{prompt}` in it is replaced by each prompt of a case."""
    plugins: list[str] = []
    """Folders of plugins."""
    skills: list[str] = []
    """Folders of skills, each with a SKILL.md."""
    settings: Json | str | None = None
    """Settings, or the path of a settings file."""
    setting_sources: list[Literal["project", "local"]] = []
    """Settings files of the workspace to read."""
    mcp_servers: dict[str, Json] | str | None = None
    """MCP servers by name, or the path of a configuration file."""
    env: dict[str, str] = {}

    def resolve_model(self, case: str) -> str | None:
        return None if self.model is None else self.model.replace(CASE, case)

    def list_options(self) -> Json:
        """The other options that are given, by their names in the SDK."""
        named = ((row.sdk_name, getattr(self, row.evals)) for row in OPTIONS)
        return {name: value for name, value in named if value is not msgspec.UNSET}


OPTIONS = [row for row in FIELDS.values() if row.evals]
if TYPE_CHECKING:
    EvalConfiguration = ConfigurationKeys
else:
    EvalConfiguration = add_options(
        ConfigurationKeys, "EvalConfiguration", {row.evals: row.json_type(as_choices=True) for row in OPTIONS}
    )
    """The options of a session. `[defaults]` has the same keys."""


class EvalBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of all runs together. No run starts after one is reached."""

    usd: Amount | None = None
    turns: Count | None = None
    """The most model calls."""


class JudgeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that decides by rubrics."""

    model: str
    timeout_seconds: Seconds = 120


class EvalSuite(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file. `read_suite` has put the defaults into each configuration and made all paths absolute."""

    runs: Count = 1
    concurrency: Count = 4
    min_pass_rate: Share = 1.0
    models: list[str] = []
    budget: EvalBudget = EvalBudget()
    judge: JudgeSettings | None = None
    defaults: EvalConfiguration = EvalConfiguration()
    configuration: list[EvalConfiguration] = []
    case: list[EvalCase]


def read_suite(path: Path) -> EvalSuite:
    """Read and check a file. Raises UsageError, which names the file, the line and the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"cannot read {path}: {getattr(exc, 'strerror', None) or exc}") from None
    suite = convert_toml(text, str(path), EvalSuite)
    for at, problem in find_problems(suite):
        raise key_error(text, str(path), at, problem)
    raw, folder = tomllib.loads(text), path.absolute().parent
    for at, problem in locate_paths(raw, folder, [case.name for case in suite.case]):
        raise key_error(text, str(path), at, problem)
    # Each configuration with the defaults, once for each model of `models` unless it has its own.
    merged: list[Json] = []
    for own in raw.get("configuration") or [{}]:
        values = {**raw.get("defaults", {}), **own}
        if "model" in own or not raw.get("models"):
            merged.append({"name": "default", **values})
            continue
        for model in raw["models"]:
            name = f"{own['name']}/{model}" if "name" in own else model
            merged.append({**values, "model": locate_model(model, folder), "name": name})
    configurations = msgspec.convert(merged, list[EvalConfiguration])
    return msgspec.structs.replace(msgspec.convert(raw, EvalSuite), configuration=configurations)


def find_problems(suite: EvalSuite) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong although each value has the right type."""
    if not suite.case:
        yield ("case",), "there is no case; add a [[case]]"
    if suite.defaults.name is not None:
        yield ("defaults", "name"), "only a [[configuration]] has a name"
    names: set[str] = set()
    for index, case in enumerate(suite.case):
        if case.name in names:
            yield ("case", index, "name"), f"two cases are named {case.name!r}; names must be unique"
        names.add(case.name)
        yield from ((("case", index, *at), problem) for at, problem in find_case_problems(case, suite))
    for index, configuration in enumerate(suite.configuration):
        at: KeyPath = ("configuration", index)
        if not configuration.name:
            yield at, "a configuration needs a name"
        elif [each.name for each in suite.configuration].count(configuration.name) > 1:
            yield (*at, "name"), f"two configurations are named {configuration.name!r}; names must be unique"
        if PROMPT not in configuration.prompt_template:
            yield (*at, "prompt_template"), f"the template must contain {PROMPT}"


def find_case_problems(case: EvalCase, suite: EvalSuite) -> Iterator[tuple[KeyPath, str]]:
    if not case.name.strip():
        yield ("name",), "a case needs a name"
    if (case.prompt is None) == (not case.prompts):
        yield (), "a case needs either `prompt` or `prompts`"
    paths: dict[KeyPath, Iterable[str]] = {
        ("files",): case.files,
        ("expect", "files"): case.expect.files,
        ("expect", "file_contains"): case.expect.file_contains,
        ("expect", "missing_files"): case.expect.missing_files,
    }
    for at, named in paths.items():
        for name in named:
            if not is_inside(name):
                yield at, f"{name!r} must be a path inside the workspace"
    for pattern in to_list(case.expect.result_matches):
        try:
            re.compile(pattern)
        except re.error as exc:
            yield ("expect", "result_matches"), f"invalid regular expression {pattern!r}: {exc}"
    alone = Expectations(rubric=case.expect.rubric)
    if case.expect.rubric is not None and suite.judge is None and case.expect == alone:
        yield ("expect", "rubric"), "a rubric needs a judge: add [judge] with `model`, or expect something else as well"


def is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts


def to_list(texts: Texts) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


PATHS: dict[str, tuple[Callable[[Path], bool], str]] = {
    "workspace": (Path.is_dir, "there is no folder {}"),
    "plugins": (Path.is_dir, "there is no folder {}"),
    "skills": (lambda path: (path / "SKILL.md").is_file(), "{} is not a skill: it has no SKILL.md"),
    "settings": (Path.is_file, "there is no file {}"),
    "mcp_servers": (Path.is_file, "there is no file {}"),
}
"""The keys that are paths if they are texts, or lists of them."""


def locate_paths(raw: Json, folder: Path, cases: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
    """Make the paths of a file absolute, in place; yields those that are missing."""
    tables: list[tuple[KeyPath, Json]] = [((name,), raw[name]) for name in ("defaults", "judge") if name in raw]
    for name in ("configuration", "case"):
        tables += [((name, index), table) for index, table in enumerate(raw.get(name, ()))]
    for at, table in tables:
        for key, (is_there, missing) in PATHS.items():
            value = table.get(key)
            given = [value] if isinstance(value, str) else value if isinstance(value, list) else []
            found = [folder / each for each in given]
            yield from (((*at, key), missing.format(path)) for path in found if not is_there(path))
            if isinstance(value, str | list):
                table[key] = str(found[0]) if isinstance(value, str) else list(map(str, found))
        if "model" in table:
            table["model"] = locate_model(table["model"], folder)
            if at != ("judge",):
                yield from (((*at, "model"), problem) for problem in find_missing_models(table["model"], cases))
    for model in raw.get("models", ()):
        yield from ((("models",), problem) for problem in find_missing_models(locate_model(model, folder), cases))


def locate_model(model: str, folder: Path) -> str:
    """`scripted:FILE` and `replay:FILE` are relative to the file of the suite too."""
    found = MODEL_FILE.fullmatch(model)
    return f"{found[1]}:{folder / found[2]}" if found else model


def find_missing_models(model: str, cases: Iterable[str]) -> Iterator[str]:
    for case in cases:
        found = MODEL_FILE.fullmatch(model.replace(CASE, case))
        if found and not Path(found[2]).is_file():
            yield f"there is no file {found[2]} (for the case {case!r})"


class PlannedRun(Struct, frozen=True, kw_only=True):
    """One session: a case, a configuration, and the number of the run, from 1."""

    case: EvalCase
    configuration: EvalConfiguration
    number: int

    @property
    def key(self) -> RunKey:
        return self.case.name, self.configuration.name or "", self.number

    @property
    def file_name(self) -> str:
        """The start of the names of its files. Different runs have different names."""
        case, configuration, number = self.key
        digest = hashlib.sha256(f"{case}\0{configuration}".encode()).hexdigest()[:6]
        return f"{slug(case)}.{slug(configuration)}.{digest}.{number}"

    def __str__(self) -> str:
        return "{} [{}] run {}".format(*self.key)


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:SLUG_CHARS] or "x"


def plan_runs(
    suite: EvalSuite, *, runs: int | None = None, cases: Sequence[str] = (), configurations: Sequence[str] = ()
) -> list[PlannedRun]:
    """All first runs, then all second runs, and so on. `cases` and `configurations` select names by pattern.

    Raises UsageError if a pattern matches nothing.
    """
    chosen_cases = select(suite.case, cases, "case")
    chosen_configurations = select(suite.configuration, configurations, "configuration")
    return [
        PlannedRun(case=case, configuration=configuration, number=number)
        for number in range(1, (runs or suite.runs) + 1)
        for case in chosen_cases
        for configuration in chosen_configurations
    ]


def select(rows: Iterable[EvalCase | EvalConfiguration], patterns: Sequence[str], what: str) -> list:  # type: ignore[type-arg]  # of the same type
    named = {row.name or "": row for row in rows}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            raise UsageError(f"no {what} matches {pattern!r}{hint(pattern, named)} (choose from {', '.join(named)})")
    return [
        row for name, row in named.items() if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def digest_suite(suite: EvalSuite) -> str:
    """Changes with everything that a result depends on, but not with the number of runs or the budget."""
    parts = (suite.case, suite.configuration, suite.judge)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]
