"""Hostile text in everything that the terminal shows: no control byte of it reaches the screen."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from parley import fork_session, rename_session
from tests.helpers.hostile_text import SEQUENCES, HostileCase, count_shown, find_leaks, make_cases
from tests.helpers.sdk import run as run_with
from tests.helpers.terminal import TerminalHarness, make_environment

PLACES = (
    *("answer", "code", "link", "tool name", "input", "description", "file name", "output", "todo"),
    *("choice", "paste", "session title", "server tool", "thinking", "coloured code", "edited file", "hook"),
)
SERVER = """
import json, sys
tools = json.load(open(sys.argv[1]))
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answers = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
               "serverInfo": {"name": "\\x1b[31mserver", "version": "\\x1b]0;x\\x07"}}, "tools/list": {"tools": tools}}
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": answers.get(request["method"], {})}
    print(json.dumps(answer), flush=True)
"""


def list_cases() -> dict[str, list[HostileCase]]:
    return {place: make_cases(place, 100 + index * len(SEQUENCES)) for index, place in enumerate(PLACES)}


def toml(value: object) -> str:
    """A value of a script. Its strings are written as JSON writes them, which TOML reads alike."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    return '"' + "".join(f"\\U{ord(c):08x}" if not (c.isascii() and c.isalnum()) else c for c in value) + '"'


def turn(text: str = "", *calls: tuple[str, Mapping[str, object]]) -> str:
    tools = [{"name": name, "input": given} for name, given in calls]
    return f"[[turn]]\ntext = {toml(text)}\ntools = {toml(tools)}\n"


def write_script(folder: Path, cases: dict[str, list[HostileCase]]) -> None:
    texts = {place: [case.text for case in found] for place, found in cases.items()}
    (folder / "output.bin").write_bytes("\n".join(texts["output"]).encode() + b"\n\xff\x9b\xed\xa0\x80")
    (folder / "tools.json").write_text(
        json.dumps(
            [{"name": text, "description": text, "inputSchema": {"type": "object"}} for text in texts["server tool"]]
        )
    )
    (folder / "server.py").write_text(SERVER)
    answer = "\n\n".join([*texts["answer"], *(f"[{text}](http://x.test/{text})" for text in texts["link"])])
    code = "```\n" + "\n".join(texts["code"]) + "\n```"
    asked = [
        ("Bash", {"command": f"true {shlex.quote(command)}", "description": description})
        for command, description in zip(join(texts["input"]), join(texts["description"]), strict=True)
    ]
    labels = texts["choice"]
    questions = [
        {
            "question": f"Which {labels[at]}?",
            "header": "H",
            "options": [{"label": label, "description": label} for label in labels[at + 1 : at + 4]],
            "multiSelect": False,
        }
        for at in range(0, len(labels) - 3, 4)
    ]
    todos = [{"content": text, "status": "pending", "activeForm": text} for text in texts["todo"]]
    coloured = "\n\n".join(f"```python\nx = '{text}'\n```" for text in texts["coloured code"])
    edited = "\n".join(texts["edited file"])
    (folder / "edited.py").write_text(f"{edited}\nlast\n", newline="")
    written = {"file_path": str(folder / "edited.py"), "content": "last\n"}
    turns = [
        turn(f"{answer}\n\n{code}\n\nanswer done"),
        turn(f"{coloured}\n\ncolours done") + f"thinking = {toml(chr(10).join(texts['thinking']))}\n",
        turn("", *((text, {"x": text}) for text in texts["tool name"])),
        turn("names done"),
        turn("", *(("Read", {"file_path": f"./{text}"}) for text in texts["file name"])),
        turn("files done"),
        turn("", ("TodoWrite", {"todos": todos}), ("Bash", {"command": "cat output.bin"})),
        turn("output done"),
        turn("", *asked),
        turn("asked done"),
        turn("", *(("AskUserQuestion", {"questions": questions[at : at + 4]}) for at in (0, 4))),
        turn("choices done"),
        turn("paste done"),
        turn("", ("Read", {"file_path": str(folder / "edited.py")}), ("Write", written)),
        turn("edit done"),
    ]
    (folder / "script.toml").write_text("\n".join(turns))


def join(texts: list[str]) -> list[str]:
    """Four texts in one."""
    return [" ".join(texts[at : at + 4]) for at in range(0, len(texts), 4)]


def make_sessions(folder: Path, cases: list[HostileCase]) -> None:
    """Sessions with hostile titles."""
    environment = make_environment(folder)

    async def talk() -> str:
        from parley import Client, Options

        options = Options(cwd=folder, model="offline", engine="local", env=environment)
        async with Client(options) as client:
            return (await client.run("say hi")).session_id or ""

    source = run_with("asyncio", talk)
    for case in cases:
        new = fork_session(source, str(folder), env=environment)
        rename_session(new.session_id, case.text, str(folder), env=environment)


