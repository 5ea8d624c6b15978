"""`parley "prompt"` in a real terminal multiplexer."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.helpers.forked import PARLEY
from tests.helpers.terminal import TmuxHarness

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed (apt install tmux)")

PARAGRAPHS = [f"Paragraph {number} has **some** words, 你好 and 👍, and ends here." for number in range(30)]
SHOWN = [text.replace("**", "") for text in PARAGRAPHS]


def write_script(folder: Path, *turns: str) -> tuple[str, str]:
    (folder / "script.toml").write_text("".join(f"[[turn]]\n{turn}\n" for turn in turns))
    return "--model", "scripted:script.toml"


def bash(command: str) -> str:
    return f'tools = [{{ name = "Bash", input = {{ command = "{command}" }} }}]'


def flat(text: str) -> str:
    return " ".join(text.split())


def test_an_answer_streams_around_questions_that_are_answered_in_turn(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        f"text = 'First **answer**.'\nchunk_chars = 3\nevent_delay_ms = 20\n{bash('mkdir one')}",
        bash("mkdir two"),
        bash("mkdir two"),
        bash("mkdir three"),
        "text = 'The *end*.'\nchunk_chars = 2\nevent_delay_ms = 20",
    )
    with TmuxHarness(tmp_path, rows=40) as tmux:
        tmux.start(*script, "go")
        for command, key in (("one", "y"), ("two", "l"), ("three", "r")):
            tmux.wait_for(f"    mkdir {command}\n  why:")
            tmux.wait_for("esc ends the turn")
            tmux.press(key)
            tmux.wait_for("Why not?" if key == "r" else f"Running mkdir {command} · ok")
        tmux.type("enough")
        tmux.press("Enter")
        shown = tmux.wait_for("exit=0")

    made = [(tmp_path / name).is_dir() for name in ("one", "two", "three")]
    rules = json.loads((tmp_path / ".claude/settings.local.json").read_text())["permissions"]["allow"]
    lines = [line for line in shown.splitlines() if line.startswith(("First", "✓", "✗", "⊘", "The end", "  → "))]
    assert made == [True, True, False]
    assert rules == ["Bash(mkdir two *)"]
    assert [re.sub(r" · [0-9.]+ s.*", "", line) for line in lines] == [
        "First answer.",
        "  → Yes, once",
        "✓ Running mkdir one · ok",
        "  → Yes, always here: allow Bash(mkdir two *)",
        "✓ Running mkdir two · ok",
        "✗ Running mkdir two · failed",  # allowed by now; it exists
        "  → No: enough",
        "⊘ Running mkdir three · denied: The user denied this call. Their reason: enough",
        "The end.",
    ]


def test_ctrl_c_interrupts_and_the_shell_has_its_terminal_back(tmp_path: Path) -> None:
    script = write_script(
        tmp_path, f"text = {json.dumps(' '.join(PARAGRAPHS), ensure_ascii=False)}\nchunk_chars = 5\nevent_delay_ms = 50"
    )
    with TmuxHarness(tmp_path) as tmux:
        tmux.start(*script, "go")
        tmux.wait_for("Paragraph 1 has")
        tmux.press("C-c")
        shown = tmux.wait_for("exit=130")
        tmux.type("stty -a | grep -o '[-]*icanon'; echo $((20 + 3))")
        tmux.press("Enter")
        after = tmux.wait_for("\n23\n")

    assert "Interrupted." in shown
    assert shown.count("Paragraph 1 has") == 1
    assert "\nicanon\n" in after


def test_ctrl_z_gives_the_terminal_back_until_it_continues(tmp_path: Path) -> None:
    script = write_script(tmp_path, bash("mkdir one"), "text = 'Done.'")
    with TmuxHarness(tmp_path) as tmux:
        tmux.type("set -m")
        tmux.press("Enter")
        tmux.start(*script, "go")
        tmux.wait_for("esc ends the turn")
        tmux.press("C-z")
        tmux.wait_for("Stopped")
        tmux.type("stty -a | grep -o '[-]*icanon'; fg")
        tmux.press("Enter")
        assert "\nicanon\n" in tmux.wait_for("\nicanon\n")
        tmux.wait_for("fg\n")
        while "→ Yes" not in tmux.text:
            tmux.press("y")
        tmux.wait_for("Done.")

    assert (tmp_path / "one").is_dir()


@pytest.mark.parametrize("columns", [40, 24])
def test_a_narrow_window_shows_every_word_once(tmp_path: Path, columns: int) -> None:
    text = "\n\n".join(PARAGRAPHS)
    script = write_script(
        tmp_path, f"text = {json.dumps(text, ensure_ascii=False)}\nchunk_chars = 11\nevent_delay_ms = 1"
    )
    with TmuxHarness(tmp_path, columns=columns, rows=12) as tmux:
        tmux.start(*script, "go")
        shown = tmux.wait_for("exit=0")

    assert flat("\n".join(SHOWN)) in flat(shown)
    assert shown.count("Answering") == 0


def test_a_window_that_is_resized_while_an_answer_arrives_loses_nothing(tmp_path: Path) -> None:
    text = "\n\n".join(PARAGRAPHS)
    script = write_script(
        tmp_path, f"text = {json.dumps(text, ensure_ascii=False)}\nchunk_chars = 6\nevent_delay_ms = 10"
    )
    with TmuxHarness(tmp_path, columns=90, rows=15) as tmux:
        tmux.start(*script, "go")
        for number, size in ((2, (50, 15)), (6, (100, 8)), (10, (34, 20)), (14, (70, 15))):
            tmux.wait_for(f"Paragraph {number} has")
            tmux.resize(*size)
        shown = tmux.wait_for("exit=0")

    found = [int(number) for number in re.findall(r"Paragraph (\d+)", shown)]
    assert found == list(range(30))
    assert flat("\n".join(SHOWN[20:])) in flat(shown)


def test_the_status_line_leaves_no_trace_above_a_window_that_was_cleared(tmp_path: Path) -> None:
    script = write_script(tmp_path, f"text = 'One.'\n{bash('true')}", "text = 'Two.'")
    with TmuxHarness(tmp_path) as tmux:
        tmux.type(f"clear; {PARLEY} {' '.join(script)} go; echo exit=$?")
        tmux.press("Enter")
        shown = tmux.wait_for("exit=0")

    assert "Answering" not in shown
