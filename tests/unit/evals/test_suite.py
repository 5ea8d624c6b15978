"""The file format of evaluations: what is read, and how mistakes are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.evals.suite import EvalSuite, digest_suite, plan_runs, read_suite
from parley.evals.toml_errors import KeyLines

CASE = '[[case]]\nname = "a"\nprompt = "Hi"\n'
WHOLE = """
runs = 2
models = ["one", "scripted:s/{case}.toml"]

[defaults]
allowed_tools = ["Read"]
max_turns = 10

[[configuration]]
name = "plain"
max_turns = 50

[[configuration]]
name = "own"
model = "three"
settings = { env = { A = "1" } }

[[case]]
name = "first"
prompts = ["One.", "Two."]
workspace = "w"

[case.expect]
file_contains = { "out.txt" = ["a", "b"] }
commands = ["true", { run = "make", timeout_seconds = 5 }]

[[case]]
name = "second"
prompt = "Hi"
expect.result_contains = "Hello"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "evals.toml"
    path.write_text(text)
    return path


def whole(folder: Path) -> EvalSuite:
    (folder / "w").mkdir()
    (folder / "s").mkdir()
    for name in ("first", "second"):
        (folder / "s" / f"{name}.toml").write_text("")
    return read_suite(write(folder, WHOLE))


def test_configurations_have_the_defaults_and_are_run_with_each_model_unless_they_have_one(tmp_path: Path) -> None:
    suite = whole(tmp_path)

    read = {"allowed_tools": ["Read"]}
    assert [(each.name, each.model, each.list_options()) for each in suite.configuration] == [
        ("plain/one", "one", {**read, "max_turns": 50}),
        ("plain/scripted:s/{case}.toml", f"scripted:{tmp_path}/s/{{case}}.toml", {**read, "max_turns": 50}),
        ("own", "three", {**read, "max_turns": 10}),
    ]
    assert suite.configuration[1].resolve_model("first") == f"scripted:{tmp_path}/s/first.toml"


def test_a_plan_has_every_case_with_every_configuration_and_all_first_runs_first(tmp_path: Path) -> None:
    suite = whole(tmp_path)
    runs = plan_runs(suite, configurations=["own"])

    assert [run.key for run in runs] == [
        ("first", "own", 1),
        ("second", "own", 1),
        ("first", "own", 2),
        ("second", "own", 2),
    ]
    assert len({run.file_name for run in plan_runs(suite)}) == len(plan_runs(suite)) == 12
    with pytest.raises(UsageError, match=r"no case matches 'firts'; did you mean 'first'\?"):
        plan_runs(suite, cases=["firts"])


def test_the_digest_changes_with_a_prompt_but_not_with_the_number_of_runs(tmp_path: Path) -> None:
    first, more, other = (
        digest_suite(read_suite(write(tmp_path, text)))
        for text in (CASE, f"runs = 9\n{CASE}", CASE.replace("Hi", "Ho"))
    )

    assert first == more != other


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runs = \n", "evals.toml:1: not valid TOML: Invalid value"),
        ("", "evals.toml: object missing required field `case`"),
        ("run = 2\n" + CASE, "evals.toml:1: run: unknown key; did you mean 'runs'?"),
        (CASE + "[case.expect]\nfils = {}\n", "evals.toml:5: case[0].expect.fils: unknown key; did you mean 'files'?"),
        (CASE + CASE.replace('"a"', "7"), "evals.toml:5: case[1].name: expected `str`, got `int`"),
        (CASE + CASE, "evals.toml:5: case[1].name: two cases are named 'a'; names must be unique"),
        ('[[case]]\nname = "a"\n', "evals.toml:1: case[0]: a case needs either `prompt` or `prompts`"),
        (CASE + 'files = { "../x" = "" }', "evals.toml:4: case[0].files: '../x' must be a path inside the workspace"),
        (CASE + 'workspace = "none"', "evals.toml:4: case[0].workspace: there is no folder "),
        (CASE + 'expect.rubric = "Good."', "evals.toml:4: case[0].expect.rubric: a rubric needs a judge"),
        (CASE + 'expect.result_matches = "("', "evals.toml:4: case[0].expect.result_matches: invalid regular"),
        ("runs = 0\n" + CASE, "evals.toml:1: runs: expected `int` >= 1"),
        (CASE + "[[configuration]]\nmax_turns = 3\n", "evals.toml:4: configuration[0]: a configuration needs a name"),
        (
            CASE + '[[configuration]]\nname = "x"\nskills = ["s"]\n',
            "evals.toml:6: configuration[0].skills: ",
        ),
        (
            CASE + '[defaults]\nmodel = "scripted:none.toml"\n',
            "evals.toml:5: defaults.model: there is no file ",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_suite(Path("evals.toml"))

    assert str(caught.value).startswith(expected), str(caught.value)


def test_a_line_that_looks_like_a_key_in_a_long_text_is_not_one() -> None:
    text = '[[case]]\nprompt = """\nname = "no"\n[[case]]\n"""\nname = "yes"\n'

    assert KeyLines(text).find(("case", 0, "name")) == 6
    assert KeyLines(text).find(("case", 0, "missing")) == 1
