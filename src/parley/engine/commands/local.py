"""Commands that the engine answers itself, without a model call.

    /cost    ->  init, an assistant message of the model `<synthetic>`, a result with `num_turns` 0

The answer is for the user; the model sees it before the next prompt.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.engine.context.conversation import Conversation
from parley.engine.context.history import tokens_from_chars
from parley.engine.ledger import format_usd
from parley.errors import NotPossible
from parley.protocol.base import UNSET, Json, Struct, UnsetType
from parley.settings.base import PromptTemplate

TERMINAL = frozenset(
    {
        *("add-dir", "agents", "bashes", "bug", "config", "copy", "diff", "doctor", "exit", "export", "fork", "hooks"),
        *("ide", "keys", "login", "logout", "mcp", "memory", "output-style", "permissions", "plan"),
        *("privacy-settings", "quit", "rename", "resume", "rewind", "statusline", "status", "tasks"),
        *("terminal-setup", "theme", "todos", "undo", "upgrade", "vim"),
    }
)
"""Commands of a terminal: answered as unavailable instead of sent to a model."""
INIT = """\
Read this project and write a CLAUDE.md in its root for the next developer. Describe how to build, run, lint and
test it, and how to run a single test. Describe the architecture as far as it takes more than one file to
understand, and the conventions that are not obvious. Leave out what a look at the files shows. Invent nothing.
If there is a CLAUDE.md already, keep what is correct and improve the rest. Include what matters from README,
AGENTS.md and the rules of other tools.

$ARGUMENTS"""
REVIEW = """\
Review a change: $ARGUMENTS

