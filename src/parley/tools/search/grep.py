"""Grep: find the files or lines that match a regular expression, or count them."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta, field

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.paths import resolve_path
from parley.tools.search import output
from parley.tools.search.output import OutputPage
from parley.workspace.base import ContentQuery, Scope, SearchArea, SearchMatches
from parley.workspace.sensitive_names import holds_keys

TIMEOUT_SECONDS = 20.0
DEFAULT_LIMIT = 250
NOT_SEARCHED = "Not searched, because of credentials: {names}. A search of one by its path needs approval."

Count = Annotated[int, Meta(ge=0)]


class GrepInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(description="The regular expression, in ripgrep's syntax")]
    path: Annotated[str | None, Meta(description="A file or folder to search; default: the working directory")] = None
    glob: Annotated[str | None, Meta(description="Search only files that match, e.g. *.{ts,tsx} or src/**/*.py")] = None
    type: Annotated[str | None, Meta(description="Search only files of this kind: py, js, rust, go, ...")] = None
    output_mode: Annotated[
        Literal["content", "files_with_matches", "count"],
        Meta(description="Matching lines, paths of files (the default), or the number of matching lines per file"),
    ] = "files_with_matches"
    after: Annotated[Count | None, Meta(description="Lines to show after each match (content)")] = field(
        default=None, name="-A"
    )
    before: Annotated[Count | None, Meta(description="Lines to show before each match (content)")] = field(
        default=None, name="-B"
    )
    around: Annotated[Count | None, Meta(description="Lines to show on both sides of each match (content)")] = field(
        default=None, name="-C"
    )
    context: Annotated[Count | None, Meta(description="The same as -C")] = None
    line_numbers: Annotated[bool, Meta(description="Show line numbers (content); true by default")] = field(
        default=True, name="-n"
    )
    ignore_case: Annotated[bool, Meta(description="Ignore upper and lower case")] = field(default=False, name="-i")
    only_matching: Annotated[bool, Meta(description="Show only the part that matches (content)")] = field(
        default=False, name="-o"
    )
    multiline: Annotated[bool, Meta(description="Let a match span lines; `.` then matches newlines too")] = False
    head_limit: Annotated[Count, Meta(description="Show at most this many lines or files; 0 for no limit")] = (
        DEFAULT_LIMIT
    )
    offset: Annotated[Count, Meta(description="Skip this many lines or files first")] = 0


class Grep:
    name: ClassVar[str] = "Grep"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = GrepInput
    description: ClassVar[str] = (
        "Searches the contents of files with ripgrep. Gives paths (newest first), matching lines with "
        "`output_mode` content, or counts. Literal braces and parentheses need a backslash. Matches stay within a "
        "line unless `multiline` is set. Leaves out binary files, what ignore files such as .gitignore name, and "
        "files with credentials (.ssh, .npmrc, ...). "
        f"Shows {DEFAULT_LIMIT} lines or files unless `head_limit` says otherwise, and never more than "
        f"{output.PAGE_CHARS} characters at once; go on with `offset`."
    )

    async def run(self, call: GrepInput, context: Context, reach: Scope) -> ToolOutput:
        if context.open_search is None:
            raise ToolError("Searching files is not available in this session.")
        page = OutputPage(call.offset, call.head_limit or None)
        # Approval to search credentials is for a path that names them.
        may_search_keys = reach.anywhere or any(map(holds_keys, reach.files))
        found = await context.open_search().matches(
            build_query(call),
            SearchArea(
                path=resolve_path(call.path, context) if call.path else context.state.cwd,
                cwd=context.state.cwd,
                scope=reach,
                hides=context.hides,
                withholds=(lambda path: False) if may_search_keys else holds_keys,
            ),
            timeout_seconds=TIMEOUT_SECONDS,
            enough_lines=page.last_line,
        )
        if found.timed_out and not found.files:
            raise ToolError(timeout_error(found))
        return format_result(call, page, found)


def build_query(call: GrepInput) -> ContentQuery:
    around = call.around if call.around is not None else call.context or 0
    return ContentQuery(
        pattern=call.pattern,
        mode=MODES[call.output_mode],
        globs=tuple(split_globs(call.glob or "")),
        type=call.type,
        before=around if call.before is None else call.before,
        after=around if call.after is None else call.after,
        ignore_case=call.ignore_case,
        only_matching=call.only_matching,
        multiline=call.multiline,
    )


MODES: dict[str, Literal["files", "count", "content"]] = {
    "files_with_matches": "files",
    "count": "count",
    "content": "content",
}


def split_globs(text: str) -> list[str]:
    """`*.ts, *.tsx` is two globs; `*.{ts,tsx}` and `my notes*.md` are one each."""
    parts = [part for part in re.split(r"[,\s]+(?![^{]*\})", text.strip()) if part]
    return parts if all(re.search(r"[*?\[]", part) for part in parts) else [text.strip()]


def format_result(call: GrepInput, page: OutputPage, found: SearchMatches) -> ToolOutput:
    if call.output_mode == "files_with_matches":
        result = output.files([path for path, _ in found.files], page, found.complete)
    elif call.output_mode == "count":
        result = output.counts([(path, int(lines[0])) for path, lines in found.files], page, found.complete)
    else:
        gaps = any((call.before, call.after, call.around, call.context))
        result = output.content(found.files, page, found.complete, numbered=call.line_numbers, gaps=gaps)
    if found.withheld:
        note = f"({NOT_SEARCHED.format(names=', '.join(found.withheld))})"
        result = msgspec.structs.replace(result, content=f"{result.content}\n{note}")
    return output.mark_incomplete(result, timeout_error(found)) if found.timed_out else result


def timeout_error(found: SearchMatches) -> str:
    why = " ripgrep is not installed here; the built-in search is slower." if found.slow else ""
    return f"The search was stopped after {TIMEOUT_SECONDS:g} seconds. Give a narrower path, glob or type.{why}"
