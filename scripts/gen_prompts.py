"""Generate docs/prompts.md: every text that the engine itself sends to a model, from the constants that it sends.

python scripts/gen_prompts.py
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

import msgspec
from pages import fill, main, table

from parley.engine import goal
from parley.engine.agents import registry, run
from parley.engine.commands import expansion
from parley.engine.context import compactor, conversation, history, system_prompt, tool_deferral
from parley.engine.session import recover, suggestion
from parley.engine.turn import model_call, turn
from parley.memory import curator, summarizer
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json
from parley.tools.catalog import TOOLS, model_name
from parley.tools.files import read

PAGE = "docs/prompts.md"
HEAD = """\
## System prompt

It comes before the conversation, in two blocks with a [cache marker](limits.md#prompt-caching) each: first what is the
same in all folders, then the rest.
"""


class Part(NamedTuple):
    """A text, when it is sent, and what a user can do about it."""

    text: str
    when: str
    change: str


PARTS = (
    Part(
        system_prompt.DEFAULT,
        "in every session",
        "replace it with `--system-prompt` or an agent (`--agent`), add to it with `--append-system-prompt`",
    ),
)
FACTS = (
    (
        system_prompt.CWD + "...",
        "always",
        "`--exclude-dynamic-system-prompt-sections` moves all of these to the first message",
    ),
    ("Platform: ...", "always", ""),
    (system_prompt.DATE + "...", "always; a new date is added to the end", ""),
    ("Git branch at the start: ...", "in a git repository", ""),
    (system_prompt.MODEL + "...", "always; another model is added to the end", ""),
    ("Answer in this language, ...", "with the setting `language`", "remove the setting"),
    ("End the messages of git commits with this text: ...", "with the setting `attribution`", "remove the setting"),
    ("The session starts in plan mode: ...", "with `--permission-mode plan`", ""),
    ("the text of memory files (CLAUDE.md)", "if there are any", "`claudeMdExcludes`, `--setting-sources`"),
    ("the instructions of MCP servers", "if they have some", "remove the server"),
)
NOTES = (
    Part(
        f"{conversation.PLAN_RULE} {conversation.PLAN_END}",
        "plan mode begins during a session",
        "`planModeInstructions` adds to it",
    ),
    Part(conversation.PLAN_OVER, "plan mode ends without ExitPlanMode", ""),
    Part("The work list: ...", "after a compaction, if work is left", "`--disallowedTools TodoWrite`"),
    Part(
        tool_deferral.INTRODUCTION,
        "there are deferred tools that ToolSearch does not name",
        "`ENABLE_TOOL_SEARCH=false`",
    ),
    Part(turn.INTERRUPTED, "after an interrupt", ""),
    Part(turn.INTERRUPTED_TOOL, "after an interrupt of a tool", ""),
    Part(model_call.CONTINUE, "a connection breaks in the middle of an answer", ""),
    Part(recover.CONTINUE, "a resumed session had not finished an answer", ""),
    Part(
        history.CUT_RESULT, "instead of an old tool result, near the end of the window", "`autoCompactEnabled: false`"
    ),
    Part(read.UNCHANGED, "a file that has not changed is read again", ""),
    Part(expansion.HEADING, "memory files beside a file that was read", "`claudeMdExcludes`"),
    Part(turn.EMPTY, "once, after an answer without content", ""),
    Part(turn.ONLY_REASONING, "once, after an answer with only reasoning", ""),
    Part(turn.UNCLEAR, "once, after a call as text that is not clear", ""),
    Part(turn.ANNOUNCED, "once, if an announced call does not come; not to Claude models", ""),
    Part(goal.STARTED, "a [goal](commands.md#goals) is set", ""),
    Part(goal.CONTINUE, "the goal is not met yet", "`/goal clear`"),
)
CALLS = (
    Part(compactor.SUMMARY_REQUEST, "a [compaction](compaction.md)", "`/compact INSTRUCTIONS` adds to it"),
    Part(compactor.SUMMARY_INTRO, "before the summary, in the conversation", ""),
    Part(goal.QUESTION, "the judge of a goal", ""),
    Part(suggestion.QUESTION, "a suggestion for the next prompt", "off unless the client wants suggestions"),
    Part(run.SUMMARY_QUESTION, "the summary of what a subagent does", "off unless the client wants them"),
    Part(summarizer.INSTRUCTIONS, "summaries of the [long-term memory](memory.md)", "without memory there are none"),
    Part(curator.PROMPT, "keeping the knowledge of the long-term memory", "without memory there is none"),
)


def pages() -> dict[str, str]:
    return {PAGE: fill(PAGE, {"page": "\n".join(page())})}


def page() -> Iterator[str]:
    yield HEAD
    for part in PARTS:
        yield from show(part)
    yield "### Facts\n"
    yield from table(("text", "when", "change it"), FACTS)
    yield "\n## At the end of the conversation\n"
    yield "Notes have the tag `session-note` or are in brackets. Hooks and finished tasks add texts of their own.\n"
    yield from rows(NOTES)
    yield "\n## Tools\n"
    yield "The definitions come before the system prompt. `--tools` and `--disallowedTools` remove tools. Deferred ones"
    yield "are [only named](mcp.md#tool-search) until the model asks for them, unless `ENABLE_TOOL_SEARCH=false`."
    yield "A session has only those that it can use: Skill if there are skills, for example. Agent also lists the"
    yield "subagents of the session, and Skill its skills.\n"
    yield from table(("tool", "tokens", "sent"), list_tools())
    yield "\n## Subagents\n"
    yield "A subagent gets this, and the facts. A definition of your own with the same name replaces it.\n"
    yield from table(
        ("agent", "tokens", "text"),
        ((name, count(kind.prompt), escape(kind.prompt)) for name, kind in registry.BUILT_IN.items()),
    )
    yield "\n## Calls beside the conversation\n"
    yield from rows(CALLS)


def show(part: Part) -> Iterator[str]:
    yield f"{count(part.text)} tokens, {part.when}; {part.change}:\n"
    yield f"```text\n{part.text}\n```\n"


def rows(given: tuple[Part, ...]) -> Iterator[str]:
    return table(
        ("text", "tokens", "when", "change it"),
        ((escape(part.text), count(part.text), part.when, part.change) for part in given),
    )


def list_tools() -> Iterator[tuple[str, str, str]]:
    definitions: dict[str, Json] = msgspec.json.decode((files("parley.tools") / "definitions.json").read_bytes())
    for name, definition in sorted(definitions.items()):
        size = count(msgspec.json.encode(definition).decode())
        yield f"`{model_name(name)}`", size, "deferred" if TOOLS[name].is_deferrable else "at once"


def count(text: str) -> str:
    return str(-(-len(text) // CHARS_PER_TOKEN))


def escape(text: str) -> str:
    text = text.replace("{{", "{").replace("}}", "}")  # as in a format string
    return "<br>".join(text.replace("|", "\\|").replace("<", "&lt;").replace("{", "&#123;").split("\n"))


if __name__ == "__main__":
    raise SystemExit(main(pages()))
