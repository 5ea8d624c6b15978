"""`/resume`, `/fork`, `/rename`, `/export`, `/rewind`, `/undo`: which session this is, and how far it goes.

A rewind takes the conversation, the files or both back to an earlier message. The changes of files are shown before
anything is done. Files are restored by the engine (`rewind_files`), which leaves those alone that something else has
changed since.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from parley.protocol.base import Json
from parley.protocol.messages.panel_requests import RenameSession
from parley.sdk.errors import ControlError
from parley.sdk.sessions import SDKSessionInfo, fork_session, get_session_messages, list_sessions
from parley.stores.search_text import block_texts
from parley.terminal.base import View
from parley.terminal.commands.overview import is_local, local_folder
from parley.terminal.interfaces.dialogs import Row
from parley.terminal.rendering.details import paint_diff
from parley.terminal.rendering.text import cell_width, format_age, reveal_line, reveal_text, shorten, wrap
from parley.workspace import private_files

MAX_SESSIONS = 500
MAX_PREVIEW_BYTES = 2_000_000
"""The messages of a larger session are not read for its preview."""
PREVIEW_MESSAGES = 4
ELSEWHERE = (
    "/resume continues sessions of this machine, but this session is on a server. "
    "`parley sessions list --server URL` lists those there, and `parley attach` joins one."
)
MAX_DIFF_LINES = 40
FILES, CONVERSATION, BOTH = "f", "c", "b"


async def resume(view: View, argument: str) -> None:
    """Picks a session by its title, directory or prompt. Sessions of this directory come first."""
    if not is_local(view):
        raise ValueError(ELSEWHERE)
    store, environment = read_store(view), {**os.environ, **view.options.env}
    found = await asyncio.to_thread(list_sessions, None, MAX_SESSIONS, store=store, env=environment)
    # A session without a prompt has nothing to continue.
    others = [info for info in found if info.session_id != view.session_id and info.summary]
    words = argument.lower().split()
    rows = [row for row in make_rows(others, view.cwd, time.time()) if fits(row, words)]
    if not rows:
        view.say("There are no other sessions." if not words else f"No session fits {argument!r}.")
        return
    known = {info.session_id: info for info in others}
    texts: dict[str, str] = {}

    def preview(row: Row) -> str:
        if row.key not in texts:
            texts[row.key] = describe_session(known[row.key], store, environment)
        return texts[row.key]

    picked = await view.choose("Continue a session", rows, preview=preview)
    if picked is None:
        return
    await view.switch_session(picked.key, cwd=find_folder(known[picked.key]))


def find_folder(info: SDKSessionInfo) -> str | None:
    """The directory that a session continues in. Raises ValueError."""
    if info.cwd and not os.path.isdir(info.cwd):
        raise ValueError(f"the directory of this session is gone: {info.cwd}")
    return info.cwd


def read_store(view: View) -> str | None:
    """The store of the session, as `list_sessions` takes it."""
    options = view.options
    return options.store or (f"sqlite:{options.database}" if options.database else None)


def make_rows(found: list[SDKSessionInfo], cwd: str, now: float) -> list[Row]:
    """Those of the directory first; in each group the latest first."""
    ordered = sorted(found, key=lambda info: (info.cwd != cwd, -info.last_modified))
    return [
        Row(
            info.session_id,
            reveal_line(info.summary) or info.session_id,
            " · ".join(
                part
                for part in (
                    format_age(now - info.last_modified / 1000),
                    info.tag,
                    info.git_branch,
                    None if info.cwd == cwd else info.cwd,
                )
                if part
            ),
        )
        for info in ordered
    ]


def fits(row: Row, words: list[str]) -> bool:
    return all(word in f"{row.label} {row.detail} {row.key}".lower() for word in words)


def describe_session(info: SDKSessionInfo, store: str | None, environment: dict[str, str]) -> str:
    """The first prompt and the last messages."""
    lines = [f"❯ {info.first_prompt or ''}"]
    if info.file_size is None or info.file_size <= MAX_PREVIEW_BYTES:
        messages = get_session_messages(info.session_id, info.cwd, store=store, env=environment)
        said = [(one.type, text) for one in messages if (text := message_text(one.message))]
        lines += [f"{'❯' if kind == 'user' else '●'} {text}" for kind, text in said[1:][-PREVIEW_MESSAGES:]]
    return "\n".join(reveal_line(line) for line in lines)


def message_text(message: Any) -> str:
    """What was said, without tool calls and their results."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = [block for block in content if isinstance(block, dict) and block.get("type") == "text"]
    return " ".join(block_texts(content)).strip()


