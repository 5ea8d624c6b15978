"""Play the same scripted sessions with engines and compare what their model calls cost.

    python bench/bill.py parley=.venv/bin/parley
    unshare -rn sh -c 'ip link set lo up; python bench/bill.py original=/path/to/claude parley=.venv/bin/parley'
    python bench/bill.py parley=.venv/bin/parley --only hello,parallel --requests build/requests

An engine is a command as in `engines.py`. The model is a server in this process: it plays the answers of the session,
whatever is asked, and charges each request by the rules of `prompt_cache.py`. Its clock stands still and moves only
where a session waits. "ratio" divides by the engine labelled `original`, or the first one. The bill contains only
requests for the session: it measures the size of requests and their caching, not how well a model works with them.

A request that the API would refuse gets error 400, and is counted as a fault, unless it is only too long for the
window; the exit code is then 1. `--requests`
writes each request to a file. Linux only.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

from engine_process import Engine, EngineError, EngineProcess, environment, initialize_line, kind_of, user_line, wait
from engines import named_engine
from model_server import encode_event
from prompt_cache import Bill, InvalidRequest, PromptCache, as_blocks

MODEL = "claude-sonnet-4-5"
WINDOW_TOKENS = 200_000
"""A longer request is refused, and not charged."""
FLAGS = (
    *("--print", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json"),
    *("--permission-prompt-tool", "stdio", "--model", MODEL),
)
AGENT_MARK = re.compile(r"\[agent (\d+)\]")
"""In the prompt of a subagent; chooses the answers that it gets."""
SUMMARY = "Here is what happened so far: " + "the files were read and changed as the user asked. " * 40
LINE = "The quick brown fox jumps over the lazy dog, and the dog does not mind that at all.\n"
MINUTE = 60

Json = dict[str, Any]


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def call(name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "name": name, "input": arguments}


def thinking(words: str) -> Json:
    signature = base64.b64encode(words.encode()).decode()
    return {"type": "thinking", "thinking": words, "signature": signature}


class ScriptedModel:
    """Answers, charges and checks the requests of one session."""

    def __init__(self, requests: Path | None) -> None:
        self.now = 0.0
        self.bills: list[Bill] = []
        self.faults: list[str] = []
        self.answers: deque[list[Json]] = deque()
        self.agents: dict[str, deque[list[Json]]] = {}
        self._cache = PromptCache()
        self._requests = requests
        self._ids = count(1)
        self._lock = threading.Lock()

    def answer(self, body: Json) -> Json:
        """The message that answers a request. Raises InvalidRequest."""
        with self._lock:
            if self._requests is not None:
                path = self._requests / f"{len(self.bills):03}.json"
                path.write_text(json.dumps(body, indent=1))
            try:
                check_pairs(body["messages"])
                bill = self._cache.charge(body, self.now)
            except InvalidRequest as exc:
                self.faults.append(str(exc))
                raise
            if bill.input > WINDOW_TOKENS:
                raise InvalidRequest(f"prompt is too long: {bill.input} tokens > {WINDOW_TOKENS} maximum")
            content = [self._with_id(block) for block in self._choose(body)]
            output = sum(len(json.dumps(block)) // 4 for block in content)
            bill += Bill(output=output)
            self.bills.append(bill)
            is_call = any(block["type"] == "tool_use" for block in content)
            return {
                "id": f"msg_{next(self._ids):020}",
                "type": "message",
                "role": "assistant",
                "model": body["model"],
                "content": content,
                "stop_reason": "tool_use" if is_call else "end_turn",
                "stop_sequence": None,
                "usage": bill.usage,
            }

    def _with_id(self, block: Json) -> Json:
        return {**block, "id": f"toolu_{next(self._ids):020}"} if block["type"] == "tool_use" else block

    def _choose(self, body: Json) -> list[Json]:
        last = as_blocks(body["messages"][-1]["content"])[-1]
        if "summary" in str(last.get("text")) and "summar" in str(last.get("text"))[:2_000]:
            return [text(SUMMARY)]
        if not body.get("tools"):
            return [text("A short answer.")]
        first = json.dumps(body["messages"][0]["content"])
        mark = AGENT_MARK.search(first)
        queue = self.agents[mark[1]] if mark is not None else self.answers
        return queue.popleft() if queue else [text("Done.")]


def check_pairs(messages: list[Json]) -> None:
    """Each call has its result in the next message. Raises InvalidRequest."""
    expected: list[str] = []
    for message in messages:
        blocks = as_blocks(message["content"])
        results = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
        if sorted(results) != sorted(expected):
            raise InvalidRequest(f"results {results} for the calls {expected}")
        expected = [block["id"] for block in blocks if block.get("type") == "tool_use"]
    if expected:
        raise InvalidRequest(f"calls without results: {expected}")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.partition("?")[0] == "/v1/messages/count_tokens":
            self._send(json.dumps({"input_tokens": len(json.dumps(body)) // 4}).encode())
            return
        try:
            message = self.server.model.answer(body)
        except InvalidRequest as exc:
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": str(exc)}}
            self._send(json.dumps(error).encode(), status=400)
            return
        if body.get("stream"):
            self._send(b"".join(map(encode_event, list_events(message))), "text/event-stream")
        else:
            self._send(json.dumps(message).encode())

    def do_GET(self) -> None:
        self._send(b"{}", status=404)

    do_HEAD = do_GET

    def _send(self, data: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *given: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    model: ScriptedModel


def list_events(message: Json) -> Iterator[Json]:
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        match block["type"]:
            case "text":
                opening, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
            case "thinking":
                opening = {**block, "thinking": "", "signature": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": block["thinking"]},
                    {"type": "signature_delta", "signature": block["signature"]},
                ]
            case _:
                opening = {**block, "input": {}}
                deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        yield {"type": "content_block_start", "index": index, "content_block": opening}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": message["usage"]}
    yield {"type": "message_stop"}


class SessionProcess(EngineProcess):
    """An engine that may do whatever it asks for."""

    session_id = ""

    def read(self) -> None:
        data = os.read(self.stdout.fileno(), 1 << 20)
        self.is_closed = not data
        *lines, self.partial = (self.partial + data).split(b"\n")
        for line in lines:
            kind, message = kind_of(line)
            self.times.setdefault(kind, []).append(0.0)
            self.newest[kind] = message
            if kind == "control_request" and message["request"]["subtype"] == "can_use_tool":
                allowed = {"behavior": "allow", "updatedInput": message["request"]["input"]}
                response = {"subtype": "success", "request_id": message["request_id"], "response": allowed}
                self.send(json.dumps({"type": "control_response", "response": response}).encode() + b"\n")


class Run:
    """One session of one engine."""

    def __init__(self, engine: Engine, folder: Path, base_url: str, model: ScriptedModel) -> None:
        self._engine, self._folder, self._base_url, self._model = engine, folder, base_url, model
        self._process: SessionProcess | None = None
        self.cwd = folder / "cwd"
        for part in ("home", "cwd", "tmp"):
            (folder / part).mkdir()
        self.write("notes.txt", LINE * 20)

    @contextlib.contextmanager
    def session(
        self, *flags: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Iterator[SessionProcess]:
        """A process of the engine. It ends with the block."""
        self.cwd = cwd or self.cwd
        variables = {**environment(self._folder, self._base_url), **self._engine.env, **(env or {})}
        with (self._folder / "stderr").open("ab") as err:
            process = subprocess.Popen(
                [*self._engine.argv, *FLAGS, *flags], cwd=self.cwd, env=variables, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=err, bufsize=0, start_new_session=True,
            )  # fmt: skip
        live = self._process = SessionProcess(process, 0.0, self._folder)
        try:
            live.send(initialize_line())
            yield live
            live.close_input()
            wait([live], lambda live: live.exited_at > 0, "exit")
        finally:
            live.kill()

    def turn(self, prompt: str | list[Json], *answers: list[Json]) -> None:
        """One turn, in which the model gives these answers and then a short one."""
        live = self._process
        assert live is not None
        self._model.answers.extend(answers)
        if not any(block["type"] == "text" for block in (answers[-1] if answers else [])):
            self._model.answers.append([text("That is done. Tell me if you need anything else.")])
        expected = live.count("result") + 1
        if isinstance(prompt, str):
            live.send(user_line(prompt))
        else:
            message = {"type": "user", "message": {"role": "user", "content": prompt}, "parent_tool_use_id": None}
            live.send(json.dumps(message).encode() + b"\n")
        wait([live], lambda live: live.count("result") >= expected, f"result {expected}")
        live.session_id = str(live.result.get("session_id"))
        if live.result.get("is_error"):
            raise live.error(f"error result: {str(live.result.get('result'))[:200]}")

    def control(self, **request: Any) -> None:
        live = self._process
        assert live is not None
        expected = live.count("control_response/success") + 1
        line = {"type": "control_request", "request_id": f"bench-{expected}", "request": request}
        live.send(json.dumps(line).encode() + b"\n")
        wait([live], lambda live: live.count("control_response/success") >= expected, str(request["subtype"]))

    def agent(self, number: int, *answers: list[Json]) -> Json:
        """A call of a subagent that gets these answers."""
        self._model.agents[str(number)] = deque([*answers, [text("The subagent has found everything.")]])
        prompt = f"[agent {number}] Look through the files of this project and report what you find."
        return call("Agent", description="Look around", prompt=prompt, subagent_type="general-purpose")

    def advance(self, seconds: float) -> None:
        self._model.now += seconds

    def forget_bill(self) -> None:
        """What was charged so far is not part of the bill."""
        self._model.bills.clear()

    def write(self, name: str, content: str) -> str:
        """Write a file in the working directory. Returns its path."""
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return str(path)

    def files(self, number: int, lines: int) -> list[str]:
        return [self.write(f"part{at}.txt", f"{at}\n" + LINE * lines) for at in range(number)]


SESSIONS: dict[str, Callable[[Run], None]] = {}


def session(function: Callable[[Run], None]) -> Callable[[Run], None]:
    SESSIONS[function.__name__] = function
    return function


def read(path: str) -> Json:
    return call("Read", file_path=path)


@session
def hello(run: Run) -> None:
    with run.session():
        run.turn("Hello")


@session
def chat(run: Run) -> None:
    with run.session():
        for number in range(10):
            run.turn(f"Question {number}: what do you think of this? {LINE * 3}", [text(LINE * 6)])


@session
def long_chat(run: Run) -> None:
    with run.session():
        for number in range(40):
            run.turn(f"Question {number}", [text(LINE * 10)])


@session
def calls(run: Run) -> None:
    paths = run.files(25, 40)
    with run.session():
        run.turn("Read all files, one by one", *([read(path)] for path in paths))


@session
def large_calls(run: Run) -> None:
    paths = run.files(80, 92)
    with run.session():
        run.turn("Read all files, one by one", *([read(path)] for path in paths))


@session
def parallel(run: Run) -> None:
    paths = run.files(240, 20)
    with run.session():
        rounds = [[read(path) for path in paths[at : at + 20]] for at in range(0, 240, 20)]
        run.turn("Read all files, many at once", *rounds)


@session
def parallel_in_turns(run: Run) -> None:
    paths = run.files(60, 30)
    with run.session():
        for at in range(0, 60, 12):
            run.turn("Read the next files", [read(path) for path in paths[at : at + 12]])


@session
def subagent(run: Run) -> None:
    paths = run.files(6, 40)
    with run.session():
        run.turn("Let a subagent look", [run.agent(1, *([read(path)] for path in paths))])


@session
def two_subagents(run: Run) -> None:
    paths = run.files(8, 40)
    with run.session():
        one, two = (run.agent(number, *([read(path)] for path in paths[number::2])) for number in (1, 2))
        run.turn("Let two subagents look", [one], [two])


@session
def reviewers(run: Run) -> None:
    paths = run.files(18, 40)
    with run.session():
        agents = [run.agent(n, *([read(path)] for path in paths[n * 3 : n * 3 + 3])) for n in range(6)]
        run.turn("Let six subagents review the files", *([agent] for agent in agents))


@session
def edits(run: Run) -> None:
    paths = run.files(6, 60)
    with run.session():
        answers = []
        for path in paths:
            edit = call("Edit", file_path=path, old_string=f"{path[-5]}\n", new_string=f"changed {path[-5]}\n")
            answers += [[read(path)], [edit]]
        run.turn("Change the first line of each file", *answers)


@session
def coding(run: Run) -> None:
    """The everyday work: read a few files at once, change one, run the tests, say what was done."""
    paths = run.files(24, 50)
    with run.session():
        for at in range(0, 24, 3):
            change = call("Edit", file_path=paths[at], old_string=f"{at}\n", new_string=f"{at} is new\n")
            test = call("Bash", command=f"seq {at} {at + 60}", description="Run the tests")
            run.turn(f"Fix part {at}", [read(path) for path in paths[at : at + 3]], [change], [test], [text(LINE * 3)])


@session
def writes(run: Run) -> None:
    with run.session():
        for number in range(6):
            path = str(run.cwd / f"new{number}.txt")
            run.turn("Write a file", [call("Write", file_path=path, content=LINE * 60)])


@session
def commands(run: Run) -> None:
    with run.session():
        answers = [[call("Bash", command=f"seq {n} {n + 300}", description="Count")] for n in range(15)]
        run.turn("Run these commands", *answers)


@session
def long_outputs(run: Run) -> None:
    with run.session():
        answers = [[call("Bash", command=f"seq {n} {n + 20000}", description="Count")] for n in range(6)]
        run.turn("Run these commands", *answers)


@session
def long_answers(run: Run) -> None:
    with run.session():
        for number in range(12):
            run.turn(f"Write chapter {number}", [text(LINE * 120)])


@session
def searches(run: Run) -> None:
    run.files(30, 5)
    with run.session():
        answers = [[call("Bash", command=f"grep -rn 'dog.*mind' . | head -{n * 5}")] for n in range(1, 11)]
        run.turn("Search for the fox", *answers)


@session
def same_file(run: Run) -> None:
    path = run.write("long.txt", LINE * 150)
    with run.session():
        for _ in range(10):
            run.turn("Look at the file", [read(path)])


@session
def changed_file(run: Run) -> None:
    path = run.write("long.txt", "first 0\n" + LINE * 150)
    with run.session():
        answers = [[read(path)]]
        for n in range(5):
            edit = call("Edit", file_path=path, old_string=f"first {n}\n", new_string=f"first {n + 1}\n")
            answers += [[edit], [read(path)]]
        run.turn("Change the file, and look at it", *answers)


@session
def work_list(run: Run) -> None:
    with run.session(env={"CLAUDE_CODE_ENABLE_TASKS": "0"}):
        steps = ("pending", "in_progress", "completed")
        for step in steps:
            todos = [{"content": f"Step {n}", "status": step, "activeForm": f"Doing step {n}"} for n in range(8)]
            run.turn("Go on with the list", [call("TodoWrite", todos=todos)])


@session
def plan(run: Run) -> None:
    paths = run.files(4, 60)
    with run.session():
        run.turn("Hello")
        run.control(subtype="set_permission_mode", mode="plan")
        answers = [[read(path)] for path in paths]
        run.turn("Plan a change", *answers, [call("ExitPlanMode", plan="Change the files.\n" * 20)])
        run.turn("Carry on", [call("Write", file_path=str(run.cwd / "out.txt"), content=LINE)])


@session
def images(run: Run) -> None:
    with run.session():
        for number in range(4):
            source = {"type": "base64", "media_type": "image/png", "data": png(number)}
            run.turn([text("What is this?"), {"type": "image", "source": source}], [text(LINE * 2)])


def png(seed: int) -> str:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes([seed, 0, 0]) * 64) * 64
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0))
    data = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


@session
def thoughts(run: Run) -> None:
    paths = run.files(10, 40)
    with run.session("--max-thinking-tokens", "4000"):
        run.turn("Think, and read", *([thinking(LINE * 5), read(path)] for path in paths))


@session
def memory_files(run: Run) -> None:
    run.write("CLAUDE.md", "# Rules of this project\n" + LINE * 40)
    for number in range(5):
        head = f"---\nname: skill{number}\ndescription: {LINE.strip()}\n---\n"
        run.write(f".claude/skills/skill{number}/SKILL.md", head + LINE * 10)
        run.write(f".claude/agents/agent{number}.md", head.replace("skill", "agent") + LINE * 10)
    with run.session():
        for number in range(4):
            run.turn(f"Question {number}", [text(LINE * 3)])


@session
def second_session(run: Run) -> None:
    for _ in range(2):
        run.forget_bill()
        with run.session():
            run.turn("Hello")


@session
def other_folder(run: Run) -> None:
    for name in ("one", "two"):
        run.forget_bill()
        folder = run.cwd / name
        folder.mkdir()
        with run.session(cwd=folder):
            run.turn("Hello")


@session
def fleet(run: Run) -> None:
    """An application runs a short session in each of many folders."""
    base = run.cwd
    for number in range(20):
        folder = base / f"job{number}"
        folder.mkdir()
        with run.session("--append-system-prompt", "You are the agent of a shop. " + LINE * 20, cwd=folder):
            path = run.write("order.txt", f"{number}\n" + LINE * 10)
            run.turn("Check the order", [read(path)])


@session
def resumed(run: Run) -> None:
    paths = run.files(8, 60)
    with run.session() as live:
        run.turn("Read the files", *([read(path)] for path in paths))
    run.advance(2 * MINUTE)
    with run.session("--resume", live.session_id):
        run.turn("And now?", [text(LINE)])


@session
def resumed_late(run: Run) -> None:
    paths = run.files(8, 60)
    with run.session() as live:
        run.turn("Read the files", *([read(path)] for path in paths))
    run.advance(10 * MINUTE)
    with run.session("--resume", live.session_id):
        for number in range(3):
            run.turn(f"Question {number}", [text(LINE)])


@session
def slow_chat(run: Run) -> None:
    path = run.write("long.txt", LINE * 300)
    with run.session():
        run.turn("Read this", [read(path)])
        for number in range(12):
            run.advance(10 * MINUTE)
            run.turn(f"Question {number}", [text(LINE * 4)])


@session
def slow_chat_1h(run: Run) -> None:
    path = run.write("long.txt", LINE * 300)
    with run.session(env={"ENABLE_PROMPT_CACHING_1H": "1"}):
        run.turn("Read this", [read(path)])
        for number in range(6):
            run.advance(10 * MINUTE)
            run.turn(f"Question {number}", [text(LINE * 4)])


@session
def compaction(run: Run) -> None:
    paths = run.files(100, 98)
    with run.session():
        run.turn("Read all files, one by one", *([read(path)] for path in paths))


@session
def manual_compaction(run: Run) -> None:
    paths = run.files(20, 60)
    with run.session():
        run.turn("Read the files", *([read(path)] for path in paths))
        live = run._process
        assert live is not None
        expected = live.count("result") + 1
        live.send(user_line("/compact"))
        wait([live], lambda live: live.count("result") >= expected, "the compaction")
        run.turn("What is next?", [text(LINE)])


MCP_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("id") is None:
        continue
    method = asked["method"]
    if method == "initialize":
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "s", "version": "1"}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {f"field{n}": {"type": "string", "description": "A field of the " * 4}
                  for n in range(6)}}
        result = {"tools": [{"name": f"tool{n}", "description": "Does something useful. " * 6, "inputSchema": schema}
                            for n in range(40)]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "It is done."}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def mcp_chat(run: Run, **env: str) -> None:
    server = run.write("server.py", MCP_SERVER)
    config = {"mcpServers": {"shop": {"command": sys.executable, "args": [server]}}}
    with run.session("--mcp-config", json.dumps(config), env=env):
        for number in range(20):
            run.turn(f"Use tool {number}", [call(f"mcp__shop__tool{number}", field0="a")])


@session
def mcp_tools(run: Run) -> None:
    mcp_chat(run)


@session
def mcp_tools_searched(run: Run) -> None:
    mcp_chat(run, ENABLE_TOOL_SEARCH="true")


@dataclass
class Outcome:
    bill: Bill = field(default_factory=Bill)
    requests: int = 0
    faults: list[str] = field(default_factory=list)
    failure: str = ""


def play(engine: Engine, name: str, requests: Path | None) -> Outcome:
    if requests is not None:
        requests = requests / engine.label / name
        requests.mkdir(parents=True, exist_ok=True)
    server = Server(("127.0.0.1", 0), Handler)
    model = server.model = ScriptedModel(requests)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="parley-bill-", ignore_cleanup_errors=True) as folder:
        try:
            SESSIONS[name](Run(engine, Path(folder), f"http://127.0.0.1:{server.server_port}", model))
        except (EngineError, OSError) as exc:
            stderr = getattr(exc, "stderr", "").strip()
            outcome.failure = f"{exc} {stderr}".strip()
    server.shutdown()
    server.server_close()
    outcome.bill, outcome.requests, outcome.faults = sum(model.bills, Bill()), len(model.bills), model.faults
    return outcome


def row(name: str, outcomes: Mapping[str, Outcome], first: str) -> str:
    cells = [f"{name:20}"]
    for outcome in outcomes.values():
        bill = outcome.bill
        ratio = f"{bill.usd / outcomes[first].bill.usd:.2f}" if outcomes[first].bill.usd else "-"
        cells.append(
            f"{outcome.requests:5} {bill.read:10,} {bill.written + bill.written_1h:9,} {bill.fresh:8,}"
            f" {bill.usd:9.4f} {'failed' if outcome.failure else ratio:>6}"
        )
    return " |".join(cells)


def show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="+", metavar="[LABEL=]COMMAND")
    parser.add_argument("--only", help="names of sessions, separated by commas: " + ", ".join(SESSIONS))
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--requests", type=Path, help="write the requests into this folder")
    given = parser.parse_args()
    try:
        engines = [named_engine(words) for words in given.engines]
    except ValueError as exc:
        parser.error(str(exc))
    names = given.only.split(",") if given.only else list(SESSIONS)
    if unknown := [name for name in names if name not in SESSIONS]:
        parser.error(f"unknown sessions: {', '.join(unknown)}")
    labels = [engine.label for engine in engines]
    first = "original" if "original" in labels else labels[0]
    heading = f"{'requests':>5} {'read':>7} {'written':>9} {'fresh':>8} {'USD':>9} {'ratio':>6}"
    show(" " * 20 + "".join(f"  {label:52}" for label in labels))
    show(" " * 20 + f" |{heading}" * len(labels))
    totals = {label: Outcome() for label in labels}
    figures: list[Json] = []
    is_faulty = False
    for name in names:
        outcomes = {engine.label: play(engine, name, given.requests) for engine in engines}
        show(row(name, outcomes, first))
        for label, outcome in outcomes.items():
            for problem in (*outcome.faults, *([outcome.failure] if outcome.failure else ())):
                show(f"  {label}: {problem}")
                is_faulty = True
            bill = outcome.bill
            figures.append(
                {"session": name, "engine": label, "requests": outcome.requests, **bill.__dict__, "usd": bill.usd}
            )
            totals[label].bill += bill
            totals[label].requests += outcome.requests
    show(row("total", totals, first))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    return int(is_faulty)


if __name__ == "__main__":
    sys.exit(main())
