"""Take the conversation, the files or both back to an earlier message.

    text = await rewind(view)       the text of the message that was taken back; None if the conversation stays

The changes of files are shown before anything is done. Files are restored by the engine (`rewind_files`), which leaves
those alone that something else has changed since.
"""

from __future__ import annotations

from parley.protocol.base import Json
from parley.sdk.errors import ControlError
from parley.terminal.base import Row, View
from parley.terminal.rendering.details import paint_diff
from parley.terminal.rendering.text import cell_width, reveal_line, reveal_text, shorten, wrap

MAX_DIFF_LINES = 40
FILES, TALK, BOTH = "f", "c", "b"


async def rewind(view: View) -> str | None:
    """Returns the text of the message, to be edited and sent again."""
    prompts = list(view.prompts)
    if not prompts:
        view.print([view.styles.dim("There is no earlier message.")])
        return None
    rows = [Row(uuid, reveal_line(text)) for uuid, text in reversed(prompts)]
    is_long = any("\n" in text or cell_width(text) > view.width // 2 for _, text in prompts)
    preview = (lambda row: dict(prompts)[row.key]) if is_long else None
    picked = await view.choose("Go back to before which message?", rows, preview=preview)
    if picked is None:
        return None
    report = await report_files(view, picked.key)
    view.print(format_report(report, view))
    what = await view.choose("Restore what?", list_choices(report), search=False)
    if what is None:
        return None
    if what.key in (FILES, BOTH):
        answer = await view.client.rewind_files(picked.key)
        skipped = [reveal_line(str(answer["error"]))] if answer.get("error") else []
        view.print([line for text in ["The files are restored.", *skipped] for line in wrap(text, view.width)])
    if what.key == FILES:
        return None
    await view.switch_session(view.session_id, at=picked.key)
    view.print([shorten(f"The conversation is as it was before: {picked.label}", view.width)])
    return dict(prompts)[picked.key]


async def report_files(view: View, message_id: str) -> Json:
    """What a rewind would change; a refusal is in `error`."""
    try:
        return await view.client.rewind_files(message_id, dry_run=True, diffs=True)
    except ControlError as exc:
        return {"canRewind": False, "error": str(exc)}


def list_choices(report: Json) -> list[Row]:
    talk = Row(TALK, "the conversation", "files stay as they are")
    if not (report.get("canRewind") and report.get("filesChanged")):
        return [talk]
    return [Row(BOTH, "the conversation and the files"), talk, Row(FILES, "the files", "the conversation stays")]


def format_report(report: Json, view: View) -> list[str]:
    """The diff of each file, as the rewind would change it."""
    styles, width = view.styles, view.width
    error = [styles.warning(line) for line in wrap(reveal_text(str(report.get("error") or "")), width) if line]
    diffs = report.get("diffs") or []
    if not diffs:
        changed = [name_file(path, view) for path in report.get("filesChanged") or ()]
        nothing = [] if error else [styles.dim("No files have changed since this message.")]
        return [*error, *(shorten(f"  {path}", width) for path in changed)] or nothing
    lines = [*error]
    for one in diffs:
        reason = f": {reveal_line(str(one.get('reason')))}" if one.get("reason") else ""
        status = str(one.get("status", ""))
        lines.append(styles.bold(shorten(f"{name_file(one.get('path', ''), view)} ({status}{reason})", width)))
        shown = [line for line in str(one.get("diff", "")).splitlines() if not line.startswith(("---", "+++"))]
        lines += paint_diff(shown, styles, width, MAX_DIFF_LINES)
    return lines


def name_file(path: object, view: View) -> str:
    """The path from the working directory."""
    return reveal_line(str(path).removeprefix(f"{view.cwd}/"))
