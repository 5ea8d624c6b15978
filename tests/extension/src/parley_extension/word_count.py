"""WordCount: a tool that reads a file. Its path is judged as those of Read are."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from parley.tools.base import Context, Tool, ToolOutput
from parley.tools.catalog import ToolTraits
from parley.workspace.base import Scope


class WordCountInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    source: Annotated[str, Meta(description="Absolute path of the file")]


class WordCount(Tool):
    name = "WordCount"
    description = "Counts the words of a text file."
    reads_only = True
    input = WordCountInput
    traits = ToolTraits(
        effect="reads_files",
        path_fields=("source",),
        subject_field="source",
        title="Count the words of {about}?",
        activity="Counting the words of",
        activity_fields=("source",),
        counter="readCount",
    )

    async def run(self, call: WordCountInput, context: Context, reach: Scope) -> ToolOutput:
        found = context.files.read(call.source, reach)
        return ToolOutput(content=f"{len(found.data.split())} words")
