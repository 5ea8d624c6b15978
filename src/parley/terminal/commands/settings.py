"""Settings, from the terminal: `/config`, `/output-style`, `/vim`, `/statusline`, `/hooks`, `/add-dir`, `/theme`.

A setting is written to the user's settings. What a client may write takes effect at once; the rest is written by
`parley config`, and sessions that start later read it.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from parley.protocol.base import Json
from parley.protocol.messages.panel_requests import GetHooksListing
from parley.sdk.permissions import PermissionUpdate
from parley.settings.keys import FLAG, KEYS, MANAGED, nearest
from parley.terminal.base import View
from parley.terminal.commands.overview import is_local, list_pairs, run_parley
from parley.terminal.interfaces.dialogs import Row
from parley.terminal.rendering.requests import PLACES
from parley.terminal.rendering.style import THEMES
from parley.terminal.rendering.text import reveal_line

UNSET = "unset"
OFF = "off"
SWITCH = ("true", "false")
ELSEWHERE = "the settings are on the machine of the gateway; change them there with `parley config`"
OTHERS = (MANAGED, FLAG)
"""Who sets the keys that a person cannot set here."""
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
NO_HOOKS = "No hooks. The key `hooks` of a settings file adds them."


async def configure(view: View, argument: str) -> None:
    """`/config`, `/config KEY`, `/config KEY VALUE`. Without a key, picks one until the person leaves."""
    key, _, text = argument.partition(" ")
    if key:
        await change_key(view, key, text.strip())
        return
    while True:
        effective = await read_settings(view)
        shown = [
            key
            for key, about in KEYS.items()
            if about.effect == "works" and about.scope not in OTHERS and "." not in key and not key.startswith("$")
        ]
        # First what is set, then what takes effect at once.
        shown.sort(key=lambda key: (key not in effective, not KEYS[key].updatable, key))
        rows = [
            Row(
                key,
                key,
                describe_value(effective[key]) if key in effective else describe_key(key),
                "●○"[key not in effective],
            )
            for key in shown
        ]
        picked = await view.choose(
            "Settings (● set, ○ not set); pick one to change it", rows, preview=lambda row: describe_key(row.key)
        )
        if picked is None:
            return
        await change_key(view, picked.key, "")


def describe_key(key: str) -> str:
    """What a setting does, without the links of the documentation."""
    return LINK.sub(r"\1", KEYS[key].note)


async def read_settings(view: View) -> Json:
    found = (await view.client.get_settings()).get("effective")
    return found if isinstance(found, dict) else {}


def describe_value(value: Any) -> str:
    """Objects may have secrets, so only their size is shown."""
    if isinstance(value, dict):
        return f"{{{len(value)} keys}}"
    return value if isinstance(value, str) else json.dumps(value)


async def change_key(view: View, key: str, text: str) -> None:
    """Asks for the value if none is given. Raises ValueError."""
    if key not in KEYS:
        near = nearest("", key)
        raise ValueError(f"unknown setting {key!r}{f' (did you mean {near}?)' if near else ''}")
    if not text:
        now = (await read_settings(view)).get(key)
        if isinstance(now, dict):
            raise ValueError(f"{key} has several parts: edit the settings file, or use `parley config set {key}.PART`")
        text = (
            await view.ask(f"{key} (JSON or text; `{UNSET}` removes it): ", "" if now is None else describe_value(now))
            or ""
        )
    if text:
        await write_setting(view, key, None if text == UNSET else parse_value(text))


def parse_value(text: str) -> Any:
    """JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


