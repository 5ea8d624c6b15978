"""Pictures of the command line for the documentation: real runs in a terminal, drawn as SVG.

    python scripts/pictures.py                                    all pictures of `PICTURES`, into docs/pictures
    python scripts/pictures.py 'parley doctor' doctor.svg         one picture of one command

A command runs in tmux, in a project folder and a home of its own, with the `parley` of this environment first on the
PATH. Paths of this machine are replaced by those of a person `me`. tmux must be installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "pictures"
COLUMNS = 104
RUN_SECONDS = 60
MOST_LINES = 2000
STILL_SECONDS = 2.5
"""Longer than hints in the status line are shown."""

CHAR_WIDTH, LINE_HEIGHT, MARGIN, BAR = 8.4, 19, 16, 34
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
BACKGROUND, FOREGROUND = "#1e2127", "#d7dae0"
COLORS = (
    *("#3f4451", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d7dae0"),
    *("#7f848e", "#ff7b86", "#a5e075", "#f0d197", "#74b9ff", "#de8cf5", "#68d4e0", "#ffffff"),
)
"""The sixteen named colours of a terminal."""
KEY_NAMES = ("Enter", "Escape", "Down")
SEQUENCE = re.compile(r"\x1b\[([\d;]*)m")
OTHER_SEQUENCES = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")


@dataclass(frozen=True)
class Picture:
    """A command, and what is there before it runs."""

    name: str
    command: str
    setup: Sequence[str] = ()
    """Commands that are not in the picture."""
    answers: Sequence[tuple[str, str]] = ()
    """Texts to wait for, and the keys to press then."""
    until: str = ""
    """The picture is taken when this text is shown, while the command still runs; empty for when it has ended."""
    rows: int = 40
    """Later lines are cut off."""


CONVERSATIONS = {
    "Plan the release": "Three things are left: the notes, the tag and the announcement.",
    "Find the slow query": "The index on orders.customer is missing.",
    "Explain the build": "It compiles, tests and packs, in this order.",
}
SCRIPT = """\
[[turn]]
thinking = "The files will tell."
tools = [{ name = "Glob", input = { pattern = "*" } }, { name = "Read", input = { file_path = "main.py" } }]

[[turn]]
text = '''
It prints the **moon phase** of a date:

- `main.py` reads the date from the command line
- `moon.py` does the arithmetic

Try `python main.py 2026-11-17`.'''
"""
"""What the model does in the picture of a run."""
ASKING = """\
[[turn]]
text = "I will create the folder."
tools = [{ name = "Bash", input = { command = "mkdir notes" } }]

[[turn]]
text = "The folder `notes` is there."
"""
"""What it does in the picture of a question."""
CONVERSATION = """\
[[turn]]
thinking = "Let me read it first."
tools = [{ name = "Read", input = { file_path = "main.py" } }]

[[turn]]
text = "The date is not checked. I add a check and compile it."
tools = [{ name = "Edit", input = { file_path = "main.py", old_string = "print(phase(sys.argv[1]))", new_string = '''
day = sys.argv[1] if sys.argv[1:] else "today"
print(phase(day))''' } }, { name = "Bash", input = { command = "python -m compileall -q ." } }]

