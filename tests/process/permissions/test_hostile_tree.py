"""Real sessions in a hostile tree: no command that runs without approval prints anything from outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OUTSIDE, INSIDE = "outside-7f3a", "inside-91c4"
HOSTILE = (
    "cd && cat .ssh/id_rsa", "cd; cat .ssh/id_rsa", "cd -- && cat notes", "cd -P && cat notes", "cd - && cat secret",
    "cd -L; head notes", "command cd && cat notes", "true || cd src && cat ../../out/secret", "cat l*", "cat *",
    "cat s*/*", "head sub/*", "grep -R outside .", "grep -R outside", "rg -L outside", "find -L . -type f -ls",
    "ls -L sub", "diff -r sub src", "diff -N sub src", "diff a.txt sub", "cat 'odd/*'", "cat odd/'['*",
    "cat p*/environ", "cat proc/self/environ", "cat proc/self/cwd/../out/secret", "echo ../out/*", "echo sub/dir/*",
    "cat sub/dir/../out/secret",
    "grep '' -f l*", "wc -c l*; tac l*", "cd sub/dir && cat *", "ls sub/dir/", "strings @list", "cat */dir/secret",
)  # fmt: skip
HARMLESS = ("cat src/*", "cd src && cat m* && cd ..", "grep -R inside src", "cat ?.txt", "diff -rN src empty")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    cwd, home, out = tmp_path / "w", tmp_path / "home", tmp_path / "out"
    inside = {cwd / "a.txt": INSIDE, cwd / "src/m.txt": INSIDE, cwd / "empty/x": "", cwd / "list": f"{out}/secret"}
    outside = (home / ".ssh/id_rsa", home / "notes", out / "secret", out / OUTSIDE)
    for path, text in {**inside, **dict.fromkeys(outside, OUTSIDE)}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    links = {"link": out / "secret", "sub/dir": out, "sub/a.txt": out / "secret", "odd/*": out / "secret"}
    links |= {"odd/[x]": out / "secret", "proc": Path("/proc"), "process": Path("/proc/self")}
    (tmp_path / "named").symlink_to(cwd)
    for name, target in links.items():
        path = cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    return tmp_path


def played(tree: Path, mode: str, commands: tuple[str, ...], *flags: str) -> list[str]:
    """The outcome of each command."""
    calls = [
        f'{{ name = "Bash", id = "c{n}", input = {{ command = {json.dumps(c)} }} }}' for n, c in enumerate(commands)
    ]
    turns = [f"[[turn]]\ntools = [{call}]\n" for call in calls]
    script = tree / "script.toml"
    script.write_text("\n".join([*turns, "[[turn]]\ntext = 'Done.'\n"]))
    options = ["--output-format", "stream-json", "--permission-mode", mode, *flags]
    done = subprocess.run(
        [sys.executable, "-m", "parley", "--print", "--verbose", "--model", f"scripted:{script}", *options, "--", "go"],
        cwd=tree / "w",
        env={
            "HOME": str(tree / "home"),
            "PATH": os.defpath,
            "OLDPWD": str(tree / "out"),
            "CDPATH": str(tree / "out"),
            "PWD": str(tree / "named"),
            "ANTHROPIC_API_KEY": f"key-{OUTSIDE}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path.endswith("src")),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=120,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    blocks = [block for line in lines if line["type"] == "user" for block in line["message"]["content"]]
    return [str(block["content"]) for block in blocks]


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize("mode", ["default", "plan", "acceptEdits", "dontAsk"])
def test_nothing_outside_is_printed_unasked(tree: Path, mode: str) -> None:
    found = played(tree, mode, HOSTILE)

    assert len(found) == len(HOSTILE)
    assert [command for command, text in zip(HOSTILE, found, strict=True) if OUTSIDE in text] == []


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_what_is_inside_is_printed_without_a_question(tree: Path) -> None:
    found = played(tree, "default", HARMLESS)

    assert all(INSIDE in text for text in found), found


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_a_denied_file_in_the_home_folder_is_not_read_in_any_mode(tree: Path) -> None:
    commands = ("cd && cat .ssh/id_rsa", "cd; cat .ssh/*", "(cd -P && cat .ssh/id_rsa)")

    found = played(tree, "acceptEdits", commands, "--disallowedTools", "Read(~/.ssh/**)", "--allowedTools", "Bash")

    assert [OUTSIDE in text for text in found] == [False] * 3
    assert all("Read(~/.ssh/**)" in text for text in found), found


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_a_command_starts_in_the_folder_that_was_judged_by_its_real_name(tree: Path) -> None:
    assert played(tree, "default", ("pwd",)) == [str(tree / "w")]


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_a_link_with_a_name_that_is_not_text_is_asked_about(tree: Path) -> None:
    os.symlink(os.fsencode(tree / "out/secret"), os.fsencode(tree / "w/empty/") + b"\xff")

    [found] = played(tree, "default", ("cat empty/*",))

    assert OUTSIDE not in found
