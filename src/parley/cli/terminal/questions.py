"""Questions to the person at the terminal: permission requests, plans, questions of the model, elicitations.

    reply = await QuestionPrompts(screen, keyboard, styles, render).answer(request)

The reply is the payload of a control response. Escape interrupts the turn: the call is denied with `interrupt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from parley.cli.terminal.keys import KeyPress, LineEditor
from parley.cli.terminal.screen import Screen
from parley.cli.terminal.tty import Keyboard
from parley.permissions.rule import split_alternatives
from parley.protocol.base import Json
from parley.protocol.messages.requests import CanUseTool, Elicitation
from parley.terminal.forms import Field, read_fields
from parley.terminal.rendering.requests import (
    MAX_LINES,
    MIN_COLUMNS,
    break_lines,
    describe_update,
    explain,
    hides_lines,
    label_lines,
    list_input,
    list_options,
)
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import cell_width, reveal_line, reveal_text, wrap
from parley.tools.catalog import find_traits

DENIED = "The user denied this call."
INTERRUPTED = "The user interrupted the turn."
NOT_APPROVED = "The user did not approve the plan."
GRANTS = {"a": "always", "e": "change the mode"}
"""What a key grants beyond this call; the lines above the keys name the rule or mode."""
ANSWERS = {"y": "yes, once", "a": "yes, always", "e": "yes, and change the mode"}
"""What remains on the screen of a key that allows a call."""
JOINERS = ("", "\u200d", "\ufe0f")
"""Characters of emoji, which have no effect of their own."""
LEAVING = ("escape", "hangup", "end_of_input")


class Cancelled(Exception):
    """The person pressed Escape or Ctrl-D, or the terminal was closed."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class QuestionPrompts:
    """Asks one question at a time."""

    def __init__(
        self,
        screen: Screen,
        keyboard: Keyboard,
        styles: Styles,
        render: Callable[[str], list[str]],
    ) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._styles = styles
        self._render = render
        """Formats a whole Markdown text."""
        self._turn = asyncio.Lock()
        self.is_asking = False

    async def answer(self, request: CanUseTool | Elicitation) -> Json:
        """The reply to a request."""
        async with self._turn:
            self.is_asking = True
            try:
                with self._keyboard.asking():
                    if isinstance(request, Elicitation):
                        return await self._elicit(request)
                    return await self._decide(request)
            finally:
                self.is_asking = False
                self._screen.clear()

    # Permission requests.

    async def _decide(self, request: CanUseTool) -> Json:
        try:
            if find_traits(request.tool_name).plan_field:
                return await self._approve_plan(request)
            if request.requires_user_interaction is True and isinstance(request.input.get("questions"), list):
                return await self._ask_choices(request)
            return await self._ask_permission(request)
        except Cancelled:
            self._echo("interrupted")
            return {"behavior": "deny", "message": INTERRUPTED, "interrupt": True}

    async def _ask_permission(self, request: CanUseTool) -> Json:
        updates = group_suggestions(request)
        self._screen.print([*self._describe(request), *self._explain(request, updates)])
        granting = {key: GRANTS[key] for key in updates}
        viewing = {"v": "view everything"} if hides_lines(request.tool_name, request.input, self._screen.width) else {}
        choices = {"y": "yes, once", **granting, "n": "no", **viewing}
        while (pressed := await self._choose(choices)) == "v":
            self._screen.print(self._list_input(request, max_lines=None))
        if pressed == "n":
            return await self._deny(DENIED)
        self._echo(ANSWERS[pressed])
        granted = {"updatedPermissions": updates[pressed]} if pressed in updates else {}
        return {"behavior": "allow", "updatedInput": request.input, **granted}

    async def _deny(self, default: str) -> Json:
        reason = (await self._read_text("  Why not? (Enter for no reason) ")).strip()
        self._echo(f"no: {reason}" if reason else "no")
        return {"behavior": "deny", "message": f"{default} Their reason: {reason}" if reason else default}

    def _describe(self, request: CanUseTool) -> list[str]:
        """What would run."""
        who = " (asked by a subagent)" if isinstance(request.agent_id, str) else ""
        title = request.title if isinstance(request.title, str) else f"Use {request.tool_name}?"
        return ["", self._styles.bold(f"? {reveal_line(title)}") + who, *self._list_input(request, MAX_LINES)]

    def _list_input(self, request: CanUseTool, max_lines: int | None) -> list[str]:
        return list_input(request.tool_name, request.input, self._styles, self._screen.width, max_lines)

    def _explain(self, request: CanUseTool, updates: dict[str, list[Json]]) -> list[str]:
        """Why the person is asked, and what each key but `y` would grant."""
        lines = self._label("why: ", explain(request.decision_reason, request.blocked_path))
        for key, granted in updates.items():
            for update in granted:
                lines += self._label(f"{key} = ", describe_update(update))
        return lines

    def _label(self, label: str, text: str) -> list[str]:
        return label_lines(label, text, self._styles, self._screen.width)

    # Plans and questions of the model.

    async def _approve_plan(self, request: CanUseTool) -> Json:
        plan = request.input.get(find_traits(request.tool_name).plan_field)
        lines = self._render(plan) if isinstance(plan, str) else self._list_input(request, None)
        title = request.title if isinstance(request.title, str) else "Carry out this plan?"
        self._screen.print(["", *lines, "", self._styles.bold(f"? {reveal_line(title)}")])
        pressed = await self._choose(
            choices := {"y": "yes", "a": "yes, and accept all edits", "n": "no, keep planning"}
        )
        if pressed == "n":
            return await self._deny(NOT_APPROVED)
        self._echo(choices[pressed])
        mode = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
        updates = {"updatedPermissions": [mode]} if pressed == "a" else {}
        return {"behavior": "allow", "updatedInput": request.input, **updates}

    async def _ask_choices(self, request: CanUseTool) -> Json:
        answers: dict[str, str] = {}
        for question in request.input["questions"]:
            text = str(question.get("question", ""))
            options = [option for option in question.get("options", ()) if isinstance(option, dict)]
            self._screen.print(
                [
                    "",
                    self._styles.bold(f"? {reveal_line(text)}"),
                    *list_options(options, self._styles, self._screen.width),
                ]
            )
            labels = [str(option.get("label", "")) for option in options]
            answers[text] = await self._pick(labels, several=question.get("multiSelect") is True)
        return {"behavior": "allow", "updatedInput": {**request.input, "answers": answers}}

    async def _pick(self, labels: Sequence[str], *, several: bool) -> str:
        """The labels that were picked by number, or text of the person's own."""
        hint = "numbers" if several else "number"
        while True:
            text = (await self._read_text(f"  {hint} or your own answer: ")).strip()
            if not text:
                continue
            picked = read_numbers(text, len(labels), several=several)
            chosen = text if picked is None else ", ".join(labels[number - 1] for number in picked)
            self._echo(chosen)
            return chosen

    # Elicitations.

    async def _elicit(self, request: Elicitation) -> Json:
        server, title = reveal_line(request.mcp_server_name), request.title
        head = title if isinstance(title, str) else f"The MCP server {server} asks"
        message = [f"  {line}" for line in break_lines(reveal_text(request.message), self._screen.width, 2)]
        self._screen.print(["", self._styles.bold(f"? {reveal_line(head)}") + f" ({server})", *message])
        try:
            if isinstance(request.url, str):
                self._screen.print([f"  {self._styles.code(reveal_line(request.url))}"])
                pressed = await self._choose(choices := {"y": "I opened it and am done", "n": "decline"})
                self._echo(choices[pressed])
                return {"action": "accept" if pressed == "y" else "decline"}
            return await self._fill_form(request)
        except Cancelled:
            self._echo("declined")
            return {"action": "decline"}

    async def _fill_form(self, request: Elicitation) -> Json:
        schema = request.requested_schema
        order = request.property_order
        fields = read_fields(schema if isinstance(schema, dict) else {}, order if isinstance(order, list) else [])
        if fields is None:
            self._screen.print(
                [self._styles.warning("  The form was declined: it has fields that cannot be shown here.")]
            )
            return {"action": "decline"}
        content: Json = {}
        for field in fields:
            await self._fill(field, content)
        if not fields:
            pressed = await self._choose({"y": "accept", "n": "decline"})
            return {"action": "accept", "content": {}} if pressed == "y" else {"action": "decline"}
        return {"action": "accept", "content": content}

    async def _fill(self, field: Field, content: Json) -> None:
        """Ask for a field until its value is valid."""
        self._screen.print(
            [f"  {line}" for line in wrap(reveal_text(field.describe()), max(10, self._screen.width - 2))]
        )
        while True:
            text = (await self._read_text(f"  {reveal_line(field.name)}: ")).strip()
            try:
                value = field.parse(text)
            except ValueError as exc:
                self._screen.print([self._styles.warning(f"  {exc}")])
                continue
            self._echo(text or ("(left out)" if value is None else f"{value}"))
            if value is not None:
                content[field.name] = value
            return

    # Keys.

    async def _choose(self, choices: dict[str, str]) -> str:
        """The key of a choice. Raises Cancelled."""
        names = [f"{self._styles.bold(key)} {text}" for key, text in (*choices.items(), ("esc", "interrupt"))]
        plain = [f"{key} {text}" for key, text in (*choices.items(), ("esc", "interrupt"))]
        fits = sum(map(len, plain)) + 3 * len(plain) < self._screen.width
        self._screen.show(["  " + " · ".join(names) + " "] if fits else [f"  {name}" for name in names])
        if not self._screen.has_cursor:
            self._screen.print(["  " + " · ".join(names)])
        while True:
            key = await self._keyboard.read()
            if key.name in LEAVING:
                raise Cancelled(key.name)
            if key.name == "text" and (pressed := key.text.lower()) in choices:
                self._screen.clear()
                return pressed

    async def _read_text(self, label: str) -> str:
        """A text that ends with Enter. Raises Cancelled."""
        editor = LineEditor()
        if not self._screen.has_cursor:
            self._screen.print([label])
        while True:
            self._show_editor(label, editor)
            key: KeyPress = await self._keyboard.read()
            if key.name in ("escape", "hangup") or (key.name == "end_of_input" and not editor.text):
                raise Cancelled(key.name)
            if key.name == "enter":
                self._screen.clear()
                return editor.text
            editor.press(key)

    def _show_editor(self, label: str, editor: LineEditor) -> None:
        """The text with the cursor in it, broken at the edge of the window."""
        columns = max(MIN_COLUMNS, self._screen.width - 1)
        rows, cursor, row = [], (0, 0), label
        for index, char in enumerate([*editor.text, ""]):
            shown = char if char in JOINERS else reveal_text(char).rstrip("\n")
            if cell_width(row) + cell_width(shown) > columns:
                rows.append(row)
                row = ""
            if index == editor.at:
                cursor = (len(rows), cell_width(row))
            row += shown
            if char == "\n":
                rows.append(row)
                row = ""
        self._screen.show([*rows, row], cursor)

    def _echo(self, text: str) -> None:
        """Print what was answered, so that it stays on the screen."""
        self._screen.clear()
        self._screen.print([self._styles.dim(f"  → {line}") for line in reveal_text(text).split("\n")])


def group_suggestions(request: CanUseTool) -> dict[str, list[Json]]:
    """The permission updates that each key applies. Each is enough, so that this call needs no approval again."""
    found = request.permission_suggestions
    if not isinstance(found, list) or request.suppress_always_allow_rule is True:
        return {}
    return dict(zip(GRANTS, split_alternatives([update for update in found if isinstance(update, dict)]), strict=False))


def read_numbers(text: str, count: int, *, several: bool) -> list[int] | None:
    """The numbers in an answer such as `1` or `1, 3`; None if it is text of the person's own."""
    words = text.replace(",", " ").split()
    if not all(word.isdecimal() and 1 <= int(word) <= count for word in words):
        return None
    numbers = list(dict.fromkeys(map(int, words)))
    return numbers if several or len(numbers) == 1 else None
