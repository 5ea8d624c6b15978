"""Expand a prompt: the template of a command or skill, and the files that are mentioned.

    $ARGUMENTS, $1 … $9        the text after the command
    !`git status`              the output of a command, under the same permission rules as a call of Bash
    @notes.md, @src/, @"with spaces.md", @main.py#L10-20        the file is put before the text

Inserted arguments and output are not expanded again: a `!` in them is literal. A mentioned file is read by a call of
Read, or of Glob for a folder, under the same permission rules as any call. A mention of a path that does not exist is
plain text.

The memory files near what a tool has touched get into the conversation the same way.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Container, Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from parley.engine.commands.local import LOCAL, TERMINAL
from parley.engine.context.conversation import Conversation
from parley.engine.context.system_prompt import is_replaced
from parley.errors import NotPossible, ToolError
from parley.models.catalog import ModelRef
from parley.permissions.base import InvalidUpdate
from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.system import Informational
from parley.settings.base import PromptTemplate
from parley.tools.catalog import find_traits

if TYPE_CHECKING:
    from parley.engine.turn.tool_executor import ToolOutcome


MENTION = re.compile(r'(?:^|(?<=[\s(]))@(?:"([^"\n]+)"|((?:\\ |[^\s`"\\])+))')
LINES = re.compile(r"(.+)#L(\d{1,9})(?:-L?(\d{1,9}))?")
MAX_MENTIONS = 20
"""Limit per prompt; the model reads the rest itself."""
HEADING = "Instructions from files near what you looked at. Follow them where they apply to the task."


class Mention(Struct, frozen=True):
    name: str
    first: int | None = None
    last: int | None = None


def find_mentions(texts: Iterable[str]) -> list[Mention]:
    """The mentions in order, without duplicates."""
    found: dict[Mention, None] = {}
    for text in texts:
        for match in MENTION.finditer(text):
            name = match[1] or match[2].replace("\\ ", " ").rstrip(".,;:!?)")
            lines = LINES.fullmatch(name)
            if lines is not None:
                found[Mention(lines[1], int(lines[2]), int(lines[3] or lines[2]))] = None
            elif name:
                found[Mention(name)] = None
    return list(found)[:MAX_MENTIONS]


async def attach_mentions(conversation: Conversation, texts: Iterable[str], *, required: bool = False) -> list[Json]:
    """The content blocks of all mentions. A file that cannot be read is reported and left out.

    If `required`, a path that does not exist is reported too.
    """
    blocks: list[Json] = []
    for mention in find_mentions(texts):
        path = resolve_mention(conversation, mention.name)
        kind = await conversation.config.workspace.processes.find_kind(path)
        if kind is None:
            if required and looks_like_path(mention.name):
                send_problem(conversation, mention, "there is no such file")
            continue
        blocks += await read_mention(conversation, mention, path, is_folder=kind == "folder")
    return blocks


def resolve_mention(conversation: Conversation, name: str) -> str:
    cwd = conversation.tool_context.state.cwd
    if name.startswith("~/"):
        home = conversation.config.workspace.environment.get("HOME") or os.path.expanduser("~")
        return os.path.normpath(os.path.join(home, name[2:]))
    return os.path.normpath(os.path.join(cwd, name))


def looks_like_path(name: str) -> bool:
    return "/" in name or "." in name


async def read_mention(conversation: Conversation, mention: Mention, path: str, *, is_folder: bool) -> list[Json]:
    workspace = conversation.config.workspace
    tool, what = ("Glob", "Files in") if is_folder else ("Read", "Contents of")
    if tool not in conversation.config.tools:
        return []
    input: Json = {"pattern": "*", "path": path} if is_folder else {"file_path": path}
    if mention.first is not None and mention.last is not None and not is_folder:
        input |= {"offset": mention.first, "limit": max(1, mention.last - mention.first + 1)}
    call = ToolUse({"type": "tool_use", "id": f"toolu_{workspace.new_id()}", "name": tool, "input": input})
    outcome = await conversation.tool_executor.run(call, conversation.mode)
    content = outcome.output.content
    if outcome.executed_input is None or outcome.output.is_error or outcome.stop_reason is not None:
        why = None if outcome.stop_reason is None else f"a hook stopped it: {outcome.stop_reason}"
        send_problem(conversation, mention, why or (content if isinstance(content, str) else "the file cannot be read"))
        return []
    head = f"{what} {path}, which is mentioned below as @{mention.name}:"
    contexts = [{"type": "text", "text": context} for context in outcome.contexts]
    if isinstance(content, str):
        return [{"type": "text", "text": f"{head}\n\n{content}"}, *contexts]
    return [{"type": "text", "text": head}, *content, *contexts]


def send_problem(conversation: Conversation, mention: Mention, reason: str) -> None:
    conversation.send(Informational(content=f"@{mention.name} was not included: {reason}", level="warning"))


def find_instructions(conversation: Conversation, call: ToolUse, outcome: ToolOutcome) -> list[str]:
    """The memory files for a successful call that the conversation does not have yet."""
    if outcome.executed_input is None or outcome.output.is_error:
        return []
    values = (call.input.get(field) for field in find_traits(call.name).path_fields)
    path = next((value for value in values if isinstance(value, str)), None)
    if path is None:
        return []
    if conversation.parent_tool_use_id is None and is_replaced(conversation.instructions):
        return []
    found = conversation.instructions.nested(path)
    new = [text for mark, text in found if not is_sent(conversation, mark)]
    return ["\n\n".join([HEADING, *new])] if new else []


async def report_instructions(conversation: Conversation, call: ToolUse, texts: list[str]) -> None:
    """Fire InstructionsLoaded for the memory files in the texts of `find_instructions`."""
    values = (call.input.get(field) for field in find_traits(call.name).path_fields)
    trigger = next((value for value in values if isinstance(value, str)), "")
    await conversation.hooks.events.nested_instructions(texts, trigger)


def is_sent(conversation: Conversation, mark: str) -> bool:
    return any(mark in text for text in conversation.journal.history.memory_texts)


RUN = re.compile(r"(?:^|(?<=\s))!`([^`\n]+)`", re.MULTILINE)
ARGUMENT = re.compile(r"\$ARGUMENTS(?:\[(\d{1,2})\])?|\$([1-9])(?!\d)")
SKILL_FOLDER = "${CLAUDE_SKILL_DIR}"
SHELL_DISABLED = "[shell command disabled by the setting disableSkillShellExecution]"
RULE = r"\s*([^()\s]+)(?:\((.*)\))?\s*"
INHERIT = "inherit"
"""Keeps the session's model."""


