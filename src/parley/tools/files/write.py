"""Write: create or replace a file."""

from __future__ import annotations

import codecs
from typing import Annotated, ClassVar

from msgspec import Meta

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.files import diff
from parley.tools.files.access import (
    LARGEST_BYTES,
    LINE_BYTES,
    UTF8,
    as_text,
    as_utf8,
    check_read_state,
    detect,
    fit_detail,
    from_utf8,
    mark_seen,
    resolve_path,
    to_utf8,
)
from parley.workspace.base import FileSnapshot, Scope

KNOWN = "you know its content; there is no need to read it again"


class WriteInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file_path: Annotated[str, Meta(description="Absolute path of the file; missing folders are created")]
    content: Annotated[str, Meta(description="All of the file's text")]


class Write:
    name: ClassVar[str] = "Write"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = WriteInput
    description: ClassVar[str] = (
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
