"""The keys of a conversation. Editing keys are those of `prompt_toolkit`, in emacs or vi mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Always, Condition, Filter, emacs_mode, vi_navigation_mode
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyBindingsBase, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys

from parley.terminal.interfaces.keyboard import NAMES, KeyPress

if TYPE_CHECKING:
    from parley.terminal.interfaces.live import LiveInterface

KEYS = (
    ("Enter", "send the prompt; while a turn runs, queue it"),
    ("Alt+Enter, Ctrl-J, \\ Enter", "start a new line"),
    ("Up, Down", "earlier prompts; Up in an empty input takes back the last queued prompt"),
    ("Ctrl-R", "search the prompts that you sent"),
    ("Tab", "complete a /command or @path"),
    ("Ctrl-G, Ctrl-X Ctrl-E", "edit the prompt in $VISUAL or $EDITOR"),
    ("Ctrl-V", "paste the image on the clipboard"),
    ("Escape", "interrupt the turn"),
    ("Escape Escape", "rewind to an earlier prompt; with a typed prompt, clear it"),
    ("Ctrl-C", "clear the input, or interrupt the turn"),
    ("Ctrl-C Ctrl-C, Ctrl-D", "quit; the session can be resumed"),
    ("Shift-Tab", "change the permission mode"),
    ("Ctrl-O", "print the last tool output in full"),
    ("Ctrl-T", "show or hide the todos and the background tasks"),
    ("Alt-T", "show or hide the model's thinking"),
    ("Ctrl-L", "clear the window"),
    ("Ctrl-Z", "suspend; fg continues"),
)
"""The keys of a conversation and what they do, for the help."""
DIALOG_KEYS = {
    **{key: name for data, name in NAMES.items() if isinstance(key := ANSI_SEQUENCES.get(data), Keys)},
    Keys.ControlC: "escape",
    Keys.Escape: "escape",
}
"""The keys that answer a question: those of one prompt."""


def bind_keys(interface: LiveInterface) -> KeyBindingsBase:
    return merge_key_bindings([bind_input(interface), bind_session(interface), bind_dialogs(interface)])


def bind_input(interface: LiveInterface) -> KeyBindings:
    """Keys that edit and send the prompt."""
    keys, buffer = KeyBindings(), interface.input
    is_free = Condition(lambda: not interface.is_asking)
    is_completing = is_free & Condition(lambda: buffer.complete_state is not None)

    @keys.add("enter", filter=is_free)
    def _(event: KeyPressEvent) -> None:
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            interface.actions.submit(buffer.text)

    @keys.add("escape", "enter", filter=is_free)
    @keys.add("c-j", filter=is_free)
    def _(event: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @keys.add("tab", filter=is_free)
    def _(event: KeyPressEvent) -> None:
        if buffer.complete_state is not None:
            buffer.complete_next()
        else:
            buffer.start_completion(select_first=True)

    @keys.add("escape", filter=is_completing)
    def _(event: KeyPressEvent) -> None:
        buffer.cancel_completion()

    @keys.add("up", filter=is_free)
    def _(event: KeyPressEvent) -> None:
        if not buffer.text and (text := interface.actions.take_back()) is not None:
            buffer.text = text
            buffer.cursor_position = len(text)
        else:
            buffer.auto_up(count=event.arg)

    @keys.add(Keys.BracketedPaste, filter=is_free)
    def _(event: KeyPressEvent) -> None:
        buffer.insert_text(interface.actions.pastes.fold(event.data))

    @keys.add("c-v", filter=is_free)
    def _(event: KeyPressEvent) -> None:
        interface.actions.run_task(interface.actions.paste_image())

    @keys.add("c-g", filter=is_free)
    @keys.add("c-x", "c-e", filter=is_free)
    def _(event: KeyPressEvent) -> None:
        interface.actions.run_task(interface.actions.edit_prompt())

    return keys


def bind_session(interface: LiveInterface) -> KeyBindings:
    """Keys that are about the session."""
    keys, actions = KeyBindings(), interface.actions
    is_free = Condition(lambda: not interface.is_asking)
    is_plain = is_free & (emacs_mode | vi_navigation_mode) & Condition(lambda: interface.input.complete_state is None)

    bound: tuple[tuple[str, Filter, Callable[[], object]], ...] = (
        ("escape", is_plain, actions.escape),
        ("c-c", is_free, actions.cancel),
        ("<sigint>", Always(), actions.cancel),
        ("c-d", is_free & Condition(lambda: not interface.input.text), actions.leave),
        ("s-tab", is_free, actions.cycle_mode),
        ("c-o", Always(), actions.expand_output),
        ("c-t", Always(), actions.toggle_panel),
        ("c-r", is_free, lambda: actions.run_task(actions.search_history())),
    )
    for key, when, act in bound:
        keys.add(key, filter=when)(partial(call, act))

    @keys.add("escape", "t", filter=is_free & emacs_mode)
    def _(event: KeyPressEvent) -> None:
        actions.toggle_thinking()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @keys.add("c-l")
    def _(event: KeyPressEvent) -> None:
        event.app.renderer.clear()

    return keys


def call(act: Callable[[], object], event: KeyPressEvent) -> None:
    act()


def bind_dialogs(interface: LiveInterface) -> KeyBindings:
    """Keys while something is asked. Pasted text picks nothing."""
    keys, is_asking = KeyBindings(), Condition(lambda: interface.is_asking)

    for key, name in DIALOG_KEYS.items():
        press = partial(call, partial(interface.press, KeyPress(name)))
        keys.add(key, filter=is_asking, eager=key != Keys.Escape)(press)  # Escape may be the start of a sequence

    @keys.add(Keys.Any, filter=is_asking)
    def _(event: KeyPressEvent) -> None:
        if event.data.isprintable():
            interface.press(KeyPress("text", event.data))

    @keys.add(Keys.BracketedPaste, filter=is_asking, eager=True)
    def _(event: KeyPressEvent) -> None:
        interface.press(KeyPress("paste", event.data.replace("\r\n", "\n").replace("\r", "\n")))

    return keys
