from __future__ import annotations

import pytest

from parley.permissions import patterns


def denies(spec: str, path: str, *more: str) -> bool:
    return patterns.matches_widely(spec, path, root="/repo", cwds=("/w", *more), home="/home/me")


def allows(spec: str, path: str) -> bool:
    return patterns.matches_narrowly(spec, path, root="/repo", cwd="/w", home="/home/me")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("//etc/passwd", "/etc/passwd"),
        ("//etc/**", "/etc/ssh/sshd_config"),
        ("~/notes/*.md", "/home/me/notes/a.md"),
        ("/src/**", "/repo/src/deep/a.py"),
        ("docs/*.md", "/w/docs/a.md"),
        ("./docs/*.md", "/w/docs/a.md"),
        ("../other/**", "/other/a"),
        ("docs/**/*.md", "/w/docs/a/b/c.md"),
        ("docs/", "/w/docs/a/b"),
        ("docs", "/w/docs/a"),
        ("*.md", "/w/a/b/c.md"),
        ("src/[ab].py", "/w/src/a.py"),
        ("src/*.{ts,tsx}", "/w/src/a.tsx"),
        ("**", "/w/anything/at/all"),
    ],
)
def test_a_pattern_fits_from_its_anchor_on(spec: str, path: str) -> None:
    assert allows(spec, path)
    assert denies(spec, path)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("/src/**", "/w/src/a.py"),
        ("docs/*.md", "/w/docs/sub/a.md"),
        ("docs/**", "/wdocs/a"),
        ("src/**", "/w/src2/a.py"),
        ("src/**", "/w-evil/src/a.py"),
        ("~/notes/**", "/home/me2/notes/a"),
        ("//etc/**", "/w/etc/a"),
        ("*.md", "/elsewhere/a.md"),
        ("src/*.py", "/w/src/a.pyc"),
    ],
)
def test_a_pattern_fits_nothing_beside_it(spec: str, path: str) -> None:
    assert not allows(spec, path)
    assert not denies(spec, path)


@pytest.mark.parametrize("spec", ["secrets", "secrets/", "secrets/**", "./secrets/**"])
def test_a_single_folder_is_denied_at_any_depth_and_allowed_only_here(spec: str) -> None:
    assert denies(spec, "/w/a/b/secrets/key")
    assert denies(spec, "/w/secrets")
    assert not allows(spec, "/w/a/b/secrets/key")
    assert allows(spec, "/w/secrets/key")


@pytest.mark.parametrize(
    "path", ["/w/.ENV", "/w/.Env/x", "/w/cafe\u0301.env", "/w/CAF\u00c9.env", "/w/.e\u200cnv", "/w/sub/.env"]
)
def test_a_denied_name_is_denied_in_every_spelling(path: str) -> None:
    assert denies(".env", path) or denies("café.env", path)


def test_an_allowed_name_is_allowed_only_as_it_is_spelled() -> None:
    assert not allows("readme.md", "/w/README.md")


def test_a_bare_pattern_denies_beneath_every_working_directory() -> None:
    assert denies(".env", "/more/.env", "/more")
    assert denies("config/*.key", "/more/config/a.key", "/more")
    assert not denies(".env", "/others/.env", "/more")


def test_an_allowed_folder_is_not_its_neighbour_with_a_longer_name() -> None:
    assert not allows("//home/me/project/**", "/home/me/project-evil/x")


@pytest.mark.parametrize("pattern", ["*a" * 40 + "b", "**/" * 40 + "x", "?" * 500])
def test_a_hostile_pattern_ends(pattern: str) -> None:
    assert not denies(pattern, "/w/" + "a" * 2000)
