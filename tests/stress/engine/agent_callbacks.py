"""Callbacks about the calls of subagents: none is lost, none comes twice, each names its agent.

    python -m tests.stress.engine.agent_callbacks --agents 20 --calls 4 --seed 1

Raw lines to the real executable. Agents run in the foreground, in the background, or inside other agents, and make
calls that a callback is asked about: a hook (PreToolUse), a permission question, or a tool of the host's own server.
Questions wait until several are open, and are answered in random order.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.helpers.environment import base_environment
from tests.stress.engine.callbacks import ALLOWED, STREAM, Host, Json

KINDS = ("hook", "permission", "mcp")
PLACES = ("foreground", "background", "nested")
INSIDE = "mcp__zoo__feed"
ALLOWED_BY_HOST: Json = {"behavior": "allow"}


def script(kind: str, place: str, agents: int, calls: int, file: Path) -> str:
    def hand_on(n: int, word: str) -> str:
        behind = ", run_in_background = true" if place == "background" else ""
        return (
            f'{{ name = "Agent", id = "toolu_{word}_{n}", '
            f'input = {{ description = "d{n}", prompt = "{word} {n}."{behind} }} }}'
        )

    def call(n: int, m: int) -> str:
        id = f"toolu_call_{n}_{m}"
        name, input = (INSIDE, f'id = "{id}"') if kind == "mcp" else ("Read", f'file_path = "{file}"')
        return f'{{ name = "{name}", id = "{id}", input = {{ {input} }} }}'

    first = ", ".join(hand_on(n, "OUTER" if place == "nested" else "WORK") for n in range(agents))
    turns = ['at_end = "repeat"\n', f'[[turn]]\nwhen = "begin"\ntools = [{first}]\n']
    for n in range(agents):
        if place == "nested":
            turns.append(f'[[turn]]\nwhen = "OUTER {n}."\ntools = [{hand_on(n, "WORK")}]\n')
        turns.append(f'[[turn]]\nwhen = "WORK {n}."\ntools = [{", ".join(call(n, m) for m in range(calls))}]\n')
    return "".join([*turns, '[[turn]]\ntext = "Report."\n'])


class Play:
    """What the host sees of one run."""

    def __init__(self, host: Host, dice: Random, at_once: int) -> None:
        self._host = host
        self._dice = dice
        self._at_once = at_once
        self._open: list[tuple[Json, Json]] = []
        self.asked: Counter[str] = Counter()
        self.ran: Counter[str] = Counter()
        self.results = 0
        self.agents: dict[str, set[str | None]] = {}
        """Who made each call, by whoever says so."""
        self.places: dict[str, str | None] = {}

    def hear(self, line: Json, left: int) -> None:
        match line["type"]:
            case "control_request":
                self._question(line, left)
            case "user":
                for block in line["message"]["content"]:
                    if isinstance(block, dict) and str(block.get("tool_use_id")).startswith("toolu_call"):
                        self.ran[block["tool_use_id"]] += not block.get("is_error", False)
                        self._said(block["tool_use_id"], line.get("agent_id"))
                        self.places[block["tool_use_id"]] = line["parent_tool_use_id"]
            case "result":
                self.results += 1

    def _said(self, id: str, agent_id: str | None) -> None:
        self.agents.setdefault(id, set()).add(agent_id)

    def _question(self, line: Json, left: int) -> None:
        request, answer = line["request"], ALLOWED_BY_HOST
        match request["subtype"]:
            case "mcp_message":
                message = request["message"]
                answer = {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": served(message)}}
                if message.get("method") != "tools/call":
                    self._host.answer(line, answer)
                    return
                self.asked[message["params"]["arguments"]["id"]] += 1
            case "hook_callback":
                self.asked[request["tool_use_id"]] += 1
                self._said(request["tool_use_id"], request["input"].get("agent_id"))
                answer = ALLOWED
            case _:
                self.asked[request["tool_use_id"]] += 1
                self._said(request["tool_use_id"], request.get("agent_id"))
        self._open.append((line, answer))
        if len(self._open) >= min(self._at_once, left):
            self._dice.shuffle(self._open)
            for question, told in self._open:
                self._host.answer(question, told)
            self._open = []


def served(message: Json) -> Json:
    """The host's own MCP server."""
    match message.get("method"):
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "zoo", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            fields = {"type": "object", "properties": {"id": {"type": "string"}}}
            notes = {"readOnlyHint": True}
            return {"tools": [{"name": "feed", "description": "Feeds", "inputSchema": fields, "annotations": notes}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": "fed"}]}
    return {}


def scenario(folder: Path, *, kind: str, place: str, agents: int, calls: int, seed: int) -> list[str]:
    """What is wrong with how the calls went; nothing, if all is well."""
    inside, file = folder / "project", folder / "elsewhere.txt"
    inside.mkdir()
    file.write_text("text")
    (folder / "script.toml").write_text(script(kind, place, agents, calls, file))
    argv = [str(Path(sys.executable).with_name("parley")), *STREAM, "--permission-prompt-tool", "stdio"]
    argv += ["--model", f"scripted:{folder / 'script.toml'}", "--allowedTools", INSIDE]
    environment = {
        **base_environment(),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "CLAUDE_CODE_MAX_TOOL_USE_CONCURRENCY": str(max(agents, calls)),
    }
    ids = [f"toolu_call_{n}_{m}" for n in range(agents) for m in range(calls)]
    results = agents + 1 if place == "background" else 1
    with subprocess.Popen(argv, cwd=inside, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        host = Host(engine)
        play = Play(host, Random(seed), at_once=agents)
        hooks = {"PreToolUse": [{"matcher": "Read", "hookCallbackIds": ["h"]}]} if kind == "hook" else None
        servers = {"sdkMcpServers": ["zoo"]} if kind == "mcp" else {}
        request = {"subtype": "initialize", "hooks": hooks, **servers}
        host.say({"type": "control_request", "request_id": "i", "request": request})
        host.say({"type": "user", "message": {"role": "user", "content": "begin"}})
        hear_out(host.lines(), play, len(ids), results)
        assert engine.stdin is not None
        engine.stdin.close()
        engine.wait()
    return problems(play, ids)


def hear_out(lines: Iterator[Json], play: Play, calls: int, results: int) -> None:
    for line in lines:
        play.hear(line, calls - sum(play.ran.values()))
        if play.results == results:
            return


def problems(play: Play, ids: list[str]) -> list[str]:
    found = [f"asked {play.asked[id]} times about {id}" for id in ids if play.asked[id] != 1]
    found += [f"{id} ran {play.ran[id]} times" for id in ids if play.ran[id] != 1]
    for id in ids:
        if len(play.agents.get(id, ())) != 1 or None in play.agents[id]:
            found.append(f"{id} was made by {play.agents.get(id)}")
        if play.places.get(id) != "toolu_WORK_" + id.split("_")[2]:
            found.append(f"{id} belongs to {play.places.get(id)}")
    owners = {(id.split("_")[2], *sorted(map(str, play.agents.get(id, ())))) for id in ids}
    if len(owners) != len({id.split("_")[2] for id in ids}):
        found.append("two agents are taken for one")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong = 0
    for kind in KINDS:
        for place in PLACES:
            with tempfile.TemporaryDirectory() as folder:
                found = scenario(
                    Path(folder), kind=kind, place=place, agents=given.agents, calls=given.calls, seed=given.seed
                )
            calls = given.agents * given.calls
            sys.stdout.write(f"{kind:10} {place:10} {given.agents} agents, {calls} calls: {len(found)} problems\n")
            sys.stdout.writelines(f"  {problem}\n" for problem in found[:10])
            wrong += len(found)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