async def write_setting(view: View, key: str, value: Any) -> None:
    """Write a key to the user's settings; None removes it. Raises ValueError, ControlError."""
    if not is_local(view):
        raise ValueError(ELSEWHERE)
    if KEYS[key].updatable:
        await view.client.update_settings("userSettings", {key: value})
    else:
        change = ("unset", key) if value is None else ("set", key, json.dumps(value))
        await run_parley(view, "config", *change)
    if key == "theme" and value in THEMES:
        view.set_theme(value)
    elif key == "editorMode":
        view.interface.set_vi(value == "vim")
    what = "not set" if value is None else describe_value(value)
    if key == "statusLine":
        await view.client.apply_flag_settings({key: value})  # in this session too
        view.status_line.restart()
    is_now = key == "statusLine" or (KEYS[key].updatable and key != "outputStyle")
    view.say(f"{key} is {what}{'' if is_now else ' in sessions that start from now on'}.")


async def choose_theme(view: View, argument: str) -> None:
    """A theme of a session on another machine is not stored."""
    details = {"plain": "no colours", next(iter(THEMES)): "default"}
    name = argument or await view.pick_name("Theme", THEMES, view.styles.theme.name, details)
    if not name:
        return
    if name not in THEMES:
        raise ValueError(f"unknown theme {name!r} (choose from {', '.join(THEMES)})")
    view.set_theme(name)
    if is_local(view):
        await write_setting(view, "theme", name)


async def choose_output_style(view: View, argument: str) -> None:
    found = (await view.client.reload_output_styles()).get("available_output_styles")
    names = ["default", *(name for name in map(str, found or ()) if name != "default")]
    now = str((await read_settings(view)).get("outputStyle", "default"))
    name = argument or await view.pick_name("Output style", names, now)
    if not name:
        return
    if name not in names:
        raise ValueError(f"unknown output style {name!r} (choose from {', '.join(names)})")
    await write_setting(view, "outputStyle", name)


async def toggle_vim(view: View, argument: str) -> None:
    is_on = (await read_settings(view)).get("editorMode") == "vim"
    await write_setting(view, "editorMode", "normal" if is_on else "vim")


async def set_status_line(view: View, argument: str) -> None:
    """`/statusline COMMAND`, `/statusline off`. Without an argument, asks for the command."""
    setting = (await read_settings(view)).get("statusLine")
    now = str(setting.get("command", "")) if isinstance(setting, dict) else ""
    command = argument or await view.ask("Command of the status line (`off` removes it): ", now) or ""
    if command:
        value = None if command == OFF else {"type": "command", "command": command}
        await write_setting(view, "statusLine", value)


async def show_hooks(view: View, argument: str) -> None:
    found = await view.client.request(GetHooksListing())
    pairs = [
        (
            f"{hook['event']}{' ' + str(hook['matcher']) if hook.get('matcher') else ''}",
            f"{hook.get('displayText', '')} ({hook.get('sourceLabel', '')})",
        )
        for hook in found.get("hooks") or ()
    ]
    off = ["Hooks are switched off by `disableAllHooks`."] if (found.get("policy") or {}).get("allDisabled") else []
    errors = [f"{one.get('file')}: {one.get('message')}" for one in found.get("errors") or ()]
    if notes := [*off, *errors, *([] if pairs else [NO_HOOKS])]:
        view.say("\n".join(notes))
    view.print(list_pairs(pairs, view))


def find_folder(view: View, name: str) -> str:
    """The whole path of a folder of this machine. Raises ValueError."""
    if not is_local(view):
        return name
    path = os.path.realpath(os.path.join(view.cwd, os.path.expanduser(name)))
    if not os.path.isdir(path):
        raise ValueError(f"there is no folder {path}")
    return path


async def add_folder(view: View, argument: str) -> None:
    """Asks whether the folder is for this session only."""
    name = argument or await view.ask("Folder that the model may work in: ") or ""
    if not name:
        return
    path = find_folder(view, name)
    places = [Row(place, PLACES[place]) for place in ("session", "localSettings")]
    picked = await view.choose(f"Work in {reveal_line(path)} too …", places, search=False)
    if picked is None:
        return
    update = PermissionUpdate("addDirectories", directories=[path], destination=picked.key)  # type: ignore[arg-type]
    await view.client.update_permissions([update])
    view.session.note_folder(path)
    view.say(f"The model may work in {path}, {PLACES[picked.key]}.")