async def expand_template(conversation: Conversation, template: PromptTemplate, arguments: str) -> list[Json]:
    """The content blocks for the conversation. Raises ToolError."""
    words = split_arguments(arguments)
    folder = template.path.rpartition("/")[0]
    source = template.text.replace(SKILL_FOLDER, folder)
    written: list[str] = []
    parts: list[str] = []
    end = 0
    for found in RUN.finditer(source):
        written.append(fill_arguments(source[end : found.start()], arguments, words))
        parts += [written[-1], await run_command(conversation, template, fill_arguments(found[1], arguments, words))]
        end = found.end()
    written.append(fill_arguments(source[end:], arguments, words))
    text = "".join([*parts, written[-1]])
    if arguments and not ARGUMENT.search(source):
        written.append(arguments)
        text = f"{text}\n\nARGUMENTS: {arguments}"
    if template.kind == "skill":
        text = f"Base directory for this skill: {folder}\n\n{text}"
    return [*await attach_mentions(conversation, written, required=True), {"type": "text", "text": text.strip()}]


def split_arguments(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:  # an unclosed quote is taken literally
        return arguments.split()


def fill_arguments(template: str, arguments: str, words: list[str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[2] is None and found[1] is None:
            return arguments
        at = int(found[2]) - 1 if found[2] is not None else int(found[1])
        return words[at] if at < len(words) else ""

    return ARGUMENT.sub(value, template)


async def run_command(conversation: Conversation, template: PromptTemplate, command: str) -> str:
    """The output of a command. Raises ToolError if it is not allowed to run."""
    if not template.runs_commands:
        return SHELL_DISABLED
    if not template.is_trusted:
        raise ToolError(
            f"/{template.name} was not sent: it runs `{command}`, and you have not trusted this command of "
            f"its project (to trust it, run `parley trust`)"
        )
    json = {"type": "tool_use", "id": f"toolu_{conversation.config.workspace.new_id()}", "name": "Bash"}
    call = ToolUse({**json, "input": {"command": command, "description": f"Part of /{template.name}"}})
    outcome = await conversation.tool_executor.run(call, conversation.mode)
    content = outcome.output.content
    text = content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)
    if outcome.executed_input is None:
        raise ToolError(f"/{template.name} was not sent: `{command}` did not run: {text}")
    if outcome.stop_reason is not None:
        raise ToolError(f"/{template.name} was not sent: a hook stopped it after `{command}`: {outcome.stop_reason}")
    return "\n".join([text, *outcome.contexts])


class TurnOverrides:
    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._granted: list[Json] = []
        self._model_before: ModelRef | None = None
        """The session's own model while another is in use."""

    def apply(self, template: PromptTemplate) -> None:
        """Apply the rules and the model of a template. Invalid values are warned about."""
        self._allow(template)
        if template.model not in (None, INHERIT):
            self._change_model(template)

    def _allow(self, template: PromptTemplate) -> None:
        config = self._conversation.config
        policy = config.permissions.policy
        found = [
            match for match in (re.fullmatch(RULE, rule, re.DOTALL) for rule in template.tools) if match is not None
        ]
        if not found:
            return
        # A rule that exists already stays after the turn.
        existing = {row["rule"] for row in policy.list_rules()["rules"] if row["behavior"] == "allow"}
        new = [
            {"toolName": match[1], **({"ruleContent": match[2]} if match[2] else {})}
            for match in found
            if match[0].strip() not in existing
        ]
        for rule in new:
            try:
                policy.update([{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}])
            except InvalidUpdate as exc:
                config.warn(f"{template.path}: allowed-tools: {exc}")
            else:
                self._granted.append(rule)

    def allows(self, tool: str, server: str) -> bool:
        """Whether one of the rules of this turn is about a tool."""
        from parley.permissions.rules import matches_tool

        return any(matches_tool(rule["toolName"], tool, "allow", server) for rule in self._granted)

    def _change_model(self, template: PromptTemplate) -> None:
        before = self._conversation.chosen_model
        try:
            self._conversation.use_model(str(template.model))
        except NotPossible as exc:
            self._conversation.config.warn(f"{template.path}: {exc}")
        else:
            self._model_before = self._model_before or before

    def restore(self) -> None:
        """Undo the overrides at the end of the turn."""
        if self._granted:
            removal = {"type": "removeRules", "rules": self._granted, "behavior": "allow", "destination": "session"}
            self._conversation.config.permissions.policy.update([removal])
            self._granted = []
        if self._model_before is not None:
            self._conversation.model, self._model_before = self._model_before, None


def refuse_unknown(name: str, templates: Container[str], names: Sequence[str]) -> None:
    """Raises ToolError, unless it is a command without a template: a local one, or one of an MCP server.

    If that of a server was not expanded, its server failed, and that ends the turn before its first model call.
    `names` are the commands for users.
    """
    own = (*TERMINAL, *LOCAL)
    if name in names or name in own:
        return
    if name in templates:
        raise ToolError(f"/{name} is a skill for the model only (its file says `user-invocable: false`)")
    known = {other.lower(): other for other in (*own, *names)}
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    meant = f"did you mean /{known[near[0]]}?" if near else "/help lists the commands"
    raise ToolError(f"unknown command /{name} ({meant}); to send it as a prompt, put a word before it")
