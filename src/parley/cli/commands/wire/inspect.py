"""`parley inspect`: a recorded conversation as text, as JSON, or as an HTML report."""

from __future__ import annotations

import os
from pathlib import Path

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json, write_lines
from parley.cli.commands.wire.recordings import add_lines, read_conversation
from parley.cli.stdio import warn
from parley.inspector.conversation import Conversation, SeenLine
from parley.inspector.observer import describe_ending
from parley.inspector.recorder import CleanLines
from parley.inspector.recording import KeptLine, WireRecording
from parley.inspector.redaction import WireRedactor
from parley.inspector.report import ReportFile
from parley.inspector.text import TextView


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["inspect"], argv, {"": inspect})


def inspect(given: GivenArgs) -> int:
    found = read_conversation(given.words[0])
    if found.problem:
        warn(found.problem)
    redactor = WireRedactor(os.environ)
    conversation = Conversation()
    lines = list(add_lines(found.recording, conversation))
    if given.has("html"):
        write_report(Path(given.one("html")), found.recording, lines, redactor)
    if given.has("json"):
        return write_json({**conversation.summarize(), "exit_code": found.recording.exit_code})
    view = TextView(redactor.redact_text)
    shown = [] if given.has("summary") else [view.format_line(seen) for seen in lines]
    return write_lines([*shown, *view.format_summary(conversation, describe_ending(found.recording.exit_code))])


def write_report(path: Path, recording: WireRecording, lines: list[SeenLine], redactor: WireRedactor) -> None:
    """Raises UsageError."""
    report = ReportFile(path, list(recording.header.command), recording.header.started_at)
    clean = CleanLines(redactor, report.add)
    for seen in lines:
        clean.add(KeptLine(record=seen.record, data=b""))
    clean.flush()
    if recording.exit_code is not None:
        report.end(0.0, recording.exit_code)
    report.close()
