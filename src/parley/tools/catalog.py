"""What is true of each tool, known without importing it, and which tools a session offers.

    find_traits("Read").effect             # "reads_files"
    find_traits("mcp__server__tool")       # UNKNOWN: such a tool is asked about

`TOOLS` has one row per built-in tool. A tool from another package declares the same on its class, as `traits`.
Permission rules, approval requests, recovery and the CLI ask here; they never compare a tool's name.

The subagent tool is listed as Task and the model knows it as Agent. Both names are accepted everywhere, and so are
the older names of other tools.

    select_tools(BUILT_IN, ToolSelection(asked=("Read", "Agent")))      # what `--tools Read,Agent` leaves of them

A tool is offered if it exists, if what it needs exists, if it is requested (without a request: if it belongs to
the default list), and unless it is denied by its bare name.

See also: `base.py` for the interface of a tool.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Literal

from msgspec.structs import replace

import parley.entry_points as entry_points
from parley.protocol.base import Json, Struct

GROUP = "parley.tools"
SHELL = "Bash"
"""The tool whose rules hold for all commands."""
MAX_ACTIVITY_CHARS = 200
Effect = Literal[
    "unknown",
    "session",
    "reads_files",
    "searches_files",
    "writes_files",
    "runs_commands",
    "fetches_urls",
    "searches_web",
    "delegates",
    "loads_skills",
]
READING: frozenset[Effect] = frozenset({"reads_files", "searches_files"})
FILE_EFFECTS: frozenset[Effect] = READING | {"writes_files"}
JUDGED_BY_CALL: frozenset[Effect] = frozenset({"runs_commands", "fetches_urls"})
"""Effects that depend on each call, not on what the tool is."""
RESERVED_EFFECTS: frozenset[Effect] = frozenset({"delegates", "loads_skills"})
REQUIRED_SUBJECTS: dict[Effect, str] = {"runs_commands": "command", "fetches_urls": "url"}
"""The input fields that calls with these effects are judged by."""
Counter = Literal["readCount", "searchCount", "bashCount", "editFileCount", "otherToolCount"]
RuleContents = Literal["parameter", "words", "host", "read_paths", "write_paths", "own_paths"]


Need = Literal["", "person", "memory", "brief", "repository", "input"]
"""A host that answers questions, a memory, `--brief`, a git repository, or a client that keeps stdin open."""


class ToolTraits(Struct, frozen=True, kw_only=True):
    """What a tool does, and how it is judged, shown and selected."""

    effect: Effect = "unknown"
    """Decides how a call is judged. A tool whose effect is unknown is asked about."""
    path_fields: tuple[str, ...] = ()
    """The input fields that name the files or folders it touches. A value is a path or a list of paths."""
    pattern_field: str = ""
    """The input field with a glob pattern, which may lead out of the folder it starts in."""
    subject_field: str = ""
    """The input field that a call is about: the command, path, address or agent."""
    default_subject: str = ""
    """What the call is about if the field is missing."""
    rule_contents: RuleContents = "parameter"
    """What stands in the parentheses of a rule: `parameter:value`, words, `domain:HOST`, or path patterns.

    `read_paths` and `write_paths` bind every tool that reads or writes files, `own_paths` this tool alone.
    """
    title: str = ""
    """The question an approval request asks, with `{about}` for what the call is about."""
    activity: str = "Using"
    """The verb for what a subagent is doing, as in "Reading notes.txt"."""
    activity_fields: tuple[str, ...] = ()
    """The input fields that complete the verb; the first that holds text is used, else the tool's name."""
    counter: Counter = "otherToolCount"
    """The field of a subagent's statistics in which its calls are counted."""
    aliases: tuple[str, ...] = ()
    """Further names that rules, options and models may use for it."""
    model_name: str = ""
    """What the model calls it, if it is listed under another name."""
    needs: Need = ""
    """What must be there for it to be offered."""
    only_main_agent: bool = False
    """It changes the session itself, so that subagents do not have it."""
    only_on_request: bool = False
    """It is offered only if `--tools` names it."""
    work_list: Literal["", "tasks", "todos"] = ""
    """Which of the two kinds of work lists it belongs to. A session offers one of them."""
    uses_network: bool = False
    """It is not offered with `--offline`."""
    plan_field: str = ""
    """The input field with the plan that it presents to the user."""
    opens_folders: bool = False
    """After a call the model gets the memory files of the folder that the path is in."""
    is_deferrable: bool = False
    """With tool search, its definition is left out until the model asks for it. For tools that few tasks need."""
    for_read_only_agents: bool = False
    """The built-in agents that change nothing may use it."""
    cls: str = ""
    """Where its class is, for built-in tools. Empty for a tool that other engines have and rules may name."""
    is_external: bool = False
    """Whether it comes from another package. Set by the loader."""


