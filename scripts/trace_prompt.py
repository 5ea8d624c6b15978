"""Trace one prompt through the engine: a Bash call, a permission request, a result.

    python scripts/trace_prompt.py                      counts: files, functions, calls, awaited frames
    python scripts/trace_prompt.py --files              with the files, in the order in which they are entered
    python scripts/trace_prompt.py --source OTHER/src   the same for another working tree

The engine runs in a process of its own and is driven through its pipes. Recording starts when it reads the prompt and
stops when it has sent the result. Module and class bodies, and what they call, do not count: they run once, when a
module is imported. The first prompt of a process also opens what start-up leaves for later (the permission policy,
the model, the transcript); the second prompt shows the path alone.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = f"{os.sep}parley{os.sep}"
PROMPT = 'call Bash {"command": "touch made", "description": "Make a file"}'
ENGINE = ("--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
OPTIONS = ("--model", "offline", "--permission-prompt-tool", "stdio")

Step = tuple[str, str]
"""A file, relative to the package, and the qualified name of a function in it."""


class Tracer:
    """Records the functions of the package that are called, in their order."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        """Every call."""
        self.question: list[Step] = []
        """The coroutines that are awaited when the client is asked for permission, outermost first."""
        self._imports = threading.local()
        self._is_on = False
        self._prompts_left = 0

    def start(self, *, at_prompt: int = 0) -> None:
        """Record from now on, or from the moment at which the engine reads its n-th prompt."""
        self._is_on, self._prompts_left = at_prompt == 0, at_prompt
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        self._is_on = False
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if code.co_name == "<module>":
            self._imports.depth = max(0, self._import_depth() + {"call": 1, "return": -1}.get(event, 0))
            return
        if event == "call" and PACKAGE in code.co_filename:
            self._enter(frame, code)
        elif event == "return" and self._is_on and is_result_sent(frame, code):
            self._is_on = False

    def _import_depth(self) -> int:
        """How many modules are being imported in this thread."""
        depth: int = getattr(self._imports, "depth", 0)
        return depth

    def _enter(self, frame: FrameType, code: CodeType) -> None:
        if not self._is_on and self._prompts_left and is_prompt_read(frame, code):
            self._prompts_left -= 1
            self._is_on = self._prompts_left == 0
        is_function = code.co_flags & inspect.CO_OPTIMIZED
        if not self._is_on or not is_function or self._import_depth() > 0:
            return
        self.steps.append(step(code))
        if not self.question and is_permission_request(frame, code):
            self.question = awaited(frame)

    # What the report shows.

    def files(self) -> list[str]:
        """The files that were entered, in the order of their first function."""
        return list(dict.fromkeys(file for file, _ in self.steps))

    def report(self) -> dict[str, Any]:
        names = [file for file, _ in self.steps]
        return {
            "files": self.files(),
            "functions": len(set(self.steps)),
            "calls": len(self.steps),
            "switches": sum(one != other for one, other in itertools.pairwise(names)),
            "question": [f"{file}: {name}" for file, name in self.question],
        }


def step(code: CodeType) -> Step:
    return code.co_filename.rpartition(PACKAGE)[2], code.co_qualname


def is_prompt_read(frame: FrameType, code: CodeType) -> bool:
    chunk = frame.f_locals.get("chunk") if code.co_qualname == "Pump.receive" else None
    return isinstance(chunk, bytes) and b'"user"' in chunk


def is_result_sent(frame: FrameType, code: CodeType) -> bool:
    sent = frame.f_locals.get("messages", ()) if code.co_qualname == "Pump.send" else ()
    return any(type(message).__name__ == "Result" for message in sent)


def is_permission_request(frame: FrameType, code: CodeType) -> bool:
    return code.co_qualname == "Pump.request" and type(frame.f_locals.get("request")).__name__ == "CanUseTool"


def awaited(frame: FrameType | None) -> list[Step]:
    """The coroutines of the package that wait for this one, and it, outermost first."""
    found = []
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_COROUTINE and PACKAGE in frame.f_code.co_filename:
            found.append(step(frame.f_code))
        frame = frame.f_back
    return found[::-1]


def run_engine(report: Path, number: int) -> None:
    """The child process: the engine, traced from its n-th prompt on."""
    from parley.cli.main import main as start  # `run` would end the process

    tracer = Tracer()
    tracer.start(at_prompt=number)
    try:
        start([*ENGINE, *OPTIONS])
    finally:
        tracer.stop()
        report.write_text(json.dumps(tracer.report()))


def trace(source: Path, number: int) -> dict[str, Any]:
    """Send prompts to the engine of a working tree, as its client, and trace the n-th."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "PYTHONPATH": str(source), "IS_SANDBOX": "1"}
        with subprocess.Popen(
            [sys.executable, __file__, "--engine", str(report), str(number)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as engine:
            assert engine.stdin is not None
            assert engine.stdout is not None
            read = engine.stdout.readline

            def send(message: dict[str, Any]) -> None:
                assert engine.stdin is not None
                engine.stdin.write(json.dumps(message) + "\n")
                engine.stdin.flush()

            converse(send, read, number)
            engine.stdin.close()
            read()
        found: dict[str, Any] = json.loads(report.read_text())
        return found


def converse(send: Callable[[dict[str, Any]], None], read: Callable[[], str], prompts: int) -> None:
    """Shake hands, send the prompts one after the other, allow their calls, and wait for the results."""
    send({"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}})
    while line := read():
        message = json.loads(line)
        if message["type"] == "control_request":
            answer = {"behavior": "allow", "updatedInput": message["request"]["input"]}
            response = {"subtype": "success", "request_id": message["request_id"], "response": answer}
            send({"type": "control_response", "response": response})
        elif message["type"] in ("control_response", "result"):
            if prompts == 0:
                return
            prompts -= 1
            send({"type": "user", "message": {"role": "user", "content": PROMPT}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="list the files, in the order in which they are entered")
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the source folder to trace")
    parser.add_argument("--engine", nargs=2, metavar=("REPORT", "NUMBER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine is not None:
        run_engine(Path(arguments.engine[0]), int(arguments.engine[1]))
        return
    for number, title in ((1, "first prompt"), (2, "second prompt")):
        found = trace(arguments.source.resolve(), number)
        print(
            f"{title}: {len(found['files'])} files, {found['functions']} functions, {found['calls']} calls, "
            f"{found['switches']} switches between files, {len(found['question'])} awaited at the permission request"
        )
    for place in found["question"]:
        print(f"    {place}")
    if arguments.files:
        print(*found["files"], sep="\n")


if __name__ == "__main__":
    main()
