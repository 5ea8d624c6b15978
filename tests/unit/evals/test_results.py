"""The results of an evaluation: what survives a kill, and what is refused."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.evals.results import FILE_NAME, ResultsHeader, RunRecord, create_results, read_results, resume_results

HEADER = ResultsHeader(suite="evals.toml", digest="d1")


def record(run: int) -> RunRecord:
    return RunRecord(case="a", configuration="c", run=run, outcome="passed")


def test_a_part_of_a_line_is_dropped_when_a_run_resumes(tmp_path: Path) -> None:
    first = create_results(tmp_path / "r", HEADER)
    first.append(record(1))
    first.close()
    with (tmp_path / "r" / FILE_NAME).open("ab") as file:
        file.write(b'{"n":2,"at_ms":1,"case":"a","conf')
    again = resume_results(tmp_path / "r", "d1")
    again.append(record(2))
    again.close()

    header, records = read_results(tmp_path / "r")
    assert header == HEADER
    assert records == {("a", "c", 1): record(1), ("a", "c", 2): record(2)}


def test_the_workspaces_of_a_killed_process_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = create_results(tmp_path / "r", HEADER)
    (killed.workspaces / "x").write_text("")
    mine = tmp_path / "mine"
    mine.mkdir()
    killed._writer.close()
    resume_results(tmp_path / "r", "d1").close()
    assert not killed.workspaces.exists()

    (tmp_path / "r" / "workspaces").write_text(str(mine))
    resume_results(tmp_path / "r", "d1").close()
    assert mine.exists()


def test_results_are_not_overwritten_mixed_or_written_by_two(tmp_path: Path) -> None:
    held = create_results(tmp_path / "r", HEADER)
    with pytest.raises(UsageError, match="another process is writing"):
        resume_results(tmp_path / "r", "d1")
    held.close()
    with pytest.raises(UsageError, match="has results already; add --resume"):
        create_results(tmp_path / "r", HEADER)
    with pytest.raises(UsageError, match="have changed since"):
        resume_results(tmp_path / "r", "d2")


FRAME = '{"parley_records":"evaluation","version":1,"suite":"s","digest":"d"}\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "results.jsonl is not a result of parley eval: it has no header"),
        ("no\n", "results.jsonl is not a result of parley eval: its first line is not a header"),
        (FRAME.replace("1", "9"), "results.jsonl has version 9; only version 1 is supported"),
        (FRAME.replace("evaluation", "model"), "results.jsonl is not a result of parley eval, but a recording of"),
        (FRAME + '{"n":1,"at_ms":0}\n', "results.jsonl:2: object missing required field `case`"),
    ],
)
def test_a_file_that_is_not_a_result_is_refused_and_left_as_it_is(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(text)
    for read in (lambda: read_results(tmp_path), lambda: resume_results(tmp_path, "d")):
        with pytest.raises(UsageError) as caught:
            read()
        assert expected in str(caught.value)

    assert path.read_text() == text