UNKNOWN = ToolTraits()

SESSION = ToolTraits(effect="session")
RARE = ToolTraits(effect="session", is_deferrable=True)
"""A tool of the session that few tasks need."""
SCHEDULING = replace(RARE, needs="input", only_main_agent=True, activity="Scheduling")
RESOURCES = replace(RARE, only_on_request=True)
TASKS = replace(RARE, work_list="tasks")
COMMANDS = ToolTraits(
    effect="runs_commands",
    subject_field="command",
    activity_fields=("description", "command"),
    counter="bashCount",
)
FILES = ToolTraits(
    effect="writes_files",
    path_fields=("file_path",),
    subject_field="file_path",
    rule_contents="own_paths",
    title="Change {about}?",
    activity="Editing",
    activity_fields=("file_path",),
    counter="editFileCount",
    opens_folders=True,
)
SEARCHING = ToolTraits(
    effect="searches_files",
    path_fields=("path",),
    subject_field="pattern",
    rule_contents="own_paths",
    activity_fields=("pattern",),
    counter="searchCount",
    for_read_only_agents=True,
)
WORKTREE = ToolTraits(needs="repository", only_main_agent=True, is_deferrable=True)
"""The effect is not declared: such a tool changes the repository, so it asks."""
WEB = ToolTraits(uses_network=True, is_deferrable=True, for_read_only_agents=True)