def test_no_control_byte_of_a_hostile_text_reaches_the_screen(tmp_path: Path) -> None:
    cases = list_cases()
    assert sum(map(len, cases.values())) >= 300
    write_script(tmp_path, cases)
    make_sessions(tmp_path, cases["session title"])
    servers = {"mcpServers": {"hostile": {"command": sys.executable, "args": ["server.py", "tools.json"]}}}
    (tmp_path / "servers.json").write_text(json.dumps(servers))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(f"ref: refs/heads/{cases['hook'][2].text}")
    hooks = [{"hooks": [{"type": "command", "command": f"true {case.text}"} for case in cases["hook"]]}]
    settings = {"hooks": {"SubagentStop": hooks}, "preferredNotifChannel": "notifications_disabled"}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    files = ("--mcp-config", "servers.json", "--settings", "settings.json")
    argv = ("--model", "scripted:script.toml", *files, "--allowedTools", "Bash(cat *)")
    with TerminalHarness(tmp_path, *argv, columns=300, rows=60) as terminal:
        show_turns(terminal, cases)
        show_commands(terminal, cases)
        terminal.type("/exit\r")
        terminal.wait()

    everything = [case for found in cases.values() for case in found]
    assert find_leaks(terminal.written, everything) == []
    shown = {place: count_shown(terminal.written, found) for place, found in cases.items()}
    assert {place: count for place, count in shown.items() if count < len(SEQUENCES) - 4} == {}


def show_turns(terminal: TerminalHarness, cases: dict[str, list[HostileCase]]) -> None:
    """The turns of the script. Every question is answered."""
    terminal.wait_for("Type a prompt")
    terminal.type("\x1bt")
    terminal.wait_for("thinking is shown from now on")
    for prompt in ("answer", "colours", "names", "files", "output"):
        terminal.type(f"{prompt}\r")
        terminal.wait_for(f"{prompt} done")
    terminal.type("\x0f")  # Ctrl-O shows the whole output
    terminal.wait_for(cases["output"][-1].mark)
    terminal.type("asked\r")
    for case in cases["description"][::4]:
        terminal.wait_for(f"description: a{case.number}k")
        wait_for_choice(terminal, "Yes, once")
        terminal.type("y")
    terminal.wait_for("asked done")
    terminal.type("choices\r")
    for case in cases["choice"][::4]:
        wait_for_choice(terminal, f"a{case.number + 1}k")
        terminal.type("\r")
    terminal.wait_for("choices done")
    for last, text in zip(cases["paste"][3::4], join([case.text for case in cases["paste"]]), strict=True):
        terminal.type(f"\x1b[200~{text}\x1b[201~")
        terminal.wait_for(last.mark)  # the input shows it before it is sent
    terminal.type("\r")
    terminal.wait_for("paste done")
    terminal.type("edit\r")
    terminal.wait_for(cases["edited file"][-1].mark)
    wait_for_choice(terminal, "Yes, once")
    if "View everything" in terminal.emulator.text.rpartition("why:")[2]:
        terminal.type("v")
        wait_for_choice(terminal, "Yes, once")
    terminal.type("y")
    terminal.wait_for("edit done")


def show_commands(terminal: TerminalHarness, cases: dict[str, list[HostileCase]]) -> None:
    """Pages with the names of others: todos, hooks, sessions, servers."""
    terminal.type("\x14")  # Ctrl-T
    terminal.wait_for("Todos and background tasks")
    for command in ("todos", "rewind", "diff"):
        terminal.type(f"/{command}\r")
        terminal.wait_for(f"> /{command}")
        if command == "rewind":
            leave_picker(terminal)
    terminal.type("\x14/hooks\r")
    terminal.wait_for(cases["hook"][-1].mark)
    terminal.type("/resume\r")
    terminal.wait_for("Continue a session")
    terminal.type("\x1b[6~\x1b[6~\x1b[6~")
    terminal.wait_for(cases["session title"][0].mark)
    leave_picker(terminal)
    terminal.type("/mcp\r")
    terminal.wait_for("MCP servers")
    terminal.type("\r")
    terminal.wait_for("show its tools")
    terminal.type("t")
    terminal.wait_for(cases["server tool"][-2].mark)
    leave_picker(terminal)


def wait_for_choice(terminal: TerminalHarness, label: str) -> None:
    """Wait until a row with this label is selected in a picker."""
    terminal.wait_until(lambda: re.search(f"❯ .*{label}", terminal.emulator.text) is not None, label)


def leave_picker(terminal: TerminalHarness) -> None:
    terminal.wait_for("enter picks")
    terminal.type("\x1b")
    terminal.wait_until(lambda: "enter picks" not in terminal.emulator.text)
