"""One session, each turn in another dialect: every turn sees the whole conversation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]
STREAMS = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")


def asked(text: str) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}}


def run_request(text: str) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": "run", "params": {"prompt": text}}


def last_words(stdout: str) -> str:
    """The result text of the only turn."""
    frames = [json.loads(line) for line in stdout.splitlines()]
    results = [frame.get("result") if "jsonrpc" in frame else frame for frame in frames]
    [ended] = [frame for frame in results if isinstance(frame, dict) and frame.get("type") == "result"]
    return str(ended["result"])


def test_a_session_goes_round_through_every_dialect(tmp_path: Path, run: Any) -> None:
    recording = tmp_path / "tape.jsonl"
    store = ("--db", "agent.db", "--model", "offline")
    ways = {
        "One.": ((*STREAMS, *store), asked("say One.")),
        "Two.": (("--dialect", "spec001", *STREAMS, *store, "--continue"), asked("say Two.")),
        "Three.": (("--stdio", *store), asked("say Three.")),
        "Four.": (("--dialect", "jsonrpc", *store), run_request("say Four.")),
        "Five.": ((*STREAMS, *store, "--continue", "--record", str(recording)), asked("say Five.")),
    }
    for words, (argv, line) in ways.items():
        done = run(*argv, stdin=json.dumps(line) + "\n")
        assert last_words(done.stdout) == words, done.stderr

    sent = recording.read_text()
    assert [sent.count(f"say {words}") > 0 for words in ways] == [True] * 5