TOOLS: dict[str, ToolTraits] = {
    "Task": ToolTraits(
        cls="parley.tools.agent:Agent",
        effect="delegates",
        subject_field="subagent_type",
        default_subject="general-purpose",
        rule_contents="words",
        activity="Delegating",
        activity_fields=("description",),
        aliases=("Agent",),
        model_name="Agent",
    ),
    "Bash": replace(
        COMMANDS,
        cls="parley.tools.bash:Bash",
        rule_contents="words",
        title="Run this command?",
        activity="Running",
        for_read_only_agents=True,
    ),
    "CronCreate": replace(
        SCHEDULING, cls="parley.tools.schedule:CronCreate", subject_field="prompt", activity_fields=("cron",)
    ),
    "CronDelete": replace(SCHEDULING, cls="parley.tools.schedule:CronDelete", activity="Using"),
    "CronList": replace(SCHEDULING, cls="parley.tools.schedule:CronList", activity="Using"),
    "Edit": replace(FILES, cls="parley.tools.files.edit:Edit", rule_contents="write_paths"),
    "EnterWorktree": replace(
        WORKTREE,
        cls="parley.tools.worktree:EnterWorktree",
        subject_field="name",
        title="Work in a git worktree?",
        activity="Entering the worktree",
        activity_fields=("name", "path"),
    ),
    "ExitWorktree": replace(
        WORKTREE,
        cls="parley.tools.worktree:ExitWorktree",
        subject_field="action",
        title="Leave the worktree?",
        activity="Leaving the worktree",
    ),
    "Glob": replace(
        SEARCHING,
        cls="parley.tools.search:GlobTool",
        pattern_field="pattern",
        title="Look for files in {about}?",
        activity="Finding",
        is_deferrable=True,
    ),
    "Grep": replace(SEARCHING, cls="parley.tools.search:Grep", title="Search {about}?", activity="Searching for"),
    "ListAgents": replace(RARE, cls="parley.tools.delegation:ListAgents"),
    "Monitor": replace(
        COMMANDS,
        cls="parley.tools.bash:Monitor",
        title="Monitor this command?",
        activity="Monitoring",
        needs="input",
        is_deferrable=True,
    ),
    "NotebookEdit": replace(
        FILES,
        cls="parley.tools.files.notebook:NotebookEdit",
        path_fields=("notebook_path",),
        subject_field="notebook_path",
        activity_fields=("notebook_path",),
        is_deferrable=True,
    ),
    "AskUserQuestion": replace(
        RARE, cls="parley.tools.planning:AskUserQuestion", title="The model has a question", needs="person"
    ),
    "EnterPlanMode": replace(RARE, cls="parley.tools.planning:EnterPlanMode", needs="person"),
    "ExitPlanMode": replace(
        RARE, cls="parley.tools.planning:ExitPlanMode", plan_field="plan", title="Carry out this plan?", needs="person"
    ),
    "ListMcpResourcesTool": replace(
        RESOURCES, cls="parley.tools.mcp_servers:ListMcpResources", aliases=("ListMcpResources",)
    ),
    "ReadMcpResourceTool": replace(
        RESOURCES, cls="parley.tools.mcp_servers:ReadMcpResource", aliases=("ReadMcpResource",)
    ),
    "ReadMcpResourceDirTool": replace(
        RESOURCES, cls="parley.tools.mcp_servers:ReadMcpResourceDir", aliases=("ReadMcpResourceDir",)
    ),
    "ScheduleWakeup": replace(
        SCHEDULING, cls="parley.tools.schedule:ScheduleWakeup", subject_field="prompt", activity_fields=("reason",)
    ),
    "SendMessage": replace(RARE, cls="parley.tools.delegation:SendMessage"),
    "SendUserMessage": replace(
        SESSION, cls="parley.tools.delegation:SendUserMessage", needs="brief", only_main_agent=True
    ),
    "SetGoal": replace(
        SESSION,
        cls="parley.tools.planning:SetGoal",
        subject_field="condition",
        title="Work towards this goal?",
        activity="Setting the goal",
        activity_fields=("condition",),
        aliases=("ProposeGoal",),
        only_main_agent=True,
        only_on_request=True,
    ),
    "Skill": ToolTraits(
        cls="parley.tools.delegation:Skill", effect="loads_skills", subject_field="skill", rule_contents="words"
    ),
    "TaskCreate": replace(TASKS, cls="parley.tools.work_list:TaskCreate"),
    "TaskGet": replace(TASKS, cls="parley.tools.work_list:TaskGet"),
    "TaskList": replace(TASKS, cls="parley.tools.work_list:TaskList"),
    "TaskOutput": replace(RARE, cls="parley.tools.background:TaskOutput", aliases=("BashOutput",)),
    "TaskStop": replace(RARE, cls="parley.tools.background:TaskStop", aliases=("KillShell",)),
    "TaskUpdate": replace(TASKS, cls="parley.tools.work_list:TaskUpdate"),
    "TodoWrite": replace(RARE, cls="parley.tools.work_list:TodoWrite", work_list="todos", for_read_only_agents=True),
    "ToolSearch": replace(
        SESSION,
        cls="parley.tools.tool_search:ToolSearch",
        subject_field="query",
        activity="Searching for tools:",
        activity_fields=("query",),
        only_on_request=True,
    ),
    "WaitForMcpServers": replace(SESSION, cls="parley.tools.mcp_servers:WaitForMcpServers", only_on_request=True),
    "WebFetch": replace(
        WEB,
        cls="parley.tools.web:WebFetch",
        effect="fetches_urls",
        subject_field="url",
        rule_contents="host",
        title="Fetch {about}?",
        activity="Fetching",
        activity_fields=("url",),
    ),
    "WebSearch": replace(
        WEB,
        cls="parley.tools.web:WebSearch",
        effect="searches_web",
        subject_field="query",
        title="Search the web for {about}?",
        activity="Searching the web for",
        activity_fields=("query",),
    ),
    "Read": replace(
        FILES,
        cls="parley.tools.files.read:Read",
        effect="reads_files",
        rule_contents="read_paths",
        title="Read {about}?",
        activity="Reading",
        counter="readCount",
        for_read_only_agents=True,
    ),
    "Write": replace(FILES, cls="parley.tools.files.edit:Write", title="Write {about}?", activity="Writing"),
    "memory_read": replace(SESSION, cls="parley.memory.tools:MemoryRead", aliases=("ltm_read",), needs="memory"),
    "memory_search": replace(SESSION, cls="parley.memory.tools:MemorySearch", aliases=("ltm_search",), needs="memory"),
    # Tools that Claude Code has or had. They do not run here, but settings may hold rules for them.
    "LS": ToolTraits(effect="searches_files", path_fields=("path",)),
    "MultiEdit": ToolTraits(effect="writes_files", path_fields=("file_path",), rule_contents="own_paths"),
    "NotebookRead": ToolTraits(effect="reads_files", path_fields=("notebook_path",), rule_contents="own_paths"),
}
BUILT_IN = tuple(name for name, row in TOOLS.items() if row.cls)
"""The tools that run here, in the order of the table."""
LISTED_NAMES = {alias: name for name, row in TOOLS.items() for alias in row.aliases}
"""The names that tools are listed under, by their other names."""


