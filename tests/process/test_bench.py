"""The benchmark of the engine runs, and the page about performance shows what it measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gen_performance
from gen_performance import Figures

from tests.helpers import paths

PROGRAM = str(paths.ROOT / "bench" / "engines.py")
PARLEY = str(Path(sys.executable).with_name("parley"))
MEASURES = {"first", "https", "one-shot", "warm", "read", "stream", "long", "line", "processes"}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, timeout=300, check=False)


def test_the_quick_form_measures_everything(tmp_path: Path) -> None:
    recorded = tmp_path / "figures.json"
    done = run("--quick", "--runs", "1", f"mine=PARLEY_FSYNC=off {PARLEY}", "--json", str(recorded))

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    rows = json.loads(recorded.read_text())["rows"]
    assert {row["measure"] for row in rows} == MEASURES
    assert all(min(row["values"]) > 0 for row in rows)
    assert all(row["quantity"] in done.stdout for row in rows)
    figures = Figures(json.loads(recorded.read_text()))
    shown = [row for row in gen_performance.ROWS.values() if row[0] not in ("long", "processes")]
    assert [row for row in shown if figures.quartiles(*row, "mine") is None] == []


def test_every_row_of_the_page_was_recorded_with_both_engines() -> None:
    figures = gen_performance.load()

    missing = [
        (engine, row)
        for engine in ("original", "parley")
        for row in gen_performance.ROWS.values()
        if figures.quartiles(*row, engine) is None
    ]
    assert missing == []


def test_an_engine_that_fails_is_named_and_the_others_are_measured() -> None:
    done = run("--quick", "--runs", "1", "--only", "one-shot", "broken=sh -c 'echo no >&2; exit 3'", f"mine={PARLEY}")

    assert (done.returncode, done.stderr) == (1, "")
    assert "broken: failed: exited before result 1, exit code or signal 3" in done.stdout
    assert "stderr: no" in done.stdout
    assert "spawn to exit, ms" in done.stdout


def test_a_missing_command_is_an_error() -> None:
    done = run("mine=NAME=value nowhere")

    assert done.returncode == 2
    assert "no executable 'nowhere' in 'mine=NAME=value nowhere'" in done.stderr


def test_the_bill_of_every_session_is_charged_without_a_refused_request(tmp_path: Path) -> None:
    program, recorded = str(paths.ROOT / "bench" / "bill.py"), tmp_path / "bill.json"
    words = ["--only", "hello,parallel,other_folder,same_file,plan,subagent", "--json", str(recorded)]
    done = subprocess.run(
        [sys.executable, program, f"mine={PARLEY}", *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    bills = {row["session"]: row for row in json.loads(recorded.read_text())}
    assert bills["parallel"]["read"] > 4 * bills["parallel"]["written"]
    assert bills["other_folder"]["read"] > 10 * bills["other_folder"]["written"]
    assert 0 < bills["hello"]["written"] < 2_600
