"""Built-in prompt templates. A file with the same name replaces them."""

from __future__ import annotations

from parley.settings.base import PromptTemplate

INIT = """\
Look through this project and write a CLAUDE.md in its root for whoever works on it next. Say how it is
built, run, tested and checked, one test alone included; how it is put together, as far as that takes more
than one file to see; and which conventions hold here that one would not guess. Leave out what any look at
the files shows, and invent nothing. If there is a CLAUDE.md already, keep what is right in it and improve
the rest. Take in what README, AGENTS.md and rules of other tools say where it matters.

$ARGUMENTS"""
REVIEW = """\
Review a change: $ARGUMENTS

If no change is named, take what git shows as not committed, or else the last commit. For a pull request, get
its description and its diff with the tools at hand. Read the changed code in its surroundings before you
judge. Report what is wrong first: errors, lost cases, security, what breaks for those who use it; then what
is needlessly hard to read, and which behaviour has no test. Give file and line for each point and say how
sure you are. If nothing is wrong, say so. Change no file."""
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