def find_traits(name: str) -> ToolTraits:
    """What is known of a tool, under any of its names."""
    row = TOOLS.get(LISTED_NAMES.get(name, name))
    if row is None and not name.startswith("mcp__"):
        row = external_traits().get(name)
    return UNKNOWN if row is None else row


def describe_activity(name: str, given: Json) -> str:
    """A short description of a tool call: what it does, and the input that it is about."""
    traits = find_traits(name)
    values = (given.get(field) for field in traits.activity_fields)
    subject = next((value for value in values if isinstance(value, str)), name)
    return f"{traits.activity} {subject}"[:MAX_ACTIVITY_CHARS]


def canonical_name(name: str) -> str:
    """The name a tool is listed under."""
    return LISTED_NAMES.get(name, name)


def model_name(name: str) -> str:
    """What the model calls a tool that is listed under this name."""
    return find_traits(name).model_name or name


def names_of(name: str) -> tuple[str, ...]:
    """Every name of a tool, the one it is listed under first."""
    listed = canonical_name(name)
    return (listed, *find_traits(listed).aliases)


def built_in_with(**wanted: Any) -> tuple[str, ...]:
    """The built-in tools whose traits have these values."""
    return tuple(name for name in BUILT_IN if all(getattr(TOOLS[name], key) == wanted[key] for key in wanted))


class ExternalTools(Struct, frozen=True):
    """The tools of other packages, and what is wrong with those that are left out."""

    classes: dict[str, Any]
    problems: tuple[str, ...]


@functools.cache
def load_external() -> ExternalTools:
    """Import the tools of other packages, once per process. A class may be a Tool, or only look like one."""
    from parley.tools.base import Tool  # most sessions have none, and need only the table

    classes, problems = {}, []
    for name in entry_points.discover(GROUP):
        try:
            cls = entry_points.load(GROUP, name)
            found = find_problem(name, cls) if isinstance(cls, type) else "it is not a class"
            if found:
                raise entry_points.ExtensionError(f"{entry_points.describe(GROUP, name)} is ignored: {found}")
            classes[name] = cls if issubclass(cls, Tool) else type(name, (cls, Tool), {})
        except entry_points.ExtensionError as exc:
            problems.append(str(exc))
        except Exception as exc:  # the class of a stranger may not have another base
            problems.append(f"{entry_points.describe(GROUP, name)} cannot be used: {type(exc).__name__}: {exc}")
    return ExternalTools(classes, tuple(problems))


@functools.cache
def external_traits() -> dict[str, ToolTraits]:
    return {name: read_traits(cls) for name, cls in load_external().classes.items()}


