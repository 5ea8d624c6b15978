"""Tools that search files: Glob by a path pattern, Grep by a regular expression.

Results of Grep come in pages: a number of lines or files from an offset, limited to what the model can use. If there
are more, a page ends with how to get them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, Tool, ToolOutput
from parley.tools.files.access import resolve_path
from parley.workspace.base import ContentQuery, FileListing, Scope, SearchArea, SearchMatches
from parley.workspace.sensitive_names import holds_keys

MOST_FILES = 100
PAGE_CHARS = 30_000
NUMBERED = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)
TIMEOUT_SECONDS = 20.0
DEFAULT_LIMIT = 250
NOT_SEARCHED = "Not searched, because of credentials: {names}. A search of one by its path needs approval."
Count = Annotated[int, Meta(ge=0)]
MODES: dict[str, Literal["files", "count", "content"]] = {
    "files_with_matches": "files",
    "count": "count",
    "content": "content",
}


class GlobInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(description="The pattern, e.g. src/**/*.{ts,tsx}")]
    path: Annotated[str | None, Meta(description="The folder to search; default: the working directory")] = None


class GlobTool(Tool):
    name = "Glob"
    reads_only = True
    input = GlobInput
    description = (
        "Finds files by their paths, the most recently changed first. `*` and `?` stay within a name, `**` stands "
        "for any number of folders, `[a-z]` and `{a,b}` for choices; a pattern without a slash matches names in all "
        f"folders. Shows at most {MOST_FILES} files. Leaves out what ignore files such as .gitignore name, unless "
        "the pattern or `path` leads into it by name."
    )

    async def run(self, call: GlobInput, context: Context, reach: Scope) -> ToolOutput:
        started_at = context.clock()
        seconds = glob_timeout_seconds(context.environment)
        given_up = threading.Event()

        def too_late() -> bool:
            return given_up.is_set() or context.clock() - started_at > seconds

        try:
            listing = await run_in_thread(lambda: find_files(call, context, reach, too_late))
        finally:
            given_up.set()
        if listing.stopped and not listing.paths:
            raise ToolError(f"No file was found within {seconds:g} seconds. Give a narrower pattern or path.")
        return format_listing(listing, context.clock() - started_at)


def find_files(call: GlobInput, context: Context, reach: Scope, stop: Callable[[], bool]) -> FileListing:
    """Raises ToolError."""
    environment = context.environment
    if context.open_search is None:
        raise ToolError("Searching files is not available in this session.")
    if call.pattern.startswith("~/"):
        resolve_path(call.pattern, context)  # says what is wrong with it
    area = SearchArea(
        path=resolve_path(call.path, context) if call.path else context.state.cwd,
        cwd=context.state.cwd,
        scope=reach,
        hides=context.hides,
    )
    return context.open_search().files(
        call.pattern,
        area,
        most=MOST_FILES,
        ignored=environment.get("CLAUDE_CODE_GLOB_NO_IGNORE", "").lower() in ("1", "true"),
        hidden=environment.get("CLAUDE_CODE_GLOB_HIDDEN", "").lower() not in ("0", "false"),
        stop=stop,
    )


def glob_timeout_seconds(environment: dict[str, str]) -> float:
    try:
        seconds = float(environment.get("CLAUDE_CODE_GLOB_TIMEOUT_SECONDS", ""))
    except ValueError:
        return TIMEOUT_SECONDS
    return seconds if 0 < seconds < float("inf") else TIMEOUT_SECONDS


def format_listing(listing: FileListing, seconds: float) -> ToolOutput:
    shown, total = len(listing.paths), listing.total
    truncated = shown < total
    detail: Json = {
        "filenames": listing.paths,
        "durationMs": round(seconds * 1000),
        "numFiles": shown,
        "truncated": truncated,
        "totalMatches": total,
        "countIsComplete": listing.complete,
    }
    lines = listing.paths or ["No files found"]
    if truncated:
        lines = [*lines, f"(These are the {shown} newest of {total}. A narrower pattern or path shows others.)"]
    if listing.stopped:
        detail["timedOut"] = True
        lines = [*lines, f"(The search was stopped after {seconds:.0f} seconds; there may be more.)"]
    return ToolOutput(content="\n".join(lines), detail=detail)


class OutputPage(Struct, frozen=True):
    offset: int
    limit: int | None
    """None for as much as fits."""

    @property
    def last_line(self) -> int:
        """The last line a page can reach, as every line has at least its newline."""
        return self.offset + (PAGE_CHARS if self.limit is None else self.limit)

    def cut(self, lines: Iterator[str] | list[str]) -> tuple[list[str], bool]:
        """The lines of the page, and whether there are more."""
        rest = islice(lines, self.offset, None)
        kept: list[str] = []
        room = PAGE_CHARS
        for line in rest:
            room -= len(line) + 1
            if len(kept) == self.limit or (room < 0 and kept):
                return kept, True
            kept.append(line)
        return kept, False

    def continuation(self, shown: int, total: int | None) -> str:
        """How to get the next page."""
        first, last = self.offset + 1, self.offset + shown
        of = "" if total is None else f" of {total}"
        return f"(Showing {first}-{last}{of}. Continue with offset {last}.)"

    def applied(self, shown: int, more: bool) -> Json:
        limited = {"appliedLimit": shown} if more else {}
        return {**limited, "appliedOffset": self.offset} if self.offset else limited


def show_files(paths: list[str], page: OutputPage, complete: bool) -> ToolOutput:
    shown, more = page.cut(paths)
    total = len(paths)
    detail = {"mode": "files_with_matches", "filenames": shown, "numFiles": len(shown), "totalFiles": total}
    text = [f"Found {count_text(total, 'file')}", *shown] if shown else [no_matches("files", page, total, complete)]
    if not complete and shown:
        text[0] = f"Found more than {count_text(total, 'file')}"
    if more:
        text.append(page.continuation(len(shown), total if complete else None))
    return ToolOutput(content="\n".join(text), detail=detail | page.applied(len(shown), more))


def show_counts(found: list[tuple[str, int]], page: OutputPage, complete: bool) -> ToolOutput:
    shown, more = page.cut(f"{path}:{number}" for path, number in found)
    matches, total = sum(number for _, number in found), len(found)
    content = "\n".join(shown)
    detail = {"mode": "count", "numFiles": total, "filenames": [], "content": content, "numMatches": matches}
    if not shown:
        return ToolOutput(content=no_matches("matches", page, total, complete), detail=detail | page.applied(0, False))
    text = f"{content}\n\nFound {count_text(matches, 'total occurrence')} across {count_text(total, 'file')}."
    if not complete:
        text += " There are more."
    if more:
        text += f"\n{page.continuation(len(shown), total if complete else None)}"
    return ToolOutput(content=text, detail=detail | page.applied(len(shown), more))


def show_lines(
    found: list[tuple[str, list[bytes]]], page: OutputPage, complete: bool, *, numbered: bool, gaps: bool
) -> ToolOutput:
    total = sum(len(parts) for _, parts in found) + (max(0, len(found) - 1) if gaps else 0)
    shown, more = page.cut(format_lines(found, numbered=numbered, gaps=gaps))
    more = more or not complete
    text = "\n".join(shown)
    detail: Json = {"mode": "content", "numFiles": 0, "filenames": [], "content": text, "numLines": len(shown)}
    if complete:
        detail["totalLines"] = total
    if not shown:
        return ToolOutput(content=no_matches("matches", page, total, complete), detail=detail | page.applied(0, False))
    if more:
        text += f"\n\n{page.continuation(len(shown), total if complete else None)}"
    return ToolOutput(content=text, detail=detail | page.applied(len(shown), more))


def format_lines(found: list[tuple[str, list[bytes]]], *, numbered: bool, gaps: bool) -> Iterator[str]:
    """`path:12:a match` and `path-13-a line near it`, with `--` between lines that are not adjacent."""
    for at, (path, parts) in enumerate(found):
        if at and gaps:
            yield "--"
        for part in parts:
            split = NUMBERED.fullmatch(part)
            if split is None:
                yield "--" if part == b"--" else f"{path}: {part.decode(errors='replace')}"
                continue
            mark = split[2].decode()
            number = f"{split[1].decode()}{mark}" if numbered else ""
            yield f"{path}{mark}{number}{split[3].decode(errors='replace').rstrip(chr(13))}"


def mark_incomplete(result: ToolOutput, why: str) -> ToolOutput:
    """The result of a stopped search."""
    return msgspec.structs.replace(
        result, content=f"{result.content}\n({why})", detail={**result.detail, "timedOut": True}
    )


def no_matches(what: str, page: OutputPage, total: int, complete: bool) -> str:
    if not total:
        return f"No {what} found"
    if not complete:
        return f"The search was stopped before offset {page.offset}. Give a narrower path, glob, type or pattern."
    return f"Nothing at offset {page.offset}: there are only {total}."


def count_text(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class GrepInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(description="Regular expression, in ripgrep's syntax")]
    path: Annotated[str | None, Meta(description="File or folder; default: the working directory")] = None
    glob: Annotated[str | None, Meta(description="Only files that match: *.{ts,tsx}, src/**/*.py")] = None
    type: Annotated[str | None, Meta(description="Only files of this kind: py, js, rust, ...")] = None
    output_mode: Annotated[
        Literal["content", "files_with_matches", "count"],
        Meta(description="Matching lines, paths (the default), or matching lines per file"),
    ] = "files_with_matches"
    after: Annotated[Count | None, Meta(description="Lines after each match")] = field(default=None, name="-A")
    before: Annotated[Count | None, Meta(description="Lines before each match")] = field(default=None, name="-B")
    around: Annotated[Count | None, Meta(description="Lines on both sides")] = field(default=None, name="-C")
    context: Annotated[Count | None, Meta(description="The same as -C")] = None
    line_numbers: Annotated[bool, Meta(description="Line numbers")] = field(default=True, name="-n")
    ignore_case: Annotated[bool, Meta(description="Ignore case")] = field(default=False, name="-i")
    only_matching: Annotated[bool, Meta(description="Only the part that matches")] = field(default=False, name="-o")
    multiline: Annotated[bool, Meta(description="Let a match span lines")] = False
    head_limit: Annotated[Count, Meta(description="Lines or files to show; 0 for no limit")] = DEFAULT_LIMIT
    offset: Annotated[Count, Meta(description="Lines or files to skip")] = 0


class Grep(Tool):
    name = "Grep"
    reads_only = True
    input = GrepInput
    description = (
        "Searches the contents of files with ripgrep. Gives paths (newest first), matching lines with "
        "`output_mode` content, or counts. Literal braces and parentheses need a backslash. Matches stay within a "
        "line unless `multiline` is set. Leaves out binary files, what ignore files such as .gitignore name, and "
        "files with credentials (.ssh, .npmrc, ...). "
        f"Shows {DEFAULT_LIMIT} lines or files unless `head_limit` says otherwise, and never more than "
        f"{PAGE_CHARS} characters at once; go on with `offset`."
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
        if call.output_mode == "files_with_matches":
            result = show_files([path for path, _ in found.files], page, found.complete)
        elif call.output_mode == "count":
            result = show_counts([(path, int(lines[0])) for path, lines in found.files], page, found.complete)
        else:
            gaps = any((call.before, call.after, call.around, call.context))
            result = show_lines(found.files, page, found.complete, numbered=call.line_numbers, gaps=gaps)
        if found.withheld:
            note = f"({NOT_SEARCHED.format(names=', '.join(found.withheld))})"
            result = msgspec.structs.replace(result, content=f"{result.content}\n{note}")
        return mark_incomplete(result, timeout_error(found)) if found.timed_out else result


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


def split_globs(text: str) -> list[str]:
    """`*.ts, *.tsx` is two globs; `*.{ts,tsx}` and `my notes*.md` are one each."""
    parts = [part for part in re.split(r"[,\s]+(?![^{]*\})", text.strip()) if part]
    return parts if all(re.search(r"[*?\[]", part) for part in parts) else [text.strip()]


def timeout_error(found: SearchMatches) -> str:
    why = " ripgrep is not installed here; the built-in search is slower." if found.slow else ""
    return f"The search was stopped after {TIMEOUT_SECONDS:g} seconds. Give a narrower path, glob or type.{why}"
