"""Edit: replace a text in a file.

The rest of the file stays unchanged, byte for byte: encoding, line endings, final newline and mode. If that is not
possible, the edit is refused.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools import read_tracker
from parley.tools.base import Context, ToolOutput
from parley.tools.files import diff
from parley.tools.files.diff import TextChange
from parley.tools.files.encoding import UNKNOWN, as_text, as_utf8, detect, from_utf8, to_utf8
from parley.tools.paths import read_whole_file, resolve_path
from parley.tools.read_tracker import ReadState
from parley.tools.size_limit import LINE_BYTES, fit_detail
from parley.workspace.base import Scope

if TYPE_CHECKING:
    from parley.tools.files.edit_match import Needle

COUNTED_MATCHES = 1_000
"""Enough to report that there are many; a patch does not show more either."""
SHOWN_CHARS = 500


class EditInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file_path: Annotated[str, Meta(description="Absolute path of the file")]
    old_string: Annotated[str, Meta(description="The text to replace, exactly as it is in the file")]
    new_string: Annotated[str, Meta(description="The text to put in its place")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence instead of a single one")] = False


class Edit:
    name: ClassVar[str] = "Edit"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = EditInput
    description: ClassVar[str] = (
        "Replaces a text in a file. `old_string` must be in the file exactly once, white space included and without "
        "the line numbers that Read shows; include neighbouring lines to make it unique, or set `replace_all` to "
        "change every occurrence. Line endings, encoding and mode of the file are kept. An empty `old_string` "
        "creates a file that does not exist yet."
    )

    def prepare(self, input: Json, context: Context) -> Json:
        """Adds `replace_all`, which clients expect even if the model omits it."""
        return {"replace_all": False, **input}

    async def run(self, call: EditInput, context: Context, reach: Scope) -> ToolOutput:
        path = resolve_path(call.file_path, context)
        return await run_in_thread(lambda: edit(path, call, context, reach))


def edit(path: str, call: EditInput, context: Context, reach: Scope) -> ToolOutput:
    if call.old_string == call.new_string:
        raise ToolError("No changes to make: old_string and new_string are exactly the same.")
    if not call.old_string:
        return fill(path, call, context, reach)
    before = read_whole_file(path, context, reach)
    known = read_tracker.check_read_state(context, before)
    encoding = detect(before.data)
    if encoding is None:
        raise ToolError(f"{path} is a binary file; Edit changes only text files.")
    body = to_utf8(before.data, encoding)
    needle, changes = find(body, call)
    if encoding == UNKNOWN:
        check_encoding(body, call, needle)
    new_body = apply_changes(body, needle, changes, call.replace_all)
    if new_body == body:
        raise ToolError(
            "No changes to make: old_string and new_string differ only in details that Edit takes from the file, "
            "such as line endings."
        )
    after = context.files.write(path, from_utf8(new_body, encoding), reach, replacing=before)
    read_tracker.mark_seen(context, after, whole=known.whole)
    hunks = diff.diff_edits(body, changes)
    return format_result(call, path, body, hunks, known)


def fill(path: str, call: EditInput, context: Context, reach: Scope) -> ToolOutput:
    """Handle an empty old text: the file is new or empty."""
    before = context.files.peek(path, reach)
    if before is not None:
        read_tracker.check_read_state(context, before)
        if before.data:
            raise ToolError("old_string is empty but the file is not. Name the text to replace, or use Write.")
    data = as_utf8(call.new_string)
    after = context.files.write(path, data, reach, replacing=before)
    read_tracker.mark_seen(context, after, whole=True)
    return format_result(call, path, b"", diff.diff_texts(b"", data), ReadState(read=True, whole=True))


def find(body: bytes, call: EditInput) -> tuple[Needle, list[TextChange]]:
    """The old text as the file has it, and the changes. Raises ToolError."""
    from parley.tools.files.edit_match import needles

    for needle in needles(body, call.old_string, call.new_string):
        changes = list(islice(needle.changes(body), COUNTED_MATCHES))
        if not call.replace_all and (len(changes) > 1 or (changes and find_overlap(body, needle, changes[0]))):
            count = f"{COUNTED_MATCHES} or more" if len(changes) == COUNTED_MATCHES else max(2, len(changes))
            raise ToolError(
                f"Found {count} matches of the string to replace, but replace_all is false. Set replace_all to change "
                "them all, or include more of the text around the one you mean.\n"
                f"String: {format_excerpt(call.old_string)}"
            )
        if changes:
            return needle, changes
    raise not_found(body, call)


def find_overlap(body: bytes, needle: Needle, change: TextChange) -> bool:
    """Whether another match starts within the only one that was counted."""
    ending = body.startswith(b"\r\n", change.start)
    return any(needle.changes(body, change.start + (2 if ending else 1)))


def not_found(body: bytes, call: EditInput) -> ToolError:
    from parley.tools.files.did_you_mean import suggest

    words = [f"String to replace not found in file.\nString: {format_excerpt(call.old_string)}"]
    if advice := suggest(body, call.old_string):
        words.append(advice)
    if call.file_path.endswith(".ipynb"):
        words.append("The file is a notebook: NotebookEdit changes its cells.")
    return ToolError("\n".join(words))


def check_encoding(body: bytes, call: EditInput, needle: Needle) -> None:
    """In an unknown encoding only ASCII can be changed safely. Raises ToolError."""
    if not (call.old_string + call.new_string).isascii():
        raise ToolError(
            "The file is neither UTF-8 nor UTF-16, so non-ASCII characters cannot be written to it. "
            "Convert it first (for instance with iconv), or change it with a script that knows its encoding."
        )
    # In some encodings the second byte of a character looks like ASCII.
    if any(change.start > 0 and body[change.start - 1] >= 0x80 for change in needle.changes(body)):
        raise ToolError(
            "The file is neither UTF-8 nor UTF-16, and the match starts directly after a character that cannot be "
            "read. Start old_string elsewhere, for instance at the start of a line."
        )


def apply_changes(body: bytes, needle: Needle, changes: list[TextChange], everywhere: bool) -> bytes:
    if not everywhere or len(changes) < COUNTED_MATCHES:
        return diff.replaced(body, changes)
    if needle.pattern is None:
        return body.replace(as_utf8(needle.old), as_utf8(needle.new))
    return diff.replaced(body, needle.changes(body))


def format_result(call: EditInput, path: str, body: bytes, hunks: list[Json], known: ReadState) -> ToolOutput:
    detail: Json = {
        "filePath": path,
        "oldString": call.old_string,
        "newString": call.new_string,
        # A longer one would not fit on a line.
        "originalFile": as_text(body) if len(body) <= LINE_BYTES else None,
        "structuredPatch": hunks,
        "userModified": False,
        "replaceAll": call.replace_all,
    }
    if known.changed:
        detail["staleRecovered"] = True
    if not known.whole:
        detail["contentNotInModelContext"] = True
    done = "updated. All occurrences were successfully replaced." if call.replace_all else "updated successfully."
    return ToolOutput(
        content=f"The file {path} has been {done}{remark(known)}",
        detail=fit_detail(detail, {"originalFile": None, "structuredPatch": []}),
    )


def remark(known: ReadState) -> str:
    if known.changed:
        return (
            " (note: the file had been modified on disk since you last read it; read it again to see the other changes)"
        )
    return " (you know its content; there is no need to read it again)" if known.whole else ""


def format_excerpt(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}... ({len(text)} characters)"
