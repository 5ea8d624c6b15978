"""Expand the template of a command or skill: insert arguments, command output and files.

    $ARGUMENTS, $1 … $9        the text after the command
    !`git status`              the output of a command, under the same permission rules as a call of Bash
    @notes/plan.md             the file is put before the text (context/mentions.py)

Inserted arguments and output are not expanded again: a `!` in them is literal.
"""

from __future__ import annotations

import re
import shlex

from parley.engine.context.conversation import Conversation
from parley.engine.context.mentions import attach_mentions
from parley.errors import ToolError
from parley.protocol.base import Json
from parley.protocol.blocks import ToolUse
from parley.settings.base import PromptTemplate

RUN = re.compile(r"(?:^|(?<=\s))!`([^`\n]+)`", re.MULTILINE)
ARGUMENT = re.compile(r"\$ARGUMENTS(?:\[(\d{1,2})\])?|\$([1-9])(?!\d)")
SKILL_FOLDER = "${CLAUDE_SKILL_DIR}"
SHELL_DISABLED = "[shell command disabled by the setting disableSkillShellExecution]"


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
