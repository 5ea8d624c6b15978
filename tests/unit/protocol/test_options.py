"""The command line: every row both ways, and what becomes of words that are no option."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import UsageError
from parley.protocol import option_kinds as kinds
from parley.protocol import options as table
from parley.protocol.option_kinds import Option
from parley.protocol.options import (
    BY_FLAG,
    FIELDS,
    ROWS,
    WITHOUT_EFFECT,
    CliOptions,
    LimitOptions,
    ParsedArgs,
    format_args,
    parse,
)

# By hand from the table of flags in shared/protocol/cli.md, section 2.
FLAGS = [
    "--print",
    "-p",
    "--output-format",
    "--input-format",
    "--verbose",
    "--model",
    "--max-turns",
    "--max-budget-usd",
    "--dangerously-skip-permissions",
    "--resume",
    "-r",
    "--include-partial-messages",
    "--max-thinking-tokens",
    "--permission-prompt-tool",
    "--api-key",
    "--stdio",
    "--db",
    "--version",
    "-v",
    "--system-prompt",
    "--system-prompt-file",
    "--append-system-prompt",
    "--tools",
    "--allowedTools",
    "--allowed-tools",
    "--disallowedTools",
    "--disallowed-tools",
    "--fallback-model",
    "--betas",
    "--permission-mode",
    "--continue",
    "-c",
    "--session-id",
    "--fork-session",
    "--resume-session-at",
    "--resume-drops-turn",
    "--settings",
    "--setting-sources",
    "--add-dir",
    "--mcp-config",
    "--strict-mcp-config",
    "--include-hook-events",
    "--session-mirror",
    "--plugin-dir",
    "--thinking",
    "--thinking-display",
    "--effort",
    "--json-schema",
    "--task-budget",
    "--replay-user-messages",
    "--agents",
    "--agent",
    "--permission-prompts",
    "--allow-dangerously-skip-permissions",
    "--no-session-persistence",
    "--plugin-dir-no-mcp",
    "--plugin-url",
    "--await-initialize",
    "--managed-settings",
    "--managed-settings-in-initialize",
    "--project-config-root",
    "--debug",
    "--debug-file",
    "--debug-to-stderr",
    "--channels",
    "--sdk-url",
    "--bare",
    "--safe-mode",
    "--worktree",
    "--bg",
    "--remote",
    "--remote-control",
    "--rc",
    "--await-claim",
    "--repl",
    "--inspect",
    "--dump",
    "--format",
    "--prompt",
]

by_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.field)
by_flag = pytest.mark.parametrize(("flag", "row"), BY_FLAG.items(), ids=list(BY_FLAG))

CHOICES = {
    "output_format": ("text", "json", "stream-json", "message"),
    "input_format": ("text", "stream-json"),
    "dialect": ("stream-json", "spec001", "miriad", "jsonrpc", "auto"),  # a package can add one
    "thinking": ("adaptive", "disabled", "enabled"),
    "effort": ("low", "medium", "high", "xhigh", "max"),
    "permission_mode": ("default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto", "manual"),
    "permission_prompts": ("host", "none"),
    "fsync": table.SYNC_POLICIES,
}

# A value of each kind as a word, and what it is read as.
SAMPLES: dict[int, tuple[str, Any]] = {
    id(kinds.TEXT): ("some text", "some text"),
    id(kinds.MAYBE): ("some text", "some text"),
    id(kinds.ON_OFF): ("on", True),
    id(kinds.INTEGER): ("3", 3),
    id(kinds.NUMBER): ("2.5", 2.5),
    id(kinds.RULES): ("Read,Bash(git *, x) Edit", ("Read", "Bash(git *, x)", "Edit")),
    id(kinds.TOOL_LIST): ("Read,Bash", ("Read", "Bash")),
    id(kinds.WORDS): ("a, b", ("a, b",)),
    id(kinds.EACH): ("a, b", ("a, b",)),
    id(kinds.COMMAS): ("a, b,,c", ("a", "b", "c")),
    id(kinds.REPEATED): ("a, b,,c", ("a", "b", "c")),
    id(kinds.COMMA_TEXT): ("a, b,,c", ("a", "b", "c")),
}

# All values of a kind that may be spelled.
TEXTS = st.text()
NAMES = st.text("abcXYZ_*", min_size=1)
RULES = NAMES | st.builds(lambda name, content: f"{name}({content})", NAMES, st.text("ab ,.*:-", max_size=8))
PARTS = st.text(min_size=1).map(lambda text: text.replace(",", "").strip()).filter(bool)
VALUES: dict[int, st.SearchStrategy[Any]] = {
    id(kinds.TEXT): TEXTS,
    id(kinds.MAYBE): TEXTS,
    id(kinds.SWITCH): st.just(True),
    id(kinds.ON_OFF): st.just(True),
    id(kinds.INTEGER): st.integers(),
    id(kinds.NUMBER): st.floats(allow_nan=False, allow_infinity=False),
    id(kinds.RULES): st.lists(RULES).map(tuple),
    id(kinds.TOOL_LIST): st.lists(RULES).map(tuple),
    id(kinds.WORDS): st.lists(TEXTS, min_size=1).map(tuple),
    id(kinds.EACH): st.lists(TEXTS, min_size=1).map(tuple),
    id(kinds.COMMAS): st.lists(PARTS).map(tuple),
    id(kinds.REPEATED): st.lists(PARTS).map(tuple),
    id(kinds.COMMA_TEXT): st.lists(PARTS).map(tuple),
}


def sample(row: Option[Any]) -> tuple[str, Any]:
    """A word for this row, and what it is read as."""
    if row.field in CHOICES:
        return CHOICES[row.field][0], CHOICES[row.field][0]
    return SAMPLES[id(row.kind)]


def values(row: Option[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(CHOICES[row.field]) if row.field in CHOICES else VALUES[id(row.kind)]


@st.composite
def some_options(draw: st.DrawFn) -> CliOptions:
    rows = draw(st.lists(st.sampled_from(ROWS), unique_by=lambda row: row.field, max_size=5))
    return CliOptions(**{row.field: draw(values(row)) for row in rows})


def told(row: Option[Any], flag: str) -> tuple[str, ...]:
    """The warnings that an option brings along."""
    return (f"option '{flag}' has no effect in this run",) if row.field in WITHOUT_EFFECT else ()


# The rows.


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_of_the_documented_table_has_a_row(flag: str) -> None:
    assert flag in BY_FLAG


def test_no_two_rows_share_a_flag_or_a_field() -> None:
    flags = [flag for row in ROWS for flag in row.flags]

    assert len(flags) == len(set(flags)) == len(BY_FLAG)
    assert len({row.field for row in ROWS}) == len(ROWS)


DEFAULTS = {
    "betas": (),
    "fsync": "turn",
    "max_retries": 8,
    "max_schema_attempts": 5,
    "question_preview_format": "markdown",
}


@pytest.mark.parametrize("row", FIELDS.values(), ids=lambda row: row.field)
def test_an_option_that_was_not_given_has_its_default(row: Option[Any]) -> None:
    none = False if row.kind in (kinds.SWITCH, kinds.ON_OFF) else None

    assert getattr(CliOptions(), row.field) == DEFAULTS.get(row.field, none)


def test_an_option_without_a_flag_is_not_on_the_command_line() -> None:
    without = [row for row in FIELDS.values() if not row.flags]

    assert without
    assert not {row.field for row in without} & {row.field for row in ROWS}
    assert [row.field for row in without if not (row.variable or row.setting)] == []
    assert format_args(CliOptions(max_retries=3)) == []


@by_flag
def test_both_forms_of_a_flag_mean_the_same(flag: str, row: Option[Any]) -> None:
    if row.kind is kinds.SWITCH:
        expected = ParsedArgs(CliOptions(**{row.field: True}), (), told(row, flag))
        assert [parse([flag]), parse([f"{flag}="]), parse([f"{flag}=true"])] == [expected] * 3
    else:
        word, value = sample(row)
        expected = ParsedArgs(CliOptions(**{row.field: value}), (), told(row, flag))
        assert [parse([flag, word]), parse([f"{flag}={word}"])] == [expected] * 2


@by_flag
def test_an_option_leaves_what_follows_the_next_flag_alone(flag: str, row: Option[Any]) -> None:
    words = [flag] if row.kind is kinds.SWITCH else [flag, sample(row)[0]]
    given = {row.field: True if row.kind is kinds.SWITCH else sample(row)[1]}

    assert parse([*words, "--strict-mcp-config", "hello"]) == ParsedArgs(
        CliOptions(**{**given, "strict_mcp_config": True}), ("hello",), told(row, flag)
    )


@given(some_options())
def test_what_is_spelled_is_read_back(options: CliOptions) -> None:
    parsed = parse(format_args(options))

    assert (parsed.options, parsed.words) == (options, ())


@given(some_options(), st.lists(TEXTS.filter(bool)))
def test_words_after_a_spelled_command_line_stay_words(options: CliOptions, words: list[str]) -> None:
    parsed = parse([*format_args(options), "--", *words])

    assert (parsed.options, parsed.words) == (options, tuple(words))


def test_the_example_in_the_docs_is_true() -> None:
    assert parse(["--model", "opus", "--max-turns=3", "hello"]) == ParsedArgs(
        CliOptions(model="opus", max_turns=3), ("hello",), ()
    )
    assert format_args(CliOptions(model="opus", max_turns=3)) == ["--model=opus", "--max-turns=3"]


def test_options_are_spelled_in_the_order_of_the_table() -> None:
    assert format_args(
        CliOptions(resume="", add_dirs=("a", "-b"), tools=(), max_turns=0, verbose=True, api_key="-k")
    ) == [
        "--verbose",
        "--api-key=-k",
        "--max-turns=0",
        "--tools=",
        "--add-dir=a",
        "--add-dir=-b",
        "--resume=",
    ]


# Values.


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["--system-prompt", ""], CliOptions(system_prompt="")),
        (["--system-prompt="], CliOptions(system_prompt="")),
        (["--setting-sources", ""], CliOptions(setting_sources=())),
        (["--setting-sources="], CliOptions(setting_sources=())),
        (["--tools", ""], CliOptions(tools=())),
        (["--tools="], CliOptions(tools=())),
        (["--allowedTools", ""], CliOptions(allowed_tools=())),
        (["--add-dir", ""], CliOptions(add_dirs=("",))),
        (["--resume"], CliOptions(resume="")),
        (["--resume="], CliOptions(resume="")),
        (["--resume", ""], CliOptions(resume="")),
    ],
)
def test_an_empty_value_is_not_the_same_as_none(argv: list[str], options: CliOptions) -> None:
    assert parse(argv) == ParsedArgs(options, (), ())
    assert options != CliOptions()


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["--model", "a", "--model=b"], CliOptions(model="b")),
        (["--add-dir", "a", "b", "--add-dir=c"], CliOptions(add_dirs=("a", "b", "c"))),
        (["--allowedTools=Read", "--allowed-tools", "Edit"], CliOptions(allowed_tools=("Read", "Edit"))),
        (["--verbose", "--verbose"], CliOptions(verbose=True)),
        (["--mcp-config", '{"a": [1, 2]}', "b.json"], CliOptions(mcp_config=('{"a": [1, 2]}', "b.json"))),
    ],
)
def test_of_a_repeated_flag_the_last_counts_and_lists_grow(argv: list[str], options: CliOptions) -> None:
    assert parse(argv) == ParsedArgs(options, (), ())


@pytest.mark.parametrize(
    ("word", "tools"),
    [
        ("default", ("default",)),
        ("Read Edit", ("Read", "Edit")),
        ('{"type":"preset","preset":"claude_code"}', ("default",)),
    ],
)
def test_the_list_of_tools_may_be_a_preset(word: str, tools: tuple[str, ...]) -> None:
    assert parse(["--tools", word]).options == CliOptions(tools=tools)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", ()),
        (" , ,", ()),
        ("Read", ("Read",)),
        ("Read,Edit Write\tGlob\nGrep", ("Read", "Edit", "Write", "Glob", "Grep")),
        ("Bash(git log:*),Bash(a, b)", ("Bash(git log:*)", "Bash(a, b)")),
        ("Bash(echo (x, y)) Read", ("Bash(echo (x, y))", "Read")),
        ("Read),Edit", ("Read)", "Edit")),
    ],
)
def test_rules_are_cut_at_commas_and_spaces_outside_parentheses(text: str, rules: tuple[str, ...]) -> None:
    assert parse([f"--allowedTools={text}"]).options == CliOptions(allowed_tools=rules)


def test_a_single_value_may_look_like_a_flag() -> None:
    assert parse(["--system-prompt", "--be brief", "--append-system-prompt", "-"]) == ParsedArgs(
        CliOptions(system_prompt="--be brief", append_system_prompt="-"), (), ()
    )


# Words.


@pytest.mark.parametrize(
    "flag", ["--allowedTools", "--disallowedTools", "--tools", "--add-dir", "--mcp-config", "--betas"]
)
def test_a_list_swallows_every_word_up_to_the_next_flag(flag: str) -> None:
    field = BY_FLAG[flag].field

    assert parse([flag, "a", "b", "-", "--verbose", "c"]) == ParsedArgs(
        CliOptions(**{field: ("a", "b", "-"), "verbose": True}), ("c",), ()
    )
    assert parse([flag, "a", "--", "b"]) == ParsedArgs(CliOptions(**{field: ("a",)}), ("b",), ())


def test_two_dashes_end_the_flags() -> None:
    assert parse(["-p", "--", "--model", "x", "-c", "--", ""]) == ParsedArgs(
        CliOptions(print=True), ("--model", "x", "-c", "--"), ()
    )


@pytest.mark.parametrize(
    ("argv", "options", "words"),
    [
        (["--print", "do it", "--model", "m"], CliOptions(print=True, model="m"), ("do it",)),
        (["-p", "do it", "--setting-sources", ""], CliOptions(print=True, setting_sources=()), ("do it",)),
        (["do it", "--session-id", "s", "-p"], CliOptions(session_id="s", print=True), ("do it",)),
        (["-p", "a", "b"], CliOptions(print=True), ("a", "b")),
        (["-v"], CliOptions(version=True), ()),
        (["-r", "s1", "-c"], CliOptions(resume="s1", continue_conversation=True), ()),
        (["-"], CliOptions(), ("-",)),
        ([], CliOptions(), ()),
        (["", "-p", ""], CliOptions(print=True), ()),
        (["--replay-user-messages", ""], CliOptions(replay_user_messages=True), ()),
        (["-p", ""], CliOptions(print=True), ()),
    ],
)
def test_what_is_not_an_option_is_the_prompt_wherever_it_stands(
    argv: list[str], options: CliOptions, words: tuple[str, ...]
) -> None:
    assert parse(argv) == ParsedArgs(options, words, ())


# Complaints.


@pytest.mark.parametrize(
    ("argv", "words", "warning"),
    [
        (["--brand-new", "-p"], (), "unknown option '--brand-new' is ignored"),
        (["--brand-new", "value", "prompt"], ("prompt",), "unknown option '--brand-new' 'value' is ignored"),
        (["--brand-new=value", "prompt"], ("prompt",), "unknown option '--brand-new' 'value' is ignored"),
        (["--brand-new=", "prompt"], ("prompt",), "unknown option '--brand-new' '' is ignored"),
        (["-x", "", "prompt"], ("prompt",), "unknown option '-x' '' is ignored"),
        (["--brand-new", "--", "prompt"], ("prompt",), "unknown option '--brand-new' is ignored"),
    ],
)
def test_an_unknown_flag_is_a_warning_and_takes_its_word_along(
    argv: list[str], words: tuple[str, ...], warning: str
) -> None:
    parsed = parse(argv)

    assert (parsed.words, parsed.warnings) == (words, (warning,))


def test_an_option_that_nothing_answers_to_is_a_warning() -> None:
    assert parse(["--chrome", "--rc", "name", "-p"]) == ParsedArgs(
        CliOptions(chrome=True, remote_control="name", print=True),
        (),
        ("option '--chrome' has no effect in this run", "option '--rc' has no effect in this run"),
    )


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (
            ["--effort", "huge"],
            "option '--effort': argument 'huge' is invalid. Allowed choices are low, medium, high, xhigh, max.",
        ),
        (
            ["--input-format="],
            "option '--input-format': argument '' is invalid. Allowed choices are text, stream-json.",
        ),
        (["--max-turns", "many"], "option '--max-turns' needs a whole number, got 'many'"),
        (["--max-turns="], "option '--max-turns' needs a whole number, got ''"),
        (["--max-turns", "1.5"], "option '--max-turns' needs a whole number, got '1.5'"),
        (["--max-budget-usd", "much"], "option '--max-budget-usd' needs a number, got 'much'"),
        (["--max-budget-usd", "nan"], "option '--max-budget-usd' needs a number, got 'nan'"),
        (["--max-budget-usd=inf"], "option '--max-budget-usd' needs a number, got 'inf'"),
        (["--model"], "option '--model' needs a value"),
        (["--add-dir"], "option '--add-dir' needs a value"),
        (["--allowed-tools", "--verbose"], "option '--allowed-tools' needs a value"),
        (["--verbose=no"], "option '--verbose' takes no value, got 'no'"),
    ],
)
def test_a_wrong_value_is_refused_in_words_that_name_the_flag(argv: list[str], reason: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(argv)

    assert str(raised.value) == reason


@pytest.mark.parametrize(("field", "allowed"), CHOICES.items(), ids=str)
def test_every_choice_is_accepted(field: str, allowed: tuple[str, ...]) -> None:
    flag = getattr(CliOptions, field).flags[0]

    assert [parse([flag, word]).options for word in allowed] == [CliOptions(**{field: word}) for word in allowed]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.field)
def test_the_choices_that_help_shows_are_those_that_are_accepted(row: Option[Any]) -> None:
    assert row.kind.choices == (() if row.field == "dialect" else CHOICES.get(row.field, ()))


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        ([], False),
        (["--prompt-suggestions"], True),
        (["--prompt-suggestions", "true"], True),
        (["--prompt-suggestions="], True),
        *((["--prompt-suggestions", word], False) for word in ("false", "0", "off")),
    ],
)
def test_a_switch_with_a_value_can_be_off(argv: list[str], value: bool) -> None:
    assert parse(argv).options.prompt_suggestions is value


# The sentences.


@pytest.mark.parametrize("row", FIELDS.values(), ids=lambda row: row.field)
def test_every_option_has_a_sentence_of_help(row: Option[Any]) -> None:
    assert row.help.endswith(".")
    assert row.help[0].isupper()
    assert "\n" not in row.help


@by_row
def test_help_says_which_options_have_no_effect(row: Option[Any]) -> None:
    assert row.help.startswith("Accepted, no effect: ") == (row.field in WITHOUT_EFFECT)


def test_every_group_has_a_heading_and_its_rows_stand_together() -> None:
    groups = list(dict.fromkeys(row.group for row in ROWS))

    assert [row.group for row in ROWS] == sorted((row.group for row in ROWS), key=groups.index)
    assert len({group.heading for group in groups}) == len(groups)
    assert "" not in {group.heading for group in groups}
    assert set(groups) <= set(CliOptions.__mro__)


# The options themselves.


def test_what_is_not_given_and_what_is_empty_are_equal() -> None:
    assert CliOptions(verbose=False, model=None) == CliOptions()
    assert format_args(CliOptions(verbose=False, model=None, add_dirs=())) == []


def test_an_option_can_be_changed_in_a_copy() -> None:
    options = CliOptions(model="a", verbose=True)

    assert options.replace(model="b", max_turns=1) == CliOptions(model="b", verbose=True, max_turns=1)
    assert options.replace(model=None, verbose=False) == CliOptions()
    assert options == CliOptions(model="a", verbose=True)


def test_options_differ_by_their_values_and_from_other_things() -> None:
    assert CliOptions(model="a") != CliOptions(model="b")
    assert CliOptions() != {}
    assert repr(CliOptions(model="a", max_turns=1)) == "Options(model='a', max_turns=1)"


def test_a_group_sees_its_own_options() -> None:
    limits: LimitOptions = CliOptions(max_turns=3, model="a")

    assert limits.max_turns == 3
    assert LimitOptions(max_turns=3).replace(max_turns=4).max_turns == 4


def test_an_option_that_does_not_exist_is_our_bug() -> None:
    with pytest.raises(TypeError, match="no such option: colour, modle"):
        CliOptions(modle="a", colour="b", model="c")