async def export(view: View, argument: str) -> None:
    """Asks for the name of the file, and before a file is replaced."""
    found = await view.client.export_conversation()
    name = argument or await view.ask("Write the conversation to: ", str(found.get("default_filename", "")))
    if not name:
        return
    path = find_path(view, name)
    if path.exists() and not await view.confirm(f"Replace {reveal_line(str(path))}?"):
        return
    private_files.replace(path, f"{found.get('text', '')}\n".encode(errors="replace"))
    view.say(f"The conversation is in {path}")


async def fork(view: View, argument: str) -> None:
    """Continue in a copy of the session, with this title."""
    if not is_local(view):
        raise ValueError("the session is on a gateway; a rewind there continues in a copy")
    store, environment = read_store(view), {**os.environ, **view.options.env}
    copy = await asyncio.to_thread(fork_session, view.session_id, title=argument or None, store=store, env=environment)
    await view.switch_session(copy.session_id)


async def rename(view: View, argument: str) -> None:
    title = argument or await view.ask("Title of the session: ") or ""
    if title.strip():
        await view.client.request(RenameSession(title=title))
        view.say(f"The session is called {title}.")


def find_path(view: View, name: str) -> Path:
    return Path(local_folder(view), Path(name).expanduser())


async def rewind(view: View, argument: str) -> None:
    """The text of the message goes into the input, to be edited and sent again."""
    prompts = list(view.prompts)
    if not prompts:
        view.say("There is no earlier message.")
        return
    rows = [Row(uuid, reveal_line(text)) for uuid, text in reversed(prompts)]
    is_long = any("\n" in text or cell_width(text) > view.width // 2 for _, text in prompts)
    preview = (lambda row: dict(prompts)[row.key]) if is_long else None
    picked = await view.choose("Go back to before which message?", rows, preview=preview)
    if picked is not None:
        await restore(view, picked.key, dict(prompts)[picked.key])


async def undo(view: View, argument: str) -> None:
    """Rewind to before the last prompt."""
    if not view.prompts:
        raise ValueError("there is no prompt to undo")
    uuid, text = view.prompts[-1]
    view.print([view.styles.bold(shorten(f"Undo: {reveal_line(text)}", view.width))])
    await restore(view, uuid, text)


async def restore(view: View, uuid: str, text: str) -> None:
    report = await report_files(view, uuid)
    view.print(format_report(report, view))
    what = await view.choose("Restore what?", list_choices(report), search=False)
    if what is None:
        return
    if what.key in (FILES, BOTH):
        answer = await view.client.rewind_files(uuid)
        view.say("\n".join(["The files are restored.", *([str(answer["error"])] if answer.get("error") else [])]))
    if what.key == FILES:
        return
    await view.switch_session(view.session_id, at=uuid)
    view.print([shorten(f"The conversation is as it was before: {reveal_line(text)}", view.width)])
    view.interface.set_input(text)


async def report_files(view: View, message_id: str) -> Json:
    """What a rewind would change; a refusal is in `error`."""
    try:
        return await view.client.rewind_files(message_id, dry_run=True, diffs=True)
    except ControlError as exc:
        return {"canRewind": False, "error": str(exc)}


def list_choices(report: Json) -> list[Row]:
    conversation = Row(CONVERSATION, "the conversation", "files stay as they are")
    if not (report.get("canRewind") and report.get("filesChanged")):
        return [conversation]
    return [
        Row(BOTH, "the conversation and the files"),
        conversation,
        Row(FILES, "the files", "the conversation stays"),
    ]


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
