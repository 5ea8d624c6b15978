"""Edit: replace a text in a file. Write: create or replace a file.

An edit leaves the rest of the file unchanged, byte for byte: encoding, line endings, final newline and mode. If that is
not possible, it is refused.

The model does not see everything: CR LF looks like LF to it, and it tends to type straight quotes where the file has
curly ones. So a line feed matches either line ending, and if nothing matches exactly, any quote matches its kind
(`Needle`). The new text gets the line endings and quotes of the file. If nothing matches at all, the error suggests
what the model may have meant.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Annotated

from msgspec import Meta

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, Tool, ToolOutput
from parley.tools.files import diff
from parley.tools.files.access import (
    LARGEST_BYTES,
    LINE_BYTES,
    UNKNOWN,
    UTF8,
    ReadState,
    as_text,
    as_utf8,
    check_read_state,
    detect,
    fit_detail,
    from_utf8,
    mark_seen,
    read_whole_file,
    resolve_path,
    to_utf8,
)
from parley.tools.files.diff import TextChange, alike
from parley.workspace.base import FileSnapshot, Scope

COUNTED_MATCHES = 1_000
"""Enough to report that there are many; a patch does not show more either."""
SHOWN_CHARS = 500
SINGLE = "'‘’‛"
DOUBLE = '"“”‟'
CURLY = {"'": ("‘", "’"), '"': ("“", "”")}
"""What opens and what closes."""
OPENS_AFTER = " \t\r\n([{<—–-=:/" + "".join(opening for opening, _ in CURLY.values())
QUOTE = re.compile(f"([{SINGLE}{DOUBLE}])")
SEARCHED_BYTES = 2_000_000
SUGGESTED_FROM_LINES = 3_000
COMPARED_WORDS = 200
NUMBERED = re.compile(r"\s*\d+\t")
SUGGESTED_CHARS = 300


class EditInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file_path: Annotated[str, Meta(description="Absolute path of the file")]
    old_string: Annotated[str, Meta(description="The text to replace, exactly as it is in the file")]
    new_string: Annotated[str, Meta(description="The text to put in its place")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence instead of a single one")] = False


class Edit(Tool):
    name = "Edit"
    reads_only = False
    input = EditInput
    description = (
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
        # Handle an empty old text: the file is new or empty.
        before = context.files.peek(path, reach)
        if before is not None:
            check_read_state(context, before)
            if before.data:
                raise ToolError("old_string is empty but the file is not. Name the text to replace, or use Write.")
        data = as_utf8(call.new_string)
        after = context.files.write(path, data, reach, replacing=before)
        mark_seen(context, after, whole=True)
        return format_result(call, path, b"", diff.diff_texts(b"", data), ReadState(read=True, whole=True))
    before = read_whole_file(path, context, reach)
    known = check_read_state(context, before)
    encoding = detect(before.data)
    if encoding is None:
        raise ToolError(f"{path} is a binary file; Edit changes only text files.")
    body = to_utf8(before.data, encoding)
    needle, changes = find(body, call)
    if encoding == UNKNOWN:
        # In an unknown encoding only ASCII can be changed safely.
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
    new_body = apply_changes(body, needle, changes, call.replace_all)
    if new_body == body:
        raise ToolError(
            "No changes to make: old_string and new_string differ only in details that Edit takes from the file, "
            "such as line endings."
        )
    after = context.files.write(path, from_utf8(new_body, encoding), reach, replacing=before)
    mark_seen(context, after, whole=known.whole)
    hunks = diff.diff_edits(body, changes)
    return format_result(call, path, body, hunks, known)


def find(body: bytes, call: EditInput) -> tuple[Needle, list[TextChange]]:
    """The old text as the file has it, and the changes. Raises ToolError."""
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
    words = [f"String to replace not found in file.\nString: {format_excerpt(call.old_string)}"]
    if advice := suggest(body, call.old_string):
        words.append(advice)
    if call.file_path.endswith(".ipynb"):
        words.append("The file is a notebook: NotebookEdit changes its cells.")
    return ToolError("\n".join(words))


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


class Needle(Struct, frozen=True, kw_only=True):
    """One way to look for the old text."""

    old: str
    new: str
    pattern: re.Pattern[bytes] | None = None
    """None to search for the old text, and insert the new one, unchanged."""
    any_quote: bool = False

    def changes(self, body: bytes, start: int = 0) -> Iterator[TextChange]:
        """The changes that replace every match from a position on."""
        if self.pattern is None:
            old, new = as_utf8(self.old), as_utf8(self.new)
            while (start := body.find(old, start)) >= 0:
                yield TextChange(start, start + len(old), new)
                start += len(old)
            return
        for match in self.pattern.finditer(body, start):
            found = match.group().decode(UTF8)
            yield TextChange(*match.span(), as_utf8(self._respelled(found, line_ending(match))))

    def _respelled(self, found: str, newline: str) -> str:
        """The new text in the spelling of the file. Where it repeats the old text, the file's text stays."""
        old, new = self.old, self.new
        units = re.findall(r"\r\n|.", found, re.DOTALL)
        head = alike(old, new)
        tail = alike(old, new, from_end=True, limit=min(len(old), len(new)) - head)
        before, middle, after = "".join(units[:head]), new[head : len(new) - tail], "".join(units[len(units) - tail :])
        if self.any_quote:
            middle = match_quotes(middle, found, before[-1:])
        return before + middle.replace("\n", newline) + after