[[turn]]
text = "Done: without an argument it prints the phase of **today**."
"""
"""What it does in the pictures of a conversation."""
MODULE = r"printf 'import sys\nfrom moon import phase\n\nprint(phase(sys.argv[1]))\n' > main.py; touch moon.py"
TYPED = [
    MODULE,
    f"cat > ~/script.toml <<'END'\n{CONVERSATION}END",
    "mv ~/script.toml ~/moon.toml",
    "parley config set model scripted:$HOME/moon.toml",
]
PROJECT = "echo 'import sys; from moon import phase; print(phase(sys.argv[1]))' > main.py; touch moon.py"
PICTURES = [
    Picture(
        "run",
        'parley "What does this project do?"',
        [PROJECT, f"cat > ~/script.toml <<'END'\n{SCRIPT}END", "parley config set model scripted:$HOME/script.toml"],
    ),
    Picture(
        "question",
        'parley "Make a folder for the notes"',
        [f"cat > ~/script.toml <<'END'\n{ASKING}END", "parley config set model scripted:$HOME/script.toml"],
        answers=[("y Yes, once", "y")],
    ),
    Picture(
        "terminal",
        "parley --permission-mode acceptEdits",
        TYPED,
        answers=[("context 0 %", "It fails without a date: repair it"), ("repair it", "Enter")],
        until="Yes, once",
    ),
    Picture(
        "terminal-context",
        "parley --model offline",
        [
            "parley config set autoCompactWindow 20000",
            "parley config set permissions.deny '[\"Bash(git push *)\"]'",
            'for n in $(seq 100); do echo "- Rule $n: name functions with verbs."; done > CLAUDE.md',
            'for n in $(seq 400); do echo "$n: the moon was full."; done > notes.txt',
        ],
        answers=[
            *[("· ~/project", 'call Read {"file_path": "notes.txt"}'), ("> call", "Enter"), ("✓ Reading", "/context")],
            *[
                ("> /context", "Enter"),
                ("Free space", "/permissions test Bash git push origin"),
                ("test Bash", "Enter"),
            ],
        ],
        until="message",
    ),
    Picture(
        "terminal-resume",
        "parley --model offline",
        [
            *(
                f"parley -p --model offline --name {shlex.quote(name)} {shlex.quote(f'say {text}')}"
                for name, text in CONVERSATIONS.items()
            ),
            "mkdir ~/website; cd ~/website; parley -p --model offline --name 'Repair the links' 'say Two are broken.'",
        ],
        answers=[("context 0 %", "/resume"), ("> /resume", "Enter"), ("Continue a session", "Down")],
        until="● The index",
    ),
    Picture(
        "terminal-rewind",
        "parley --permission-mode acceptEdits",
        TYPED,
        answers=[
            *[("context 0 %", "It fails without a date: repair it"), ("repair it", "Enter"), ("Yes, once", "y")],
            *[("prints the phase", "Escape"), ("", "Escape"), ("Go back to", "Enter")],
        ],
        until="the files  ",
        rows=48,
    ),
    Picture("help", "parley --help", rows=32),
    Picture("doctor", "parley doctor", ["parley config set model offline"]),
    Picture(
        "sessions",
        "parley sessions list",
        [
            f"parley -p --model offline --name {shlex.quote(name)} {shlex.quote(f'say {text}')}"
            for name, text in CONVERSATIONS.items()
        ],
    ),
    Picture(
        "permissions",
        "parley permissions check Bash 'git push origin main'",
        [
            "parley config set permissions.deny '[\"Bash(git push *)\"]'",
        ],
    ),
]


@dataclass(frozen=True)
class Style:
    """How characters look."""

    color: str = FOREGROUND
    background: str | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    inverse: bool = False


@dataclass(frozen=True)
class Run:
    """Characters of one line in one style."""

    column: int
    text: str
    style: Style


@dataclass
class Codes:
    """The numbers of an escape sequence, read from the left."""

    numbers: list[int] = field(default_factory=list)

    def color(self) -> str | None:
        """The colour after 38 or 48."""
        kind = self.numbers.pop(0) if self.numbers else 0
        if kind == 5 and self.numbers:
            return palette(self.numbers.pop(0))
        if kind == 2 and len(self.numbers) >= 3:
            red, green, blue, *self.numbers = self.numbers
            return f"#{red:02x}{green:02x}{blue:02x}"
        return None


def palette(number: int) -> str:
    """One of 256 colours: 16 named ones, a cube of 216, 24 greys."""
    if number < 16:
        return COLORS[number]
    if number >= 232:
        level = 8 + 10 * (number - 232)
        return f"#{level:02x}{level:02x}{level:02x}"
    steps = [(number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6]
    return "#" + "".join(f"{55 + 40 * step if step else 0:02x}" for step in steps)


SWITCHES: dict[int, dict[str, Any]] = {
    1: {"bold": True},
    2: {"dim": True},
    3: {"italic": True},
    4: {"underline": True},
    7: {"inverse": True},
    22: {"bold": False, "dim": False},
    23: {"italic": False},
    24: {"underline": False},
    27: {"inverse": False},
}


def restyle(style: Style, sequence: str) -> Style:
    """The style after an escape sequence."""
    codes = Codes([int(number or 0) for number in sequence.split(";")])
    while codes.numbers:
        code = codes.numbers.pop(0)
        if code == 0:
            style = Style()
        elif code in SWITCHES:
            style = replace(style, **SWITCHES[code])
        elif code in (38, 39) or 30 <= code <= 37 or 90 <= code <= 97:
            named = COLORS[code - 30] if code < 38 else COLORS[code - 82] if code >= 90 else None
            style = replace(style, color=named or (codes.color() if code == 38 else None) or FOREGROUND)
        elif code in (48, 49) or 40 <= code <= 47 or 100 <= code <= 107:
            named = COLORS[code - 40] if code < 48 else COLORS[code - 92] if code >= 100 else None
            style = replace(style, background=named or (codes.color() if code == 48 else None))
    return style


def split_runs(lines: Sequence[str]) -> Iterator[list[Run]]:
    """The runs of each line; a style continues until the next sequence, even on the next line."""
    style = Style()
    for line in lines:
        runs, column = [], 0
        for index, part in enumerate(SEQUENCE.split(OTHER_SEQUENCES.sub("", line))):
            if index % 2:
                style = restyle(style, part)
            elif part:
                runs.append(Run(column, part, style))
                column += len(part)
        yield runs


def draw(lines: Sequence[str], title: str) -> str:
    """An SVG of a terminal with these lines."""
    drawn = list(split_runs(lines))
    width = round(2 * MARGIN + COLUMNS * CHAR_WIDTH)
    height = BAR + 2 * MARGIN + LINE_HEIGHT * len(drawn) - 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        *(f'<circle cx="{20 + 18 * at}" cy="17" r="5.5" fill="{color}"/>' for at, color in enumerate(COLORS[1:4])),
        f'<g font-family="{escape(FONT)}" font-size="14">',
    ]
    for row, runs in enumerate(drawn):
        parts += [part for run in runs for part in draw_run(run, BAR + MARGIN + LINE_HEIGHT * row)]
    return "\n".join([*parts, "</g>", "</svg>", ""])


def draw_run(run: Run, top: float) -> Iterator[str]:
    style = run.style
    color, background = style.color, style.background
    if style.inverse:
        color, background = background or BACKGROUND, color
    left, width = round(MARGIN + run.column * CHAR_WIDTH, 1), round(len(run.text) * CHAR_WIDTH, 1)
    if background:
        yield f'<rect x="{left}" y="{top - 4}" width="{width}" height="{LINE_HEIGHT}" fill="{background}"/>'
    if run.text.strip():
        looks = "".join(
            [
                ' font-weight="bold"' * style.bold,
                ' opacity="0.65"' * style.dim,
                ' font-style="italic"' * style.italic,
                ' text-decoration="underline"' * style.underline,
            ]
        )
        text = escape(run.text).replace(" ", "\N{NO-BREAK SPACE}")  # SVG joins ordinary spaces
        yield f'<text x="{left}" y="{top + 10}" fill="{color}" textLength="{width}"{looks}>{text}</text>'


def capture(picture: Picture, home: Path) -> list[str]:
    """Run a command in a terminal. Returns its lines, with escape sequences, after a line with the command."""
    project = home / "project"
    project.mkdir(parents=True)
    environment = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
    }
    for command in picture.setup:
        subprocess.run(["bash", "-c", command], cwd=project, env=environment, check=True, stdout=subprocess.DEVNULL)
    # A server of its own, so that nothing of the person's tmux is used or changed.
    tmux = ["tmux", "-S", str(home / "tmux"), "-f", os.devnull]
    size = ["-x", str(COLUMNS), "-y", "50"]
    script = f"{picture.command}\ntmux -S {shlex.quote(str(home / 'tmux'))} wait-for -S done\nsleep {RUN_SECONDS}"
    try:
        keep = ["set-option", "-g", "history-limit", str(MOST_LINES), ";"]
        start = ["new-session", "-d", *size, "bash", "-c", script]
        subprocess.run([*tmux, *keep, *start], cwd=project, env=environment, check=True)
        for text, keys in picture.answers:
            wait_for(tmux, text)
            subprocess.run([*tmux, "send-keys", *([] if keys in KEY_NAMES else ["-l"]), keys], check=True)
        if picture.until:
            wait_for(tmux, picture.until)
            wait_until_still(tmux)
        else:
            subprocess.run([*tmux, "wait-for", "done"], env=environment, check=True, timeout=RUN_SECONDS)
        shown = subprocess.run(
            [*tmux, "capture-pane", "-p", "-e", "-S", f"-{MOST_LINES}"],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout.decode()
    finally:
        subprocess.run([*tmux, "kill-server"], env=environment, check=False, stderr=subprocess.DEVNULL)
    lines = [hide_machine(line, home) for line in shown.rstrip().splitlines()]
    typed = [f"\x1b[90m{'>' if at else '$'}\x1b[0m {part}" for at, part in enumerate(picture.command.splitlines())]
    return [*typed, *lines][: picture.rows]


def wait_for(tmux: Sequence[str], text: str) -> None:
    """Wait until the terminal shows a text."""
    deadline = time.monotonic() + RUN_SECONDS
    while text not in subprocess.run([*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{text!r} is not shown")
        time.sleep(0.05)


def wait_until_still(tmux: Sequence[str]) -> None:
    """Wait until the terminal shows the same for a moment."""
    before, deadline = "", time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline:
        shown = subprocess.run([*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout
        if shown == before:
            return
        before = shown
        time.sleep(STILL_SECONDS)


def hide_machine(line: str, home: Path) -> str:
    """Replace paths and the name of the kernel."""
    line = line.replace(str(home), "/home/me").replace(str(ROOT), "/home/me/parley")
    return re.sub(r"Linux-[\w.+-]+", "Linux", line)


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw pictures of the command line.")
    parser.add_argument("command", nargs="?", help="a command line; default: all pictures of the documentation")
    parser.add_argument("file", nargs="?", type=Path, help="the SVG to write")
    given = parser.parse_args()
    wanted = {FOLDER / f"{picture.name}.svg": picture for picture in PICTURES}
    if given.command is not None:
        wanted = {given.file or Path("picture.svg"): Picture("given", given.command)}
    for path, picture in wanted.items():
        with tempfile.TemporaryDirectory() as home:
            lines = capture(picture, Path(home))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draw(lines, picture.command), encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
