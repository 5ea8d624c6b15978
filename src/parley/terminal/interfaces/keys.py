"""The keys of a conversation. Editing keys are those of `prompt_toolkit`, in emacs or vi mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Always, Condition, Filter, emacs_mode, vi_navigation_mode
from prompt_toolkit.key_binding import KeyBindings, KeyBindingsBase, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from parley.terminal.interfaces.screen import ConversationScreen

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
    ("Ctrl-T", "print the model's last thinking"),
    ("Ctrl-L", "clear the window"),
    ("Ctrl-Z", "suspend; fg continues"),
)
"""The keys of a conversation and what they do, for the help."""
PICKER_KEYS = {
    "up": "up",
    "c-p": "up",
    "down": "down",
    "c-n": "down",
    "pageup": "pageup",
    "pagedown": "pagedown",
    "enter": "enter",
    "escape": "escape",
    "c-c": "escape",
    "backspace": "backspace",
}


def bind_keys(screen: ConversationScreen) -> KeyBindingsBase:
    return merge_key_bindings([bind_input(screen), bind_session(screen), bind_picker(screen), bind_answer(screen)])


def bind_input(screen: ConversationScreen) -> KeyBindings:
    """Keys that edit and send the prompt."""
    keys, buffer = KeyBindings(), screen.input
    is_free = Condition(lambda: screen.picker is None and screen.asked is None)
    is_completing = is_free & Condition(lambda: buffer.complete_state is not None)

    @keys.add("enter", filter=is_free)
    def _(event: KeyPressEvent) -> None:
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            screen.actions.submit(buffer.text)

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
        if not buffer.text and (text := screen.actions.take_back()) is not None:
            buffer.text = text
            buffer.cursor_position = len(text)
        else:
            buffer.auto_up(count=event.arg)

    @keys.add(Keys.BracketedPaste, filter=is_free)
    def _(event: KeyPressEvent) -> None:
        buffer.insert_text(screen.actions.pastes.fold(event.data))

    @keys.add("c-v", filter=is_free)
    def _(event: KeyPressEvent) -> None:
        screen.actions.run_task(screen.actions.paste_image())

    @keys.add("c-g", filter=is_free)
    @keys.add("c-x", "c-e", filter=is_free)
    def _(event: KeyPressEvent) -> None:
        screen.actions.run_task(screen.actions.edit_prompt())

    return keys


def bind_session(screen: ConversationScreen) -> KeyBindings:
    """Keys that are about the session."""
    keys, actions = KeyBindings(), screen.actions
    is_free = Condition(lambda: screen.picker is None and screen.asked is None)
    is_plain = is_free & (emacs_mode | vi_navigation_mode) & Condition(lambda: screen.input.complete_state is None)

    bound: tuple[tuple[str, Filter, Callable[[], object]], ...] = (
        ("escape", is_plain, actions.escape),
        ("c-c", is_free, actions.cancel),
        ("<sigint>", Always(), actions.cancel),
        ("c-d", is_free & Condition(lambda: not screen.input.text), actions.leave),
        ("s-tab", is_free, actions.cycle_mode),
        ("c-o", Always(), actions.expand_output),
        ("c-t", Always(), actions.expand_thinking),
        ("c-r", is_free, lambda: actions.run_task(actions.search_history())),
    )
    for key, when, act in bound:
        keys.add(key, filter=when)(partial(call, act))

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @keys.add("c-l")
    def _(event: KeyPressEvent) -> None:
        event.app.renderer.clear()

    return keys


def call(act: Callable[[], object], event: KeyPressEvent) -> None:
    act()


def bind_picker(screen: ConversationScreen) -> KeyBindings:
    """Keys while something is picked. Pasted text is ignored."""
    keys = KeyBindings()
    is_picking = Condition(lambda: screen.picker is not None)

    def bind(key: str, name: str) -> None:
        @keys.add(key, filter=is_picking, eager=key != "escape")
        def _(event: KeyPressEvent) -> None:
            screen.press_picker(name)

    for key, name in PICKER_KEYS.items():
        bind(key, name)

    @keys.add(Keys.Any, filter=is_picking)
    def _(event: KeyPressEvent) -> None:
        if event.data.isprintable():
            screen.press_picker("text", event.data)

    @keys.add(Keys.BracketedPaste, filter=is_picking, eager=True)
    def _(event: KeyPressEvent) -> None:
        return

    return keys


def bind_answer(screen: ConversationScreen) -> KeyBindings:
    """Keys while a line of text is asked for."""
    keys = KeyBindings()
    is_asking = Condition(lambda: screen.asked is not None)

    @keys.add("enter", filter=is_asking)
    def _(event: KeyPressEvent) -> None:
        screen.answer_asked(screen.answer.text)

    @keys.add("escape", filter=is_asking & (emacs_mode | vi_navigation_mode))
    @keys.add("c-c", filter=is_asking)
    def _(event: KeyPressEvent) -> None:
        screen.answer_asked(None)

    return keys
