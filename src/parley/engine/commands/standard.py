"""Built-in prompt templates. A file with the same name replaces them."""

from __future__ import annotations

from parley.settings.base import PromptTemplate

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