If no change is named, review the uncommitted changes, or else the last commit. For a pull request, get its
description and its diff with the tools you have. Read the code around a change before you judge it. Report
problems first: errors, missing cases, security, what breaks for users. Then report what is needlessly hard to
read, and which behaviour has no test. Give file and line for each point and say how sure you are. If nothing
is wrong, say so. Change no file."""
STANDARD = (
    PromptTemplate(
        name="init",
        kind="command",
        source="builtin",
        text=INIT,
        description="Write a CLAUDE.md for this project",
        model_invocable=False,
    ),
    PromptTemplate(
        name="review",
        kind="command",
        source="builtin",
        text=REVIEW,
        description="Review the changes that are not committed, or a pull request",
        hint="[pull request]",
        model_invocable=False,
    ),
)


class CommandCall(Struct, frozen=True, kw_only=True):
    """A call of a local command, with what it can report on."""

    arguments: str
    conversation: Conversation
    started_at: float
    """When the session started, on the monotonic clock."""
    commands: list[Json]
    skills: list[PromptTemplate]


class CommandReply(Struct, frozen=True, kw_only=True):
    text: str
    was_run: bool = True
    """The command did its work; False if it is unavailable or failed."""
    context_usage: Json | UnsetType = UNSET


class LocalCommand(Struct, frozen=True, kw_only=True):
    run: Callable[[CommandCall], CommandReply] | None
    """None for commands that send their own messages (compact_clear.py)."""
    description: str
    hint: str = ""
    alias_of: str = ""
    """The name that it is listed under, if different."""
    for_next_prompt: bool = False
    """It changes only what the next prompts of this run get, so that `/help` leaves it out if there are none."""


def cost(call: CommandCall) -> CommandReply:
    ledger, clock = call.conversation.ledger, call.conversation.clock
    used = list(ledger.by_model().values())
    counts = [
        (sum(one.inputTokens for one in used), "input"),
        (sum(one.outputTokens for one in used), "output"),
        (sum(one.cacheReadInputTokens for one in used), "cache read"),
        (sum(one.cacheCreationInputTokens for one in used), "cache write"),
    ]
    rows = {
        "Total cost": format_usd(ledger.cost_usd),
        "Total duration (API)": f"{ledger.api_seconds:.0f}s",
        "Total duration (wall)": f"{clock.monotonic() - call.started_at:.0f}s",
        "Usage": ", ".join(f"{count} {name}" for count, name in counts),
    }
    return CommandReply(text="\n".join(f"{name + ':':<23}{value}" for name, value in rows.items()))


def context(call: CommandCall) -> CommandReply:
    from parley.engine.context.usage_report import report_context

    usage = report_context(call.conversation)
    rows = [
        f"| {row['name']} | {format_count(row['tokens'])} | {100 * row['tokens'] / usage.maxTokens:.1f}% |"
        for row in usage.categories
    ]
    text = "\n".join(
        [
            "## Context Usage",
            "",
            f"**Model:** {usage.model}  ",
            f"**Tokens:** {format_count(usage.totalTokens)} / {format_count(usage.maxTokens)} ({usage.percentage}%)",
            "",
            "### Estimated usage by category",
            "",
            "| Category | Tokens | Percentage |",
            "|----------|--------|------------|",
            *rows,
        ]
    )
    report: Json = {
        "model": usage.model,
        "total_tokens": usage.totalTokens,
        "raw_max_tokens": usage.rawMaxTokens,
        "percentage": usage.percentage,
        "categories": [{key: row[key] for key in ("name", "tokens", "kind")} for row in usage.categories],
        "mcp_tools": [
            {"name": tool["name"], "server_name": tool["serverName"], "tokens": tool["tokens"]}
            for tool in usage.mcpTools
        ],
        "memory_files": usage.memoryFiles,
        "agents": [
            {"agent_type": agent["agentType"], "source": agent["source"], "tokens": agent["tokens"]}
            for agent in usage.agents
        ],
        "skills": [describe_skill(skill) for skill in call.skills],
    }
    if usage.totalTokens > usage.rawMaxTokens:
        kind = "hard_limit" if call.conversation.config.compaction.window is None else "compaction_window"
        report["over_limit"] = {"tokens_over": usage.totalTokens - usage.rawMaxTokens, "kind": kind}
    return CommandReply(text=text, context_usage=report)


def describe_skill(skill: PromptTemplate) -> Json:
    plugin, colon, _ = skill.name.partition(":")
    about: Json = {"name": skill.name, "source": skill.source}
    if skill.source == "plugin" and colon:
        about["plugin_name"] = plugin
    return {**about, "tokens": tokens_from_chars(len(f"- {skill.name}: {skill.description}"))}


def format_count(count: int) -> str:
    """A short form of a number: 950, 1.7k, 1m."""
    for size, letter in ((1_000_000, "m"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + letter
    return str(count)


def model(call: CommandCall) -> CommandReply:
    conversation = call.conversation
    if not call.arguments:
        return CommandReply(text=f"The model is `{conversation.model.display_name}`. `/model NAME` sets another.")
    try:
        choice = conversation.use_model(call.arguments)
    except NotPossible as exc:
        return CommandReply(text=str(exc), was_run=False)
    return CommandReply(text=f"Set model to `{choice.display_name}` for this session only")


def help(call: CommandCall) -> CommandReply:
    has_next = call.conversation.config.client.sends_more_prompts
    rows = [
        f"- /{row['name']}{' ' + row['argumentHint'] if row['argumentHint'] else ''}: {row['description']}"
        for row in call.commands
        if has_next or row["name"] not in FOR_NEXT_PROMPT
    ]
    return CommandReply(text="\n".join(rows))


def goal(call: CommandCall) -> CommandReply:
    """Show or clear the goal. `/goal CONDITION` is a prompt (commands.py)."""
    from parley.engine.goal import SessionGoal

    current = SessionGoal(call.conversation)
    return CommandReply(text=current.clear() if call.arguments else current.describe())


def unavailable_reply(name: str) -> CommandReply:
    """The reply to a command that only a terminal has."""
    return CommandReply(text=f"/{name} isn't available in this environment.", was_run=False)


LOCAL: dict[str, LocalCommand] = {
    "clear": LocalCommand(run=None, description="Start a new conversation", for_next_prompt=True),
    "reset": LocalCommand(run=None, description="Start a new conversation", alias_of="clear"),
    "new": LocalCommand(run=None, description="Start a new conversation", alias_of="clear"),
    "compact": LocalCommand(
        run=None,
        description="Replace the conversation with a summary of it and continue",
        hint="[what the summary should focus on]",
    ),
    "context": LocalCommand(run=context, description="Show what fills the context window"),
    "goal": LocalCommand(
        run=goal, description="Work until a condition is met; show or clear it", hint="[condition | clear]"
    ),
    "help": LocalCommand(run=help, description="List the commands"),
    "model": LocalCommand(
        run=model, description="Show the model, or set another", hint="[model]", for_next_prompt=True
    ),
    "usage": LocalCommand(run=cost, description="Show what the session has used and cost"),
    "cost": LocalCommand(run=cost, description="Show what the session has used and cost", alias_of="usage"),
}


ALIASES = {
    name: [alias for alias, other in LOCAL.items() if other.alias_of == name]
    for name, row in LOCAL.items()
    if not row.alias_of
}
"""The other names of each command."""
CLEARING = frozenset({"clear", "stop", "off", "reset", "none", "cancel"})
"""The arguments of `/goal` that clear the goal."""
FOR_NEXT_PROMPT = {name for name, row in LOCAL.items() if row.for_next_prompt}
