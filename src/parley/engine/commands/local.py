"""Commands that the engine answers itself: no model is asked, and the turn counts none.

    /cost    ->  init, an assistant line of the model `<synthetic>`, a result with `num_turns` 0

What they say is for the person; a model that is asked later finds it before the next prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from parley.errors import NotPossible
from parley.protocol.base import UNSET, Json, Struct, UnsetType

if TYPE_CHECKING:
    from parley.engine.session.session import Session


class CommandReply(Struct, frozen=True, kw_only=True):
    """What a command says."""

    text: str
    was_run: bool = True
    """Whether it did what it is there for."""
    context_usage: Json | UnsetType = UNSET


class LocalCommand(Struct, frozen=True, kw_only=True):
    run: Callable[[Session, str], CommandReply] | None
    """None for those that are work of their own, and tell their own lines (compact_clear.py)."""
    description: str
    hint: str = ""
    alias_of: str = ""
    """The name under which it is listed, if that is another."""


def cost(session: Session, arguments: str) -> CommandReply:
    from parley.engine.control.handlers.usage import format_usd

    ledger = session.ledger
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
        "Total duration (wall)": f"{session.clock.monotonic() - session.started_at:.0f}s",
        "Usage": ", ".join(f"{count} {name}" for count, name in counts),
    }
    return CommandReply(text="\n".join(f"{name + ':':<23}{value}" for name, value in rows.items()))


def context(session: Session, arguments: str) -> CommandReply:
    from parley.engine.control.handlers import usage as reports

    usage = reports.context_report(session.conversation)
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
        "mcp_tools": usage.mcpTools,
        "memory_files": usage.memoryFiles,
        "agents": usage.agents,
        "skills": [{"name": skill.name, "source": skill.source} for skill in session.commands.skills()],
    }
    return CommandReply(text=text, context_usage=report)


def format_count(count: int) -> str:
    """A number as people read it: 950, 1.7k, 1m."""
    for size, letter in ((1_000_000, "m"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + letter
    return str(count)


def model(session: Session, arguments: str) -> CommandReply:
    from parley.engine.control.handlers.settings import use_model

    if not arguments:
        return CommandReply(
            text=f"The model is `{session.conversation.model.display_name}`. `/model NAME` sets another."
        )
    try:
        choice = use_model(session, arguments)
    except NotPossible as exc:
        return CommandReply(text=str(exc), was_run=False)
    return CommandReply(text=f"Set model to `{choice.display_name}` for this session only")


def help(session: Session, arguments: str) -> CommandReply:
    rows = [
        f"/{row['name']}{' ' + row['argumentHint'] if row['argumentHint'] else ''}: {row['description']}"
        for row in session.commands.list_commands()
    ]
    return CommandReply(text="\n".join(rows))


def unavailable_reply(name: str) -> CommandReply:
    """For commands that people know from a terminal."""
    return CommandReply(text=f"/{name} isn't available in this environment.", was_run=False)


LOCAL: dict[str, LocalCommand] = {
    "clear": LocalCommand(run=None, description="Begin the conversation anew"),
    "reset": LocalCommand(run=None, description="Begin the conversation anew", alias_of="clear"),
    "new": LocalCommand(run=None, description="Begin the conversation anew", alias_of="clear"),
    "compact": LocalCommand(
        run=None, description="Go on from a summary of the conversation", hint="[what the summary should heed]"
    ),
    "context": LocalCommand(run=context, description="Show what fills the context window"),
    "help": LocalCommand(run=help, description="List the commands"),
    "model": LocalCommand(run=model, description="Show the model, or set another", hint="[model]"),
    "usage": LocalCommand(run=cost, description="Show what the session has used and cost"),
    "cost": LocalCommand(run=cost, description="Show what the session has used and cost", alias_of="usage"),
}
TERMINAL = frozenset(
    {
        *("bug", "config", "doctor", "exit", "export", "hooks", "ide", "login", "logout", "memory", "permissions"),
        *("privacy-settings", "quit", "resume", "statusline", "status", "terminal-setup", "theme", "upgrade", "vim"),
    }
)
"""Commands of a terminal: said to be none here, rather than sent to a model."""