def read_traits(cls: Any) -> ToolTraits:
    """What a class of another package declares; nothing else is taken for granted."""
    declared: ToolTraits = getattr(cls, "traits", UNKNOWN)
    contents = declared.rule_contents
    if contents == "parameter" and declared.path_fields:
        contents = "own_paths"
    return replace(declared, is_external=True, rule_contents=contents, aliases=(), model_name="", cls="")


def find_problem(name: str, cls: Any) -> str:
    if name in TOOLS or name in LISTED_NAMES:
        return "a built-in tool has this name"
    missing = [part for part in ("name", "description", "reads_only", "input", "run") if not hasattr(cls, part)]
    if missing:
        return f"the class has no {', '.join(missing)}"
    if cls.name != name:
        return f"the class is named {cls.name!r}; the entry point must have the same name"
    traits = getattr(cls, "traits", UNKNOWN)
    if not isinstance(traits, ToolTraits):
        return "traits is not a parley.tools.catalog.ToolTraits"
    if traits.effect in FILE_EFFECTS and not traits.path_fields:
        return f"the effect {traits.effect!r} needs path_fields"
    if traits.path_fields and traits.effect not in FILE_EFFECTS | {"unknown"}:
        return f"path_fields is not used with the effect {traits.effect!r}"
    if traits.rule_contents in ("read_paths", "write_paths"):
        return f"rule_contents={traits.rule_contents!r} is reserved; use 'own_paths'"
    if traits.effect in RESERVED_EFFECTS:
        return f"the effect {traits.effect!r} is reserved for built-in tools"
    subject = REQUIRED_SUBJECTS.get(traits.effect, traits.subject_field)
    if traits.subject_field != subject:
        return f"the effect {traits.effect!r} needs subject_field={subject!r}"
    return ""


class ToolSelection(Struct, frozen=True, kw_only=True):
    """What the list depends on."""

    asked: tuple[str, ...] | None = None
    """`--tools`: None if it is not given; `default` stands for the default list."""
    denied: tuple[str, ...] = ()
    """`--disallowedTools`; rules with contents have no effect here."""
    has_person: bool = False
    has_memory: bool = False
    is_brief: bool = False
    """`--brief`: the user reads only what SendUserMessage shows."""
    in_repository: bool = False
    """The working directory is in a git repository."""
    has_input: bool = False
    """The client can send more prompts, so that the session waits between turns."""
    tasks: bool | None = None
    """CLAUDE_CODE_ENABLE_TASKS: the Task family, or TodoWrite; None if it is not set."""


def select_tools(known: Iterable[str], selection: ToolSelection) -> list[str]:
    """The names, in the order the model sees them."""
    asked = None if selection.asked is None else frozenset(map(canonical_name, selection.asked))
    denied = frozenset(map(canonical_name, selection.denied))
    names = frozenset(known) if asked is None or "default" in asked else asked & frozenset(known)
    offered = (name for name in names - denied if is_available(name, asked, selection))
    if SHELL in denied:  # a rule against all commands holds for every tool that runs them
        offered = (name for name in offered if find_traits(name).effect != "runs_commands")
    return sorted(offered, key=model_name)


def is_available(name: str, asked: frozenset[str] | None, selection: ToolSelection) -> bool:
    """Whether what a tool needs exists, and it is on the list by default or requested by name."""
    traits = find_traits(name)
    is_asked = name in (asked or ())
    available = {
        "": True,
        "person": selection.has_person,
        "memory": selection.has_memory,
        "brief": selection.is_brief or is_asked,
        "repository": selection.in_repository or is_asked,
        "input": selection.has_input or is_asked,
    }
    if not available[traits.needs] or (traits.only_on_request and not is_asked):
        return False
    return not traits.work_list or traits.work_list == choose_work_list(asked, selection.tasks)


def choose_work_list(asked: frozenset[str] | None, tasks: bool | None) -> str:
    """One work list is enough: todos, unless the Task family is enabled or requested by name."""
    if tasks is None:
        tasks = any(find_traits(name).work_list == "tasks" for name in asked or ())
    return "tasks" if tasks else "todos"
