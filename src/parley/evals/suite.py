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
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from parley.errors import UsageError
from parley.evals.toml_errors import KeyPath, convert_toml, key_error
from parley.protocol.base import Json, Struct
from parley.sdk.spelling import hint
from parley.sdk.types.shapes import EffortLevel, PermissionMode

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


class EvalConfiguration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a session. `[defaults]` has the same keys."""

    name: str | None = None
    model: str | None = None
    fallback_model: str | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    prompt_template: str = PROMPT
    """`{prompt}` in it is replaced by each prompt of a case."""
    permission_mode: PermissionMode = "default"
    allowed_tools: list[str] = []
    disallowed_tools: list[str] = []
    tools: list[str] | None = None
    max_turns: Count = 50
    max_cost_usd: Amount | None = None
    """The most dollars of one run."""
    effort: EffortLevel | None = None
    max_thinking_tokens: int | None = None
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


class EvalBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of all runs together. No run starts after one is reached."""

    usd: Amount | None = None
    turns: Count | None = None
    """The most model calls."""


class JudgeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that decides by rubrics."""

    model: str
    timeout_seconds: Seconds = 120


ModelOwner = TypeVar("ModelOwner", EvalConfiguration, JudgeSettings)


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
    folder = path.absolute().parent
    expanded = msgspec.structs.replace(
        suite,
        configuration=[resolve_paths(each, folder) for each in expand_configurations(suite, tomllib.loads(text))],
        case=[resolve_workspace(case, folder) for case in suite.case],
        judge=None if suite.judge is None else resolve_model_file(suite.judge, folder),
    )
    for at, problem in find_missing_paths(expanded, suite.configuration):
        raise key_error(text, str(path), at, problem)
    return expanded


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


def expand_configurations(suite: EvalSuite, raw: Json) -> list[EvalConfiguration]:
    """Each configuration with the defaults, once for each model of `models` unless it has its own."""
    merged: list[EvalConfiguration] = []
    for own in raw.get("configuration") or [{}]:
        values = {**raw.get("defaults", {}), **own}
        if "model" in own or not suite.models:
            merged.append(msgspec.convert({"name": "default", **values}, EvalConfiguration))
            continue
        for model in suite.models:
            name = f"{own['name']}/{model}" if "name" in own else model
            merged.append(msgspec.convert({**values, "model": model, "name": name}, EvalConfiguration))
    return merged


def resolve_paths(configuration: EvalConfiguration, folder: Path) -> EvalConfiguration:
    def resolve(value: Any) -> Any:
        return str(folder / value) if isinstance(value, str) else value

    return msgspec.structs.replace(
        resolve_model_file(configuration, folder),
        plugins=[resolve(each) for each in configuration.plugins],
        skills=[resolve(each) for each in configuration.skills],
        settings=resolve(configuration.settings),
        mcp_servers=resolve(configuration.mcp_servers),
    )


def resolve_model_file(owner: ModelOwner, folder: Path) -> ModelOwner:
    """`scripted:FILE` and `replay:FILE` are relative to the file of the suite too."""
    found = MODEL_FILE.fullmatch(owner.model or "")
    return msgspec.structs.replace(owner, model=f"{found[1]}:{folder / found[2]}") if found else owner


def resolve_workspace(case: EvalCase, folder: Path) -> EvalCase:
    return case if case.workspace is None else msgspec.structs.replace(case, workspace=str(folder / case.workspace))


def find_missing_paths(suite: EvalSuite, sources: list[EvalConfiguration]) -> Iterator[tuple[KeyPath, str]]:
    """`sources` are the configurations as the file has them."""
    for index, case in enumerate(suite.case):
        if case.workspace is not None and not Path(case.workspace).is_dir():
            yield ("case", index, "workspace"), f"there is no folder {case.workspace}"
    for configuration in suite.configuration:
        named = [each.name == (configuration.name or "").split("/")[0] for each in sources]
        at: KeyPath = ("configuration", named.index(True)) if any(named) else ("defaults",)
        for key, problem in find_configuration_paths(configuration, [case.name for case in suite.case]):
            yield (*at, key), problem


def find_configuration_paths(configuration: EvalConfiguration, cases: list[str]) -> Iterator[tuple[str, str]]:
    for plugin in configuration.plugins:
        if not Path(plugin).is_dir():
            yield "plugins", f"there is no folder {plugin}"
    for skill in configuration.skills:
        if not Path(skill, "SKILL.md").is_file():
            yield "skills", f"{skill} is not a skill: it has no SKILL.md"
    for key in ("settings", "mcp_servers"):
        value = getattr(configuration, key)
        if isinstance(value, str) and not Path(value).is_file():
            yield key, f"there is no file {value}"
    for case in cases:
        found = MODEL_FILE.fullmatch(configuration.resolve_model(case) or "")
        if found and not Path(found[2]).is_file():
            yield "model", f"there is no file {found[2]} (for the case {case!r})"


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
