"""Edit: a text in a file replaced by another.

The rest of the file stays as it is, byte for byte: its encoding, line endings, final
newline and mode. Where that cannot be had, the edit is refused.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from parley._threads import aside
from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools import read_tracker
from parley.tools.base import Context, Result
from parley.tools.files import diff
from parley.tools.files.diff import Change
from parley.tools.files.encoding import UNKNOWN, as_text, as_utf8, from_utf8, recognise, to_utf8
from parley.tools.paths import located, opened
from parley.tools.read_tracker import Standing
from parley.tools.size_limit import LINE_BYTES, fitting
from parley.workspace.base import Reach

if TYPE_CHECKING:
    from parley.tools.files.edit_match import Needle

COUNTED_MATCHES = 1_000
"""Enough to say that there are many; a patch does not show more of them either."""
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
        "the line numbers that Read shows; take in neighbouring lines to make it unique, or set `replace_all` to "
        "change every occurrence. Line endings, encoding and mode of the file are kept. An empty `old_string` "
        "creates a file that does not exist yet."
    )

    def prepare(self, input: Json, context: Context) -> Json:
        """Hosts expect `replace_all` even where the model left it out."""
        return {"replace_all": False, **input}

    async def run(self, call: EditInput, context: Context, reach: Reach) -> Result:
        path = located(call.file_path, context)
        return await aside(lambda: edit(path, call, context, reach))


def edit(path: str, call: EditInput, context: Context, reach: Reach) -> Result:
    if call.old_string == call.new_string:
        raise ToolError("No changes to make: old_string and new_string are exactly the same.")
    if not call.old_string:
        return fill(path, call, context, reach)
    before = opened(path, context, reach)
    known = read_tracker.standing(context, before)
    encoding = recognise(before.data)
    if encoding is None:
        raise ToolError(f"{path} is a binary file; Edit changes texts only.")
    body = to_utf8(before.data, encoding)
    needle, changes = find(body, call)
    if encoding == UNKNOWN:
        must_keep_bytes(body, call, needle)
    new_body = replaced(body, needle, changes, call.replace_all)
    if new_body == body:
        raise ToolError("No changes to make: the two texts differ only in what Edit keeps, such as line endings.")
    after = context.files.write(path, from_utf8(new_body, encoding), reach, replacing=before)
    read_tracker.remember(context, after, whole=known.whole)
    hunks = diff.edited(body, changes)
    return report(call, path, body, hunks, known)


def fill(path: str, call: EditInput, context: Context, reach: Reach) -> Result:
    """An empty old text: the file is new, or empty."""
    before = context.files.peek(path, reach)
    if before is not None:
        read_tracker.standing(context, before)
        if before.data:
            raise ToolError("old_string is empty but the file is not. Name the text to replace, or use Write.")
    data = as_utf8(call.new_string)
    after = context.files.write(path, data, reach, replacing=before)
    read_tracker.remember(context, after, whole=True)
    return report(call, path, b"", diff.rewritten(b"", data), Standing(read=True, whole=True))


def find(body: bytes, call: EditInput) -> tuple[Needle, list[Change]]:
    """How the old text is spelled in the file, and the changes this makes. Raises ToolError."""
    from parley.tools.files.edit_match import needles

    for needle in needles(body, call.old_string, call.new_string):
        changes = list(islice(needle.changes(body), COUNTED_MATCHES))
        if not call.replace_all and (len(changes) > 1 or (changes and overlapped(body, needle, changes[0]))):
            count = f"{COUNTED_MATCHES} or more" if len(changes) == COUNTED_MATCHES else max(2, len(changes))
            raise ToolError(
                f"Found {count} matches of the string to replace, but replace_all is false. Set replace_all to change "
                f"them all, or take in more of the text around the one you mean.\nString: {shown(call.old_string)}"
            )
        if changes:
            return needle, changes
    raise not_found(body, call)


def overlapped(body: bytes, needle: Needle, change: Change) -> bool:
    """Whether there is another match that begins within the only one that was counted."""
    ending = body.startswith(b"\r\n", change.start)
    return any(needle.changes(body, change.start + (2 if ending else 1)))


def not_found(body: bytes, call: EditInput) -> ToolError:
    from parley.tools.files.did_you_mean import hint

    words = [f"String to replace not found in file.\nString: {shown(call.old_string)}"]
    if advice := hint(body, call.old_string):
        words.append(advice)
    if call.file_path.endswith(".ipynb"):
        words.append("The file is a notebook: NotebookEdit changes its cells.")
    return ToolError("\n".join(words))


def must_keep_bytes(body: bytes, call: EditInput, needle: Needle) -> None:
    """In an encoding we do not know only ASCII can be changed without harm. Raises ToolError."""
    if not (call.old_string + call.new_string).isascii():
        raise ToolError(
            "The file is neither UTF-8 nor UTF-16, so it is not known how to write characters beyond ASCII into it. "
            "Convert it first (for instance with iconv), or change it with a script that knows its encoding."
        )
    # In some encodings the second byte of a character looks like ASCII.
    if any(change.start > 0 and body[change.start - 1] >= 0x80 for change in needle.changes(body)):
        raise ToolError(
            "The file is neither UTF-8 nor UTF-16, and the match begins right behind a character that cannot be "
            "read. Let old_string begin elsewhere, for instance at the start of a line."
        )


def replaced(body: bytes, needle: Needle, changes: list[Change], everywhere: bool) -> bytes:
    if not everywhere or len(changes) < COUNTED_MATCHES:
        return diff.replaced(body, changes)
    if needle.pattern is None:
        return body.replace(as_utf8(needle.old), as_utf8(needle.new))
    return diff.replaced(body, needle.changes(body))


def report(call: EditInput, path: str, body: bytes, hunks: list[Json], known: Standing) -> Result:
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
    return Result(
        content=f"The file {path} has been {done}{remark(known)}",
        detail=fitting(detail, {"originalFile": None, "structuredPatch": []}),
    )


def remark(known: Standing) -> str:
    if known.changed:
        return " (note: the file had been modified on disk since you last read it; read it again for the rest of it)"
    return " (you know its content; there is no need to read it again)" if known.whole else ""


def shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}... ({len(text)} characters)"
