"""Readers that get the names of their files from another command, decided in a real tree."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from parley.compose.setup.permission_check import PermissionChecker
from parley.protocol.options import CliOptions

FEEDS = (
    "find . -name '*.py' | xargs cat",
    "git ls-files | xargs cat",
    "find src -exec cat {} +",
    "rg -l x | xargs cat",
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two files, and a secret next to it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "secret.py").write_text("secret")
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("x")
    (folder / "b.py").write_text("x")
    track(folder)
    return folder


def track(folder: Path) -> None:
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def decided(folder: Path, command: str, *deny: str) -> str:
    options = CliOptions(permission_mode="default", disallowed_tools=deny, setting_sources=())
    return PermissionChecker(options, str(folder), lambda text: None).check("Bash", {"command": command}).decision


@pytest.mark.parametrize(
    "command",
    [
        *FEEDS, "find . -type f -print0 | xargs -0 grep -n x", "find . -name '*.py' | sort | head -3 | xargs wc -l",
        "find src -type f -exec head -3 {} \\;", "cd src && git ls-files -z | xargs -0 cat",
        "grep -rl x src | xargs -n1 wc",
        "find . -path ./src -prune -o -name '*.py' -print | xargs cat",
    ],
)  # fmt: skip
def test_names_that_lead_nowhere_else_are_read(tree: Path, command: str) -> None:
    assert decided(tree, command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "find . | xargs rm", "find . | xargs", "find . | xargs grep", "find . | xargs sed",
        "find . | xargs -I{} cat {}",
        "find . -print0 | xargs cat", "find . | xargs -0 cat", "find .. | xargs cat", "ls | xargs cat",
        "cat b.py | xargs cat", "find . -printf '/etc/passwd' | xargs cat", "find . | tr b c | xargs cat",
        "find . -exec rm {} +", "find . 2>&1 | xargs cat", "find . | grep -e x b.py | xargs cat",
        "cd src && git ls-files .. | xargs cat", "find . -newer ../secret.py -exec cat {} +",
        "find . -exec cat {} /etc/passwd \\;", "find . -execdir cat {} +",
        "find -L . | xargs cat",
        "for f in src; do cat $f/a.py; done | xargs cat", "git log | xargs cat", "find . | xargs git log",
        "find . | xargs grep -r x", "find . | xargs md5sum -c", "git diff --name-only | xargs cat",
        "touch x; find . | xargs cat",
        "git -C .. ls-files | xargs cat", "find . ; ls | xargs cat", "find . | xargs cat > out",
        "find . -exec cat x{} +",
    ],
)  # fmt: skip
def test_other_names_and_other_consumers_need_approval(tree: Path, command: str) -> None:
    assert decided(tree, command) == "ask"


@pytest.mark.parametrize("command", FEEDS)
@pytest.mark.parametrize("name", ["src/link.py", "src/.netrc", "src/id_rsa.py"])
def test_a_symlink_to_the_outside_or_a_file_with_credentials_among_the_names_asks(
    tree: Path, command: str, name: str
) -> None:
    (tree / name).symlink_to("../../secret.py") if "link" in name else (tree / name).write_text("x")
    track(tree)
    is_named = name == "src/link.py" or (name == "src/.netrc" and ".py" not in command)

    # ripgrep follows no symlinks.
    assert decided(tree, command) == ("ask" if is_named and not (command[:2] == "rg" and "link" in name) else "allow")


@pytest.mark.parametrize("name", ["a ../x.py", "it's.py", "a\tb.py", "a\\b.py", "-n.py", "a\nb.py"])
def test_a_name_that_a_pipe_splits_or_that_looks_like_a_flag_asks(tree: Path, name: str) -> None:
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text("x")
    track(tree)

    assert [decided(tree, command) for command in FEEDS] == ["ask", "ask", "allow", "ask"]


@pytest.mark.parametrize(
    "tests",
    [
        "-newer -name -path '*'", "! -empty -newer -name -path '*'", "! ! -path './src/*'", "! -name '*.py' -o -type l",
        "-path ./src -prune -o -depth -print", "-path '*' -name '*.py'", "-not -path './link/*'",
    ],
)  # fmt: skip
def test_tests_of_find_that_print_a_symlink_are_not_mistaken_for_others(tree: Path, tests: str) -> None:
    (tree / "-name").write_text("x")
    (tree / "src" / "link.py").symlink_to("../../secret.py")

    assert decided(tree, f"find . {tests} -exec cat {{}} +") == "ask"


def test_a_folder_of_the_index_that_is_a_symlink_now_asks(tree: Path) -> None:
    (tree / "src").rename(tree.parent / "src")
    (tree / "src").symlink_to("../src")

    assert decided(tree, "git ls-files | xargs cat") == "ask"


@pytest.mark.parametrize("command", ["git ls-files | xargs cat", "git diff", "git grep x"])
def test_an_index_with_a_path_out_of_the_tree_asks(tree: Path, command: str) -> None:
    (tree / "--aaaaaaaa.py").write_text("x")
    track(tree)
    assert decided(tree, "git diff") == "allow"

    index = tree / ".git" / "index"
    data = index.read_bytes()[:-20].replace(b"--aaaaaaaa.py", b"../secrets.py")
    index.write_bytes(data + hashlib.sha1(data).digest())

    assert decided(tree, command) == "ask"


def test_a_rule_that_denies_a_name_which_may_be_printed_asks(tree: Path) -> None:
    assert decided(tree, "find . -type f | xargs cat", "Read(.env)") == "ask"
    assert decided(tree, "find . -name '*.py' | xargs cat", "Read(.env)") == "allow"
    assert decided(tree, "find . -name '*.py' | xargs cat", "Read(src/**)") != "allow"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("for f in src/*.py; do cat $f; done", "allow"),
        ("for f in ../*.py; do echo $f; done", "ask"),
        ("for f in *.none; do echo $f; done", "allow"),
        ('for f in ../*.py; do echo "x $f"; done', "ask"),
        ("for f in .. /etc; do ls $f; done", "ask"),
        ("cd src && for f in *.py; do cat $f; done", "allow"),
        ("if [ -f b.py ]; then cat b.py; else cat ../secret.py; fi", "ask"),
        ('echo "$(cat ../secret.py)"', "ask"),
        ("cat $HOME/secret.py", "ask"),
        ("cd src && git status", "allow"),
        ("tar xf x.tar; cd src && git status", "ask"),
    ],
)
def test_loops_branches_and_substitutions_are_decided_by_their_files(tree: Path, command: str, expected: str) -> None:
    assert decided(tree, command) == expected


def test_a_name_with_a_blank_splits_where_the_variable_has_no_quotes(tree: Path) -> None:
    (tree / "src" / "a b.py").write_text("x")

    assert decided(tree, "for f in src/*.py; do cat $f; done") == "ask"
    assert decided(tree, 'for f in src/*.py; do cat "$f"; done') == "allow"