def needles(body: bytes, old: str, new: str) -> Iterator[Needle]:
    """The ways to look for the old text, the most exact first."""
    hidden = b"\r\n" in body
    if hidden or "\r\n" in old:
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    yield Needle(old=old, new=new, pattern=pattern(old) if hidden else None)
    if QUOTE.search(old):
        yield Needle(old=old, new=new, pattern=pattern(old, any_quote=True), any_quote=True)


def pattern(old: str, *, any_quote: bool = False) -> re.Pattern[bytes]:
    spelled = (quotes(line) if any_quote else re.escape(as_utf8(line)) for line in old.split("\n"))
    return re.compile(rb"\r?\n".join(spelled))


def quotes(line: str) -> bytes:
    """A pattern in which every quote matches all of its kind."""
    parts = ((SINGLE if part in SINGLE else DOUBLE) if QUOTE.fullmatch(part) else part for part in QUOTE.split(line))
    return b"".join(
        b"(?:" + b"|".join(as_utf8(quote) for quote in part) + b")" if part in (SINGLE, DOUBLE) else
        re.escape(as_utf8(part)) for part in parts
    )  # fmt: skip


def line_ending(match: re.Match[bytes]) -> str:
    """The line ending in the match, or after it, or before it."""
    body = match.string
    at = body.find(b"\n", match.start())
    if at < 0:
        at = body.rfind(b"\n", 0, match.start())
    return "\r\n" if at > 0 and body[at - 1] == 0x0D else "\n"


def match_quotes(text: str, found: str, before: str) -> str:
    """The text with the quotes that the file has at this position."""
    for straight, of_its_kind in (("'", SINGLE), ('"', DOUBLE)):
        own = {quote for quote in found if quote in of_its_kind}
        if own == {straight}:
            text = "".join(straight if letter in of_its_kind else letter for letter in text)
        elif own:
            text = curl_quotes(text, straight, before)
    return text


def curl_quotes(text: str, straight: str, before: str) -> str:
    """The text with straight quotes made curly: opening at the start and after white space, else closing."""
    opening, closing = CURLY[straight]
    behind = before + text
    shift = len(before)
    return "".join(
        letter
        if letter != straight
        else (opening if at + shift == 0 or behind[at + shift - 1] in OPENS_AFTER else closing)
        for at, letter in enumerate(text)
    )


def suggest(body: bytes, wanted: str) -> str:
    """A hint for finding the right text; empty if there is none."""
    lines = wanted.split("\n")
    if all(NUMBERED.match(line) for line in lines if line):
        return "It begins with line numbers as Read shows them; they are not part of the file."
    if len(body) > SEARCHED_BYTES:
        return ""
    text = as_text(body).replace("\r\n", "\n")
    return other_space(text, wanted) or other_case(text, wanted) or like_line(text, wanted)


