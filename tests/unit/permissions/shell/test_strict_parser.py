"""The strict parser: what it proves, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.permissions.shell.strict_parser import (
    CommandLine,
    Redirect,
    SimpleCommand,
    Unclear,
    only_prints,
    parse_strict,
)


def commands(text: str) -> tuple[SimpleCommand, ...]:
    line = parse_strict(text)
    assert isinstance(line, CommandLine), line
    return line.commands


def argv(text: str) -> list[tuple[str, ...]]:
    return [command.argv for command in commands(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git log --oneline -5", ("git", "log", "--oneline", "-5")),
        ("  ls\t -a  ", ("ls", "-a")),
        ("echo 'a  b' \"c d\"", ("echo", "a  b", "c d")),
        ("echo a'b'\"c\"d", ("echo", "abcd")),
        ("echo '' \"\"", ("echo", "", "")),
        ("echo a\\ b \\$x \\;", ("echo", "a b", "$x", ";")),
        (r'echo "a\"b\\c\$d\`e\f"', ("echo", 'a"b\\c$d`e\\f')),
        ("echo '$(id) `id` \\'", ("echo", "$(id) `id` \\")),
        ('grep "end$" "a$ b" "x$|y$"', ("grep", "end$", "a$ b", "x$|y$")),
        ("git diff HEAD~1 HEAD^ a#b", ("git", "diff", "HEAD~1", "HEAD^", "a#b")),
        ("echo 'ä ö' \"ü\"", ("echo", "ä ö", "ü")),
        ("echo 'two\nlines'", ("echo", "two\nlines")),
        ("find . ! -name x", ("find", ".", "!", "-name", "x")),
        (": a", (":", "a")),
        ("echo A=b if then", ("echo", "A=b", "if", "then")),
        ("time -p ls", ("time", "-p", "ls")),
    ],
)
def test_words_are_what_the_program_will_get(text: str, expected: tuple[str, ...]) -> None:
    assert argv(text) == [expected]


@pytest.mark.parametrize("operator", ["&&", "||", ";", "|", "|&", "&", "\n"])
def test_every_separator_ends_a_command(operator: str) -> None:
    first, second = commands(f"ls -a{operator}pwd")

    assert (first.argv, first.before, first.after) == (("ls", "-a"), "", operator)
    assert (second.argv, second.before, second.after) == (("pwd",), operator, "")


@pytest.mark.parametrize(
    "text",
    ["\n\nls\n\npwd\n", "ls ;\npwd;", "ls &&\n\n pwd", "ls |\npwd", "ls & pwd &", "ls\n \t\npwd", "ls ||\npwd\n"],
)
def test_a_newline_may_stand_where_a_command_is_yet_to_come(text: str) -> None:
    assert argv(text) == [("ls",), ("pwd",)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls 2>&1", [Redirect("2", ">&", "1")]),
        ("ls >&2", [Redirect("", ">&", "2")]),
        ("ls > /dev/null 2>/dev/null", [Redirect("", ">", "/dev/null"), Redirect("2", ">", "/dev/null")]),
        ("< in.txt ls", [Redirect("", "<", "in.txt")]),
        ("ls>'a b'", [Redirect("", ">", "a b")]),
        ("ls >> a >| b <> c", [Redirect("", ">>", "a"), Redirect("", ">|", "b"), Redirect("", "<>", "c")]),
        ("ls &> a", [Redirect("", "&>", "a")]),
        ("ls &>> a", [Redirect("", "&>>", "a")]),
    ],
)
def test_redirections_have_literal_targets(text: str, expected: list[Redirect]) -> None:
    (command,) = commands(text)

    assert command.argv == ("ls",)
    assert list(command.redirects) == expected


@pytest.mark.parametrize("text", ["ls 2 > a", "ls '2'> a", "ls \\2>a", "ls x2>a", "ls 2&>a"])
def test_only_digits_right_before_the_operator_are_a_descriptor(text: str) -> None:
    (command,) = commands(text)

    assert len(command.argv) == 2
    assert command.redirects[0].descriptor == ""


@pytest.mark.parametrize(
    ("operator", "target", "writes", "reads"),
    [
        (">", "a", True, False),
        (">", "/dev/null", False, False),
        (">&", "1", False, False),
        ("<", "a", False, True),
        ("<", "/dev/null", False, False),
        ("<>", "a", True, True),
        ("&>", "a", True, False),
    ],
)
def test_a_redirection_knows_whether_it_reads_or_writes(operator: str, target: str, writes: bool, reads: bool) -> None:
    redirect = Redirect("", operator, target)

    assert (redirect.writes, redirect.reads) == (writes, reads)


def test_assignments_stand_in_front_and_globs_are_marked() -> None:
    (command,) = commands("A=1 B='x y' ls *.py a\\*b 'c*' d[ef]")

    assert command.assignments == (("A", "1"), ("B", "x y"))
    assert command.argv == ("ls", "*.py", "a*b", "c*", "d[ef]")
    assert command.words == ("ls", "*.py", "a\\*b", "'c*'", "d[ef]")
    assert command.globs == (1, 4)
    assert command.text == "A=1 B='x y' ls *.py a\\*b 'c*' d[ef]"


def test_the_text_of_a_command_is_its_own_part_of_the_line() -> None:
    assert [command.text for command in commands(" ls -a  2>&1 |  wc -l ; A=1")] == ["ls -a  2>&1", "wc -l", "A=1"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no command"),
        (" \n ", "no command"),
        ("echo $x", "an expansion"),
        ("echo `id`", "a substitution"),
        ("(ls)", "a subshell, a function or an array"),
        ("echo {a,b}", "a brace"),
        ("cat <<E", "a here-document or a duplicated input"),
        ("cat <&3", "a here-document or a duplicated input"),
        ("ls ~", "a tilde"),
        ("ls # x", "a comment"),
        ("echo a \\\nb", "an escaped line end"),
        ("echo a\\", "an escaped line end"),
        ('echo "$x"', "an expansion"),
        ('echo "a\\\nb"', "an unclosed quote, or one with an expansion"),
        ("echo 'x", "an unclosed quote"),
        ("case a in b) ls;; esac", "a subshell, a function or an array"),
        ("ls ;; ls", "a case"),
        ("cat résumé", "an unquoted non-ASCII character"),
        ("ls && ; ls", "an operator without a command before it"),
        ("&& ls", "an operator without a command before it"),
        ("ls &&", "an operator without a command after it"),
        ("ls |\n", "an operator without a command after it"),
        ("ls >", "a redirection without a target"),
        ("ls > > a", "a redirection without a target"),
        ("ls > ; pwd", "a redirection without a target"),
        ("ls > *.txt", "a redirection to a glob or to nothing"),
        ("ls > ''", "a redirection to a glob or to nothing"),
        ("ls >& out", "a redirection of stdout and stderr together"),
        ("ls >&-", "a redirection of stdout and stderr together"),
        ("ls 1234>/dev/null", "a file descriptor with too many digits"),
        ("cat 12345<a", "a file descriptor with too many digits"),
        ("cat < /dev/tcp/a/1", "a redirection to the network"),
        ("cat > '/dev//udp/a/1'", "a redirection to the network"),
        ("A+=1 ls", "an assignment that is not just a name and a value"),
        ("A=*.py ls", "an assignment that is not just a name and a value"),
        ("while true", "a reserved word"),
        ("then ls", "a reserved word"),
        ("! ls", "a reserved word"),
        ("time if ls", "a reserved word"),
        ("'ls' -a", "a command name that is not a plain word"),
        ("l\\s", "a command name that is not a plain word"),
        ("l* -a", "a command name that is not a plain word"),
        ("-x", "a command name that is not a plain word"),
        ("%1", "a command name that is not a plain word"),
        ("time A=1 ls", "a command name that is not a plain word"),
        ("time -- ls", "a command name that is not a plain word"),
        ("time", "`time` without a command"),
        ("time -p", "`time` without a command"),
        ("ls\x00", "a control character"),
        ("ls\rpwd", "a control character"),
        ("echo '\ud800'", "a control character"),
        ("echo '\x9b'", "a control character"),
        ("ls " + "a" * 10_000, "more than 10,000 characters"),
    ],
)
def test_what_cannot_be_proven_is_unclear(text: str, reason: str) -> None:
    assert parse_strict(text) == Unclear(reason)


def test_a_command_as_long_as_the_limit_is_read() -> None:
    assert argv("ls " + "a" * 9_997) == [("ls", "a" * 9_997)]


@given(st.text(alphabet=" \t\n'\"\\|&;<>()$`*?[]{}~#!^=%ab2-/.é\r", max_size=40))
def test_whatever_the_text_the_tokenizer_answers_and_its_words_come_from_it(text: str) -> None:
    line = parse_strict(text)

    if isinstance(line, CommandLine):
        assert all(command.text.removesuffix(command.document or "") in text for command in line.commands)
        assert all((command.document or "") in text for command in line.commands)
        assert all(word in command.text for command in line.commands for word in command.words)
        assert not any(mark in word for command in line.commands for word in command.words[:1] for mark in "$`'\"\\*")


DOCUMENT = "git commit -m \"$(cat <<'EOF'\n{}EOF\n)\""


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("one\n", "one"),
        ('it\'s `x` $y \\ "z"\n\nend\n\n\n', 'it\'s `x` $y \\ "z"\n\nend'),
        ("(a) b\n", "(a) b"),
        ("", ""),
        (" EOF\nEO\n", " EOF\nEO"),
    ],
)
def test_a_quoted_here_document_is_a_word(body: str, value: str) -> None:
    assert argv(DOCUMENT.format(body)) == [("git", "commit", "-m", value)]


@pytest.mark.parametrize("body", ["EOF\nid\n", "EOF id\n", "EOF;id\n", "EOFx\n", 'a) "\n'])
def test_a_here_document_that_may_end_elsewhere_is_unclear(body: str) -> None:
    assert isinstance(parse_strict(DOCUMENT.format(body)), Unclear)


@pytest.mark.parametrize(
    "text",
    [
        'echo "$(cat <<EOF\nx\nEOF\n)"',
        "echo \"$(cat <<-'EOF'\nx\nEOF\n)\"",
        "echo \"$(sh <<'EOF'\nx\nEOF\n)\"",
        "echo \"$(cat x <<'EOF'\nx\nEOF\n)\"",
        "echo \"$(cat <<'EOF'\nx\nEOF\n id)\"",
        "echo $(cat <<'EOF'\nx\nEOF\n)",
        "echo \"a$(cat <<'EOF'\nx\nEOF\n)\"",
    ],
)
def test_every_other_here_document_in_a_word_is_unclear(text: str) -> None:
    assert isinstance(parse_strict(text), Unclear)


def test_the_status_of_the_last_command_is_marked_as_not_known() -> None:
    assert [command.globs for command in commands('ls; echo $? "x $?" "\\$?" $?a')] == [(), (1, 2, 4)]


@pytest.mark.parametrize("text", ["$? x", "X=$? ls", "ls > $?", "[ a", "[", "[x ]", "[[ a ]]"])
def test_a_status_or_a_bracket_in_the_wrong_place_is_unclear(text: str) -> None:
    assert isinstance(parse_strict(text), Unclear)


def test_a_lone_bracket_is_not_a_pattern() -> None:
    [test] = commands("[ -f a* ]")

    assert (test.argv, test.globs) == (("[", "-f", "a*", "]"), (2,))


@given(st.lists(st.text("abT=-./:,@%+012", min_size=1, max_size=6) | st.sampled_from(["time", "if", "in"]), min_size=1))
def test_a_plain_line_is_read_as_it_would_be_with_quotes_in_it(words: list[str]) -> None:
    line, quoted = parse_strict(" ".join(words)), parse_strict(" ".join(["ls;", *words, "''"]))

    if isinstance(line, CommandLine) and not line.commands[0].argv:
        return  # Nothing but assignments: with a word behind it, it is another line.
    assert isinstance(line, CommandLine) == isinstance(quoted, CommandLine)
    if isinstance(line, CommandLine) and isinstance(quoted, CommandLine):
        assert (*line.commands[0].argv, "") == quoted.commands[1].argv
        assert line.commands[0].assignments == quoted.commands[1].assignments


# Here-documents as input.


def test_a_quoted_here_document_is_the_input_of_its_command() -> None:
    text = "cat <<'EOF' | grep -c x > out\n$(id) `id` \\\nEOFX\n EOF\nEOF\nls a"
    first, second, third = commands(text)

    assert (first.argv, first.redirects) == (("cat",), ())
    assert first.document == "\n$(id) `id` \\\nEOFX\n EOF\nEOF"
    assert first.text == f"cat <<'EOF'{first.document}"
    assert (second.argv, second.document, second.before, second.after) == (("grep", "-c", "x"), None, "|", "\n")
    assert (third.argv, third.before) == (("ls", "a"), "\n")


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("cat <<'EOF'\nEOF", "\nEOF"),
        ("cat <<'EOF'\nEOF\n", "\nEOF"),
        ('cat << "E_1"\n\n\nE_1\n\n', "\n\n\nE_1"),
        ("cat<<'E' 2>&1 -n\na\nE", "\na\nE"),
        ("<<'E' cat\na\nE", "\na\nE"),
        ("cat <<'E' \t\na 'b\nE", "\na 'b\nE"),
        ("cat <<'E'\nä\tö\nE", "\nä\tö\nE"),
    ],
)
def test_a_here_document_reaches_from_the_line_end_to_its_mark(text: str, document: str) -> None:
    [command] = commands(text)

    assert command.argv[0] == "cat"
    assert command.document == document


def test_here_documents_may_follow_each_other() -> None:
    found = commands("cat <<'A'\nB\nA\ncat <<'B' && ls\nA\nB\npwd")

    assert [(command.argv[0], command.document) for command in found] == [
        ("cat", "\nB\nA"),
        ("cat", "\nA\nB"),
        ("ls", None),
        ("pwd", None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "cat <<'EOF'",
        "cat <<'EOF'\nx",
        "cat <<'EOF'\nx\nEOF ",
        "cat <<'EOF'\nx\n EOF",
        "cat <<'EOF'\nx\n\tEOF",
        "cat <<EOF\nx\nEOF",
        "cat <<\\EOF\nx\nEOF",
        "cat <<-'EOF'\nx\nEOF",
        "cat <<'E'OF\nx\nEOF",
        "cat <<''\nx\n\n",
        "cat <<'E F'\nx\nE F",
        "cat <<'$x'\nx\n$x",
        "cat <<<'x'",
        "cat 0<<'E'\nx\nE",
        "cat 3<<'E'\nx\nE",
        "cat 12345<<'E'\nx\nE",
        "cat <<'A' <<'B'\nA\nB",
        "cat <<'A'; cat <<'B'\nA\nB",
        "cat <<'E' < a\nx\nE",
        "cat 0> a <<'E'\nx\nE",
        "cat < <<'E'\nx\nE",
        "cat <<'E' 'a\nb'\nx\nE",
        "cat <<'E' \"a\nb\"\nx\nE",
        "cat <<'E' |\nx\nE\nwc",
        "cat <<'E' &&\nx\nE\nls",
        "cat <<'E' ;\nx\nE",
        "cat <<'E' # y\nx\nE",
        "cat <<'E' \\\nx\nE",
        "cat <<'E'\nx\r\nE",
        "cat <<'E' $(id)\nx\nE",
        "cat <<'E'\nx\nE\n$(id)",
        "cat <<'E'\nx\nE && $(id)",
    ],
)
def test_every_other_here_document_is_unclear(text: str) -> None:
    assert isinstance(parse_strict(text), Unclear)


# Tildes.


def at_home(text: str, home: str | None = "/home/me") -> tuple[SimpleCommand, ...]:
    line = parse_strict(text, home)
    assert isinstance(line, CommandLine), line
    return line.commands


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls ~", ("ls", "/home/me")),
        ("ls ~/", ("ls", "/home/me/")),
        ("cat ~/a ~/b/../c", ("cat", "/home/me/a", "/home/me/b/../c")),
        ("cat ~/'a b'\"c\"\\ d", ("cat", "/home/me/a bc d")),
        ("cat ~/a~b", ("cat", "/home/me/a~b")),
        ("cat '~/a' \"~/a\" \\~/a HEAD~1 -I~/x", ("cat", "~/a", "~/a", "~/a", "HEAD~1", "-I~/x")),
    ],
)
def test_a_tilde_in_front_of_a_word_is_the_home_folder(text: str, expected: tuple[str, ...]) -> None:
    [command] = at_home(text)

    assert command.argv == expected
    assert " ".join(command.words) == text


def test_a_redirection_may_lead_home() -> None:
    [command] = at_home("cat <~/a 2> ~/b")

    assert command.redirects == (Redirect("", "<", "/home/me/a"), Redirect("2", ">", "/home/me/b"))


@pytest.mark.parametrize("home", [None, "", "home/me", "~", "/h*", "/a\nb"])
def test_without_a_home_folder_a_tilde_is_unclear(home: str | None) -> None:
    assert parse_strict("cat ~/a", home) == Unclear("a tilde")


@pytest.mark.parametrize(
    "text",
    [
        "ls ~root",
        "ls ~root/x",
        "ls ~+",
        "ls ~-/x",
        "ls ~1",
        "ls a=~/x",
        "ls --x=~/y",
        "ls a:~/x",
        "A=~/x ls",
        "A=b:~/x ls",
        "ls ''~/x",
        "ls 'a'~/x",
        "ls ~'/x'",
        'ls ~"/x"',
        "ls ~\\/x",
        "ls ~*",
        "ls ~/*",
        "ls ~/a?",
        "ls ~/$?",
        "ls > ~/*",
        "~/x",
        "~",
        "time ~/x",
        "ls {~/a,~/b}",
        "ls ~/x $(id)",
    ],
)
def test_every_other_tilde_is_unclear(text: str) -> None:
    assert isinstance(parse_strict(text, "/home/me"), Unclear)


@pytest.mark.parametrize(
    "text",
    [
        "HOME=/etc ls ~/x",
        "HOME=/etc; ls ~/x",
        "export HOME=/etc && ls ~/x",
        "export H''OME=/etc && ls ~/x",
        "unset HOME; ls ~",
        "read HOME; ls ~",
        "read x; ls ~",
        "source x; ls ~",
        ". x && ls ~",
        "ls ~ && time . x; ls ~",
        "eval x; ls ~",
        "command . x; ls ~",
        "builtin eval x; ls ~",
        "printf -v HOM\\E x; ls ~",
        "env HOME=/etc ls ~/x",
    ],
)
def test_a_tilde_is_unclear_where_the_line_may_change_home(text: str) -> None:
    assert parse_strict(text, "/home/me") == Unclear("a tilde in a command that may change HOME")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for f in a b; do wc -l $f; done", [("wc", "-l", "a"), ("wc", "-l", "b")]),
        ('for f in a "b c"; do cat "x/$f"; done | head', [("cat", "x/a"), ("cat", "x/b c"), ("head",)]),
        ("for i in {1..3}\ndo\n  echo ${i}.\ndone", [("echo", "1."), ("echo", "2."), ("echo", "3.")]),
        ("for i in $(seq 2); do echo $i; done", [("seq", "2"), ("echo", "1"), ("echo", "2")]),
        ("for f in a; do for g in b c; do echo $f$g; done; done", [("echo", "ab"), ("echo", "ac")]),
        ("for f in *.py; do wc $f; done", [(":", "*.py"), ("wc", "*.py")]),
        ("if [ -f a ]; then cat a; elif true; then ls; else pwd; fi 2>/dev/null",
         [("[", "-f", "a", "]"), ("cat", "a"), ("true",), ("ls",), ("pwd",)]),
        ('echo "at $(pwd) by $USER"', [("pwd",), ("echo", "at $(pwd) by $USER")]),
        ("basename $(pwd)", [("pwd",), ("basename", "$(pwd)")]),
        ("find . -exec ls {} +", [("find", ".", "-exec", "ls", "{}", "+")]),
    ],
)  # fmt: skip
def test_loops_branches_and_substitutions_become_commands_of_the_line(
    text: str, expected: list[tuple[str, ...]]
) -> None:
    assert argv(text) == expected


def test_the_value_of_home_is_known_and_that_of_other_variables_is_opaque() -> None:
    line = parse_strict('echo "$HOME/a" $USER', "/home/me")
    assert isinstance(line, CommandLine)

    assert line.commands[0].argv == ("echo", "/home/me/a", "$USER")
    assert (line.commands[0].globs, line.commands[0].opaque, line.commands[0].split) == ((2,), (2,), (2,))


def test_a_loop_variable_that_is_a_glob_is_that_glob_or_opaque() -> None:
    _, plain, quoted, longer = commands('for f in *.py; do wc $f; wc "$f"; echo "== $f"; done')

    assert (plain.globs, plain.split, plain.opaque) == ((1,), (1,), ())
    assert (quoted.globs, quoted.split, quoted.opaque) == ((1,), (), ())
    assert (longer.globs, longer.opaque) == ((1,), (1,))


@pytest.mark.parametrize(
    "text",
    [
        "echo $SECRET", "echo ${HOME:-x}", "echo $(( 1 + 1 ))", "cat $USER", "cat $(pwd)", "rm $(cat x)",
        "for PATH in a; do ls; done", "for path in a; do ls; done", "for npm_config_x in a; do ls; done",
        "for f in $(ls); do cat $f; done", "for f; do ls; done", "for f in; do ls; done", "for f in a; do ls",
        "for f in a b; ls; done", "for f in a; do $f; done", "for f in 'a b'; do cat $f; done",
        "for f in *; do cat $f.x; done", 'for f in *; do cat "$f.x"; done', "for f in a; do cd $f; done",
        "for f in a; do ls; done x", "for f in a; do ls; done > out", "for f in ~; do ls; done", "echo $(cd x; pwd)",
        "if ls; then pwd", "if; then pwd; fi", "if ls then; pwd; fi", "while true; do ls; done", "echo *$USER",
        "echo $(cat x)", "echo $(ls; pwd)", "echo `pwd`", 'echo "`pwd`"', "echo $(git branch)", "IFS=x; echo $USER",
        "read USER; echo $USER", "export USER=x; echo $USER", "printf -v USER x; echo $USER", "echo {a,b}", "echo $f",
        "for f in a; do ls; done; echo $f", "for f in a; do cat <<'E'\nx\nE\ndone", "for i in {1..200}; do ls; done",
        'echo "$(echo ")")"', "$(pwd) x", "ls > $(pwd)", "A=$(pwd) ls", "time for f in a; do ls; done",
        "cat <<'E'; for f in a; do\nls\nE\ndone", "echo {} {}x",
        "for f in a; do for f in b; do ls; done; done", "for f in a b |; do ls; done", "timeout 5 echo $(pwd)",
    ],
)  # fmt: skip
def test_an_expansion_whose_value_matters_is_unclear(text: str) -> None:
    assert isinstance(parse_strict(text, "/home/me"), Unclear)


@pytest.mark.parametrize("argv", [["printf"], ("printf",), ["printf", "-v", "x"], ["printf", "%n", "x"]])
def test_a_printf_without_a_format_that_is_known_may_set_a_variable(argv: Sequence[str]) -> None:
    assert not only_prints(argv)
