"""A deliberately broken engine: a real engine behind a proxy that spoils its conversation in one way.

    python broken_engine.py DEFECT ENGINE [ARGS...]
    python broken_engine.py --list

`none` passes everything on unchanged. Standard library only.

See also: `defects.py` has the defects, `found_defects.py` runs `parley conform` on all of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))  # it runs as a program, in any folder

from tests.stress.conformance.defects import DEFECTS, Defect, Proxy


def run(defect: Defect, argv: list[str]) -> int:
    proxy = Proxy(argv)
    if defect.name == "version-text" and argv[-1] in ("-v", "--version"):
        sys.stdout.write("Engine version two\n")
        return 0
    started = subprocess.Popen(
        defect.argv(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **defect.env()}
    )
    proxy.process = started
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, frame: started.send_signal(received))
    reader = threading.Thread(target=carry_out, args=(defect, proxy))
    reader.start()
    threading.Thread(target=carry_in, args=(defect, proxy), daemon=True).start()
    reader.join()
    code = started.wait()
    code = 128 - code if code < 0 else code
    defect.at_end(proxy)
    return defect.code(code, proxy)


def carry_out(defect: Defect, proxy: Proxy) -> None:
    assert proxy.process is not None
    assert proxy.process.stdout is not None
    for data in proxy.process.stdout:
        try:
            line = json.loads(data)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            proxy.emit(data)
            continue
        if line.get("type") == "control_request" and isinstance(line.get("request"), dict):
            proxy.asked[str(line.get("request_id"))] = str(line["request"].get("subtype"))
        changed = defect.out(line, proxy)
        unchanged = len(changed) == 1 and isinstance(changed[0], dict) and changed[0] == json.loads(data)
        for each in [data] if unchanged else changed:
            proxy.emit(each)


def carry_in(defect: Defect, proxy: Proxy) -> None:
    assert proxy.process is not None
    assert proxy.process.stdin is not None
    target = proxy.process.stdin
    try:
        for raw in sys.stdin.buffer:
            data = defect.raw_in(raw, proxy)
            try:
                line = json.loads(data)
            except ValueError:
                line = None
            lines = defect.into(line, proxy) if isinstance(line, dict) else [data]
            for each in lines:
                same = isinstance(each, dict) and each == json.loads(data)
                target.write(data if same or isinstance(each, bytes) else json.dumps(each).encode() + b"\n")
            target.flush()
        defect.raw_in(b"", proxy)
        target.close()
    except (BrokenPipeError, ValueError):
        return


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == ["--list"]:
        for defect in DEFECTS.values():
            sys.stdout.write(f"{defect.name:28} {defect.what}\n")
        return 0
    name, *argv = words
    return run(Defect("none", "") if name == "none" else DEFECTS[name], argv)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
