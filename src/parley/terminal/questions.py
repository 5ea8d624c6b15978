"""Requests of the engine to the person: permissions, plans, questions of the model, forms of MCP servers.

    questions = TerminalQuestions(dialogs, transcript)
    Options(can_use_tool=questions.decide, on_elicitation=questions.elicit)

Escape denies the call and ends the turn. A request that another client of the session answers is withdrawn. MCP forms
are flat: strings, numbers, booleans, choices, and lists of choices.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parley.permissions.rule import split_alternatives
from parley.protocol.base import Json, Struct
from parley.sdk.permissions import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    ToolPermissionContext,
)
from parley.terminal.interfaces.dialogs import Dialogs, Picker, Row
from parley.terminal.rendering.details import number_lines, paint_diff, proposed_lines
from parley.terminal.rendering.requests import (
    MAX_LINES,
    break_lines,
    describe_change,
    describe_update,
    explain,
    hides_lines,
    label_lines,
    list_input,
)
from parley.terminal.rendering.text import cell_width, reveal_line, reveal_text
from parley.terminal.rendering.transcript import TerminalTranscript
from parley.tools.catalog import find_traits

DENIED = "The user denied this call."
INTERRUPTED = "The user interrupted the turn."
NOT_APPROVED = "The user did not approve the plan."
MAX_DIFF_LINES = 30
MAX_FILE_BYTES = 2_000_000
LABEL_CELLS = 32
"""What the row of a choice needs besides its detail."""
PLACES = (("s", "session", "for this session"), ("l", "localSettings", "always here"), ("u", "userSettings", "always"))
"""Where a rule can be kept: the key, the destination, and how the choice is called."""
OTHER = "Something else…"


class TerminalQuestions:
    def __init__(
        self,
        dialogs: Dialogs,
        transcript: TerminalTranscript,
        width: Callable[[], int],
        read_file: Callable[[str], str | None] = lambda path: None,
    ) -> None:
        """`read_file`: the text of a file that a call would change; None if it cannot be read here."""
        self._dialogs = dialogs
        self._transcript = transcript
        self._width = width
        self._read_file = read_file
        self._turn = asyncio.Lock()

    async def decide(self, tool_name: str, given: Json, context: ToolPermissionContext) -> PermissionResult:
        """Answer a permission request."""
        calls = self._transcript.calls
        if context.tool_use_id is not None:
            calls.asked.add(context.tool_use_id)
        try:
            async with self._turn:
                await self._dialogs.wait_for_pause()
                answer = await self._decide(tool_name, given, context)
        except asyncio.CancelledError:
            self._print_answer("withdrawn: it was answered elsewhere, or the turn ended")
            raise
        finally:
            calls.asked.discard(context.tool_use_id)
        is_dialog = find_traits(tool_name).plan_field != "" or asks_questions(tool_name, given)
        if context.tool_use_id is not None:
            calls.resume(context.tool_use_id, is_dialog=is_dialog)
        return answer

    async def _decide(self, tool_name: str, given: Json, context: ToolPermissionContext) -> PermissionResult:
        if find_traits(tool_name).plan_field:
            return await self._review_plan(tool_name, given)
        if asks_questions(tool_name, given):
            return await self._ask_questions(given)
        return await self._ask_permission(tool_name, given, context)

    # Permissions.

    async def _ask_permission(self, tool_name: str, given: Json, context: ToolPermissionContext) -> PermissionResult:
        styles, width = self._transcript.styles, self._width()
        title = reveal_line(context.title or f"Use {tool_name}?")
        who = " (asked by a subagent)" if context.agent_id is not None else ""
        lines, is_cut = self._describe(tool_name, given, MAX_LINES)
        if find_traits(tool_name).effect == "writes_files":
            self._transcript.seen_diffs.add(context.tool_use_id)
        reason = explain(context.decision_reason, context.blocked_path)
        lines += label_lines("why: ", reason, styles, width)
        choices = build_choices(context)
        for granted in dict.fromkeys(detail for _, detail, _ in choices.values()):
            if cell_width(granted) > width - LABEL_CELLS:  # its row has no room for all of it
                lines += label_lines("grants: ", granted, styles, width)
        self._transcript.show_question([styles.bold(f"? {title}") + who, *lines], is_new=True)
        rows = [Row(key, label, detail) for key, (label, detail, _) in choices.items()]
        if is_cut:
            rows.append(Row("v", "View everything"))
        selected = list(choices).index("n") if context.default_to_no else 0
        while True:
            picked = await self._pick(rows, selected=selected)
            if picked is None:
                return self._interrupt()
            if picked[0].key != "v":
                break
            self._transcript.show_question(self._describe(tool_name, given, None)[0])
        label, detail, updates = choices[picked[0].key]
        if updates is None:
            return await self._deny(DENIED, asks=picked[0].key == "r")
        self._print_answer(f"{label}: {detail}" if detail else label)
        return PermissionResultAllow(updated_input=given, updated_permissions=updates or None)

    def _describe(self, tool_name: str, given: Json, max_lines: int | None) -> tuple[list[str], bool]:
        """What would run, and whether something is left out."""
        styles, width = self._transcript.styles, self._width()
        traits = find_traits(tool_name)
        if traits.effect == "writes_files":
            paths = [str(given[name]) for name in traits.path_fields if isinstance(given.get(name), str)]
            path = paths[0] if paths else ""
            changed = proposed_lines(given, self._read_file(path) if path else None)
            most = None if max_lines is None else MAX_DIFF_LINES
            is_cut = most is not None and len(list(number_lines(changed))) > most
            if changed:
                painted = paint_diff(changed, styles, width, most, path)
                return [*(f"    {reveal_line(path)}" for path in paths), *painted], is_cut
        return list_input(tool_name, given, styles, width, max_lines), hides_lines(tool_name, given, width)

    async def _deny(self, message: str, *, asks: bool) -> PermissionResult:
        reason = await self._dialogs.ask("Why not? ") if asks else ""
        if reason is None:
            return self._interrupt()
        self._print_answer(f"No: {reason}" if reason else "No")
        return PermissionResultDeny(message=f"{message} Their reason: {reason}" if reason else message)

    def _interrupt(self) -> PermissionResult:
        self._print_answer("interrupted")
        return PermissionResultDeny(message=INTERRUPTED, interrupt=True)

    # Plans and questions.

    async def _review_plan(self, tool_name: str, given: Json) -> PermissionResult:
        styles, plan = self._transcript.styles, given.get(find_traits(tool_name).plan_field)
        if isinstance(plan, str):
            lines = self._transcript.render(plan)
        else:
            lines = list_input(tool_name, given, styles, self._width(), None)
        self._transcript.show_question([*lines, "", styles.bold("? Carry out this plan?")], is_new=True)
        rows = [
            Row("y", "Yes, and ask before each edit"),
            Row("a", "Yes, and accept all edits", "permission mode acceptEdits"),
            Row("r", "Revise it", "say what to change"),
            Row("n", "No", "and end the turn"),
        ]
        picked = await self._pick(rows)
        if picked is None or picked[0].key == "n":
            return self._interrupt()
        if picked[0].key == "r":
            wish = await self._dialogs.ask("What should change? ")
            if wish is None:
                return self._interrupt()
            self._print_answer(f"Revise: {wish}")
            return PermissionResultDeny(message=f"{NOT_APPROVED} Revise it: {wish}")
        self._print_answer(picked[0].label)
        mode = PermissionUpdate(
            "setMode", mode="acceptEdits" if picked[0].key == "a" else "default", destination="session"
        )
        return PermissionResultAllow(updated_input=given, updated_permissions=[mode])

    async def _ask_questions(self, given: Json) -> PermissionResult:
        answers: dict[str, str] = {}
        for question in given["questions"]:
            if not isinstance(question, dict):
                continue
            text = str(question.get("question", ""))
            answer = await self._ask_question(text, question)
            if answer is None:
                return self._interrupt()
            self._print_answer(answer)
            answers[text] = answer
        return PermissionResultAllow(updated_input={**given, "answers": answers})

    async def _ask_question(self, text: str, question: Json) -> str | None:
        """The answer to one question; None after Escape."""
        options = [option for option in question.get("options", ()) if isinstance(option, dict)]
        self._transcript.show_question([self._transcript.styles.bold(f"? {reveal_line(text)}")], is_new=True)
        rows = [
            Row(str(number), str(option.get("label", "")), str(option.get("description", "")))
            for number, option in enumerate(options, 1)
        ]
        rows.append(Row("0", OTHER))
        about = {
            row.key: f"{row.detail}\n{option.get('preview') or ''}".strip()
            for row, option in zip(rows, options, strict=False)
        }
        if all("\n" not in text and cell_width(text) <= self._width() - LABEL_CELLS for text in about.values()):
            about = {}  # the rows have room for it
        picked = await self._pick(rows, several=question.get("multiSelect") is True, about=about)
        if picked is None:
            return None
        labels = [row.label for row in picked if row.key != "0"]
        if any(row.key == "0" for row in picked):
            own = await self._dialogs.ask("Your answer: ")
            if own is None:
                return None
            labels.append(own)
        return ", ".join(labels)

    # Forms of MCP servers.

    async def elicit(self, request: Any) -> Any:
        """Answer an elicitation."""
        async with self._turn:
            await self._dialogs.wait_for_pause()
            server = reveal_line(str(request.get("mcp_server_name", "")))
            head = str(request.get("title") or f"The MCP server {server} asks")
            message = break_lines(reveal_text(str(request.get("message", ""))), self._width(), 2)
            title = self._transcript.styles.bold(f"? {reveal_line(head)}") + f" ({server})"
            self._transcript.show_question([title, *(f"  {line}" for line in message)], is_new=True)
            content: Json | None
            if isinstance(url := request.get("url"), str):
                self._transcript.show_question([f"  {self._transcript.styles.code(reveal_line(url))}"])
                content = {} if await self._confirm("I opened it and am done") else None
            else:
                content = await self._fill_form(request)
            self._print_answer("declined" if content is None else "sent")
            if content is None:
                return {"action": "decline"}
            return {"action": "accept"} if isinstance(url, str) else {"action": "accept", "content": content}

    async def _confirm(self, label: str) -> bool:
        rows = [Row("y", label), Row("n", "Decline")]
        picked = await self._dialogs.pick(Picker("", rows, search=False, escape="declines"))
        return picked is not None and picked[0].key == "y"

    async def _fill_form(self, request: Json) -> Json | None:
        schema, order = request.get("requested_schema"), request.get("property_order")
        fields = read_fields(schema if isinstance(schema, dict) else {}, order if isinstance(order, list) else [])
        if fields is None:
            self._transcript.warn("The form was declined: it has fields that cannot be shown here.")
            return None
        if not fields:
            return {} if await self._confirm("Accept") else None
        content: Json = {}
        for field in fields:
            if not await self._fill(field, content):
                return None
        return content

    async def _fill(self, field: Field, content: Json) -> bool:
        """Ask for a field until its value is valid; False after Escape."""
        self._transcript.show_question(
            [f"  {line}" for line in break_lines(reveal_text(field.describe()), self._width())]
        )
        while True:
            text = await self._dialogs.ask(f"{reveal_line(field.name)}: ")
            if text is None:
                return False
            try:
                value = field.parse(text.strip())
            except ValueError as exc:
                self._transcript.warn(f"  {exc}")
                continue
            self._print_answer(text or ("(left out)" if value is None else f"{value}"))
            if value is not None:
                content[field.name] = value
            return True

    async def _pick(
        self,
        rows: Sequence[Row],
        *,
        several: bool = False,
        selected: int = 0,
        about: Mapping[str, str] | None = None,
    ) -> list[Row] | None:
        """`about`: what is shown of the selected row, by its key."""
        preview = (lambda row: about.get(row.key, "")) if about else None
        picker = Picker(
            "", rows, search=False, several=several, preview=preview, selected=selected, escape="ends the turn"
        )
        return await self._dialogs.pick(picker)

    def _print_answer(self, text: str) -> None:
        """Print what was answered, so that it stays on the screen."""
        lines = reveal_text(text).split("\n")
        self._transcript.show_question([self._transcript.styles.dim(f"  → {line}") for line in lines])


def read_local(folder: str) -> Callable[[str], str | None]:
    """Reads the files of this machine. Only regular ones: reading others may block."""

    def read(path: str) -> str | None:
        try:
            descriptor = os.open(os.path.join(folder, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, encoding="utf-8", newline="") as file:
                status = os.fstat(descriptor)
                is_text = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES
                return file.read().replace("\r\n", "\n") if is_text else None
        except (OSError, ValueError):
            return None

    return read


def asks_questions(tool_name: str, given: Json) -> bool:
    """Whether a call is a question of the model itself."""
    return find_traits(tool_name).effect == "session" and isinstance(given.get("questions"), list)


def build_choices(context: ToolPermissionContext) -> dict[str, tuple[str, str, list[PermissionUpdate] | None]]:
    """The answers to a permission request by key: label, what it changes, and the updates. None denies the call."""
    choices: dict[str, tuple[str, str, list[PermissionUpdate] | None]] = {"y": ("Yes, once", "", [])}
    suggested = [] if context.suppress_always_allow_rule else [update.to_dict() for update in context.suggestions]
    for group in split_alternatives(suggested):
        if all(update.get("type") == "setMode" for update in group):
            changes = ", ".join(map(describe_update, group))
            choices["e"] = ("Yes, and change the mode", changes, list(map(PermissionUpdate.from_dict, group)))
            continue
        changes = ", ".join(map(describe_change, group))
        for key, place, label in PLACES:
            moved = [
                update if update.get("type") == "setMode" else {**update, "destination": place} for update in group
            ]
            choices[key] = (f"Yes, {label}", changes, list(map(PermissionUpdate.from_dict, moved)))
    return {**choices, "n": ("No", "", None), "r": ("No, and say why", "", None)}


TYPES = ("string", "number", "integer", "boolean", "array")
YES, NO = ("y", "yes", "true"), ("n", "no", "false")


class Field(Struct, frozen=True, kw_only=True):
    """One field of a form."""

    name: str
    schema: Json
    is_required: bool
    choices: tuple[tuple[Any, str], ...] = ()
    """Value and label of each choice."""

    def describe(self) -> str:
        """What is asked, with its choices."""
        schema = self.schema
        parts = [str(schema[key]) for key in ("title", "description") if isinstance(schema.get(key), str)]
        notes = ["required" if self.is_required else "optional"]
        if schema.get("type") == "boolean":
            notes.append("yes or no")
        elif self.choices:
            notes.append("numbers" if schema.get("type") == "array" else "a number")
        elif schema.get("type") != "string":
            notes.append(f"{schema.get('type')}")
        if "default" in schema:
            notes.append(f"default: {schema['default']}")
        listed = [f"  {number}. {label}" for number, (_, label) in enumerate(self.choices, 1)]
        return "\n".join([f"{' – '.join(parts) or self.name} ({', '.join(notes)})", *listed])

    def parse(self, text: str) -> Any:
        """The value of an answer; None to leave the field out. Raises ValueError."""
        if not text:
            if "default" in self.schema:
                return self.schema["default"]
            if self.is_required:
                raise ValueError("a value is required (Esc declines)")
            return None
        kind = self.schema.get("type")
        if kind == "array":
            values = [self._pick(word) for word in text.replace(",", " ").split()]
            self._check_range(len(values), "minItems", "maxItems", "choices")
            return values
        if self.choices:
            return self._pick(text)
        if kind == "boolean":
            if text.lower() not in YES + NO:
                raise ValueError("answer yes or no")
            return text.lower() in YES
        if kind in ("number", "integer"):
            return self._parse_number(text, is_integer=kind == "integer")
        self._check_range(len(text), "minLength", "maxLength", "characters")
        return text

    def _pick(self, text: str) -> Any:
        if text.isdecimal() and 1 <= int(text) <= len(self.choices):
            return self.choices[int(text) - 1][0]
        found = [value for value, label in self.choices if text in (value, label)]
        if not found:
            raise ValueError(f"choose a number from 1 to {len(self.choices)}")
        return found[0]

    def _parse_number(self, text: str, *, is_integer: bool) -> float:
        try:
            number = int(text) if is_integer else float(text)
        except ValueError:
            raise ValueError("expected a whole number" if is_integer else "expected a number") from None
        self._check_range(number, "minimum", "maximum", "")
        return number

    def _check_range(self, value: float, low_key: str, high_key: str, unit: str) -> None:
        low, high = self.schema.get(low_key), self.schema.get(high_key)
        if isinstance(low, int | float) and value < low:
            raise ValueError(f"expected at least {low} {unit}".rstrip())
        if isinstance(high, int | float) and value > high:
            raise ValueError(f"expected at most {high} {unit}".rstrip())


def read_fields(schema: Json, order: Sequence[str]) -> list[Field] | None:
    """The fields of a form in their order; None if one cannot be asked for on a line."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return []
    names = [*(name for name in order if name in properties), *(name for name in properties if name not in order)]
    fields = []
    for name in names:
        entry = properties[name]
        if not isinstance(entry, dict) or entry.get("type", "string") not in TYPES:
            return None
        kind = entry.get("type", "string")
        choices = list_choices(entry.get("items") if kind == "array" else entry)
        if kind == "array" and not choices:
            return None
        is_required = isinstance(required, list) and name in required
        schema = {**entry, "type": kind}
        fields.append(Field(name=name, schema=schema, is_required=is_required, choices=choices))
    return fields


def list_choices(schema: Any) -> tuple[tuple[Any, str], ...]:
    """`enum` with `enumNames`, or `oneOf` and `anyOf` with `const` and `title`."""
    if not isinstance(schema, dict):
        return ()
    if isinstance(values := schema.get("enum"), list):
        names = schema.get("enumNames")
        labels = names if isinstance(names, list) and len(names) == len(values) else values
        return tuple((value, str(label)) for value, label in zip(values, labels, strict=True))
    entries = schema.get("oneOf", schema.get("anyOf"))
    if not isinstance(entries, list):
        return ()
    return tuple(
        (entry["const"], str(entry.get("title", entry["const"])))
        for entry in entries
        if isinstance(entry, dict) and "const" in entry
    )
