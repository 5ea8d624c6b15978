"""Sessions by their titles and the starts of their ids."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parley.errors import SessionError
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore
from parley.stores.session_find import explain_unknown, find_session
from tests.helpers.store_conformance import FIRST, SECOND, user, write


def store(config: Path, cwd: str = "/here") -> ClaudeStore:
    return ClaudeStore(config, EntryContext(cwd=cwd, version="2.1.0"))


def started(config: Path, session_id: str, title: str, cwd: str = "/here") -> None:
    write(store(config, cwd), session_id, user(0, "Hello", session_id))
    store(config, cwd).rename(session_id, title)


def found(config: Path, name: str) -> str | None:
    return find_session(name, [store(config)], "/here")


def test_a_title_names_the_one_session_that_has_it(tmp_path: Path) -> None:
    started(tmp_path, FIRST, "Fix the parser")
    started(tmp_path, SECOND, "Fix the printer")

    assert (found(tmp_path, "Fix the  parser"), found(tmp_path, "Fix the lexer")) == (FIRST, None)


def test_case_matters_only_between_titles_that_differ_in_nothing_else(tmp_path: Path) -> None:
    started(tmp_path, FIRST, "Fix it")
    assert found(tmp_path, "fix IT") == FIRST

    started(tmp_path, SECOND, "fix it")
    assert (found(tmp_path, "Fix it"), found(tmp_path, "fix it")) == (FIRST, SECOND)
    with pytest.raises(SessionError, match="2 sessions are called 'FIX IT'"):
        found(tmp_path, "FIX IT")


def test_a_first_prompt_names_a_session_without_a_title(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, user(0, "Say hello\nto me", FIRST))
    started(tmp_path, SECOND, "A title")

    assert (found(tmp_path, "say hello to me"), found(tmp_path, "Hello")) == (FIRST, None)


def test_an_unknown_name_is_explained_with_similar_sessions(tmp_path: Path) -> None:
    started(tmp_path, FIRST, "Fix the doctor")
    started(tmp_path, SECOND, "Something else")

    for name in ("doctr", "the doc", "fix the docter"):
        text = explain_unknown(name, [store(tmp_path)])
        assert f"Similar sessions: {FIRST} (Fix the doctor). To list all" in text
    assert "Similar" not in explain_unknown("qqqq", [store(tmp_path)])


def test_a_session_of_this_project_comes_before_those_of_others(tmp_path: Path) -> None:
    started(tmp_path, FIRST, "Fix the parser", cwd="/there")
    assert found(tmp_path, "Fix the parser") == FIRST

    started(tmp_path, SECOND, "Fix the parser")
    assert found(tmp_path, "Fix the parser") == SECOND


def test_several_sessions_with_a_title_are_named(tmp_path: Path) -> None:
    started(tmp_path, FIRST, "Fix it")
    started(tmp_path, SECOND, "Fix it")
    text = r"2 sessions are called 'Fix it'\. Name one of them by its id: .* \(Fix it, 2.*Z, /here\); .*, /here\)"

    with pytest.raises(SessionError, match=text) as raised:
        found(tmp_path, "Fix it")
    assert set(re.findall(f"{FIRST}|{SECOND}", str(raised.value))) == {FIRST, SECOND}


def test_what_looks_like_an_id_is_not_a_title(tmp_path: Path) -> None:
    started(tmp_path, FIRST, SECOND)

    assert found(tmp_path, SECOND) is None


def test_the_start_of_an_id_names_the_one_session_that_has_it(tmp_path: Path) -> None:
    started(tmp_path, FIRST, "One")
    started(tmp_path, SECOND, "Two", cwd="/there")

    assert (found(tmp_path, "2222"), found(tmp_path, "11111111-1")) == (SECOND, FIRST)
    assert (found(tmp_path, "222"), found(tmp_path, "3333"), found(tmp_path, " ")) == (None, None, None)


def test_a_title_comes_before_the_start_of_an_id(tmp_path: Path) -> None:
    started(tmp_path, FIRST, "One")
    started(tmp_path, SECOND, "1111")

    assert found(tmp_path, "1111") == SECOND


def test_several_ids_with_the_same_start_are_named(tmp_path: Path) -> None:
    other = FIRST[:-1] + "2"
    started(tmp_path, FIRST, "One\x1b[31m")
    started(tmp_path, other, "Two")

    with pytest.raises(SessionError, match="2 sessions have an id that starts with '1111'") as raised:
        found(tmp_path, "1111")
    assert set(re.findall(f"{FIRST}|{other}", str(raised.value))) == {FIRST, other}
    assert "\x1b" not in str(raised.value)