def other_space(text: str, wanted: str) -> str:
    words = wanted.split()
    if not 0 < len(words) <= COMPARED_WORDS:
        return ""
    found = re.search(r"\s+".join(map(re.escape, words)), text)
    return describe_position(text, *found.span(), "A text that differs only in white space") if found else ""


def other_case(text: str, wanted: str) -> str:
    lower = text.lower()
    start = lower.find(wanted.lower())
    # Some letters have a lower case of another length; then places do not compare.
    if start < 0 or len(lower) != len(text):
        return ""
    return describe_position(text, start, start + len(wanted), "A text that differs only in upper and lower case")


def describe_position(text: str, start: int, end: int, what: str) -> str:
    number = text.count("\n", 0, start) + 1
    more = " ..." if end - start > SUGGESTED_CHARS else ""
    return f"{what} is at line {number}:\n{text[start : min(end, start + SUGGESTED_CHARS)]}{more}"


def like_line(text: str, wanted: str) -> str:
    """The line most similar to the first line of the searched text."""

    first = next((line.strip() for line in wanted.split("\n") if line.strip()), "")[:SUGGESTED_CHARS]
    lines = text.split("\n")[:SUGGESTED_FROM_LINES]
    # Only lines of about that length can be alike.
    some = {line.strip(): None for line in lines if 0.6 * len(first) <= len(line.strip()) <= 1.7 * len(first)}
    close = get_close_matches(first, some, n=1, cutoff=0.75)
    if not close:
        return ""
    number = next(number for number, line in enumerate(lines, 1) if line.strip() == close[0])
    return f"The nearest line is {number}:\n{lines[number - 1]}"


KNOWN = "you know its content; there is no need to read it again"


class WriteInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file_path: Annotated[str, Meta(description="Absolute path of the file; missing folders are created")]
    content: Annotated[str, Meta(description="All of the file's text")]


class Write(Tool):
    name = "Write"
    reads_only = False
    input = WriteInput
    description = (
        "Writes a whole file. A file that exists is replaced, so read it before you do; to change only a part of it "
        "use Edit."
    )

    async def run(self, call: WriteInput, context: Context, reach: Scope) -> ToolOutput:
        path = resolve_path(call.file_path, context)
        return await run_in_thread(lambda: write(path, call.content, context, reach))


def write(path: str, content: str, context: Context, reach: Scope) -> ToolOutput:
    before = context.files.peek(path, reach, LARGEST_BYTES)
    changed = False
    if before is not None:
        changed = check_read_state(context, before).changed
        if changed and context.session.must_read_first():
            raise ToolError(f"{path} has been modified since it was read. Read it again before you replace it.")
    body = as_utf8(content)
    after = context.files.write(path, encode_body(body, before), reach, replacing=before)
    mark_seen(context, after, whole=True)
    detail: Json = {
        "type": "create" if before is None else "update",
        "filePath": path,
        "content": content,
        "structuredPatch": [],
        "originalFile": None,
        "userModified": False,
    }
    if before is None:
        return ToolOutput(content=f"File created successfully at: {path} ({KNOWN})", detail=detail)
    encoding = detect(before.data)
    if encoding is not None and before.size == len(before.data):
        old = to_utf8(before.data, encoding, errors="replace")
        detail["structuredPatch"] = diff.diff_texts(old, body)
        # A longer one would not fit on a line.
        detail["originalFile"] = as_text(old) if len(old) <= LINE_BYTES else None
    note = "note: the file had been modified on disk since you last read it; that is overwritten" if changed else KNOWN
    return ToolOutput(
        content=f"The file {path} has been updated successfully. ({note})",
        detail=fit_detail(detail, {"originalFile": None, "structuredPatch": []}),
    )


def encode_body(body: bytes, before: FileSnapshot | None) -> bytes:
    """The bytes to write. A byte order mark and its encoding are kept, as Read does not show them."""
    if before is None:
        return body
    encoding = detect(before.data) or UTF8
    if before.data.startswith(codecs.BOM_UTF8) and not body.startswith(codecs.BOM_UTF8):
        return codecs.BOM_UTF8 + body
    return from_utf8(body, encoding)
