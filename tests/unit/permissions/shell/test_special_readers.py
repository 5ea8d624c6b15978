"""Programs of awk in the arguments: which of them only print. Scripts of sed are in paths/test_operands.py."""

from __future__ import annotations

import pytest

from parley.permissions.shell.special_readers import edits_lines, only_prints


@pytest.mark.parametrize(
    "program",
    [
        "{print $1}", "1", "", "NR > 1 { sum += $2 } END { print sum }", "/foo/ {print $2}", "$3 > 5", "!seen[$0]++",
        "{print ($1+$2)/2}", "{print length($0)}", "length > 80", '{printf "%s\\n", $1}', "NR==FNR{a[$1];next} $1 in a",
        '{gsub(/"/, ""); print}', '{print $1 "/" $2}', 'BEGIN { for (i = 0; i < 3; i++) print i }', "/a|b/ && !/c/",
        "{x = $1 > 3 ? 1 : 0; print x}", "/[[:space:]]$/", 'BEGIN{FS=OFS=","}{$2="";print}', "{print $NF}",
    ],
)  # fmt: skip
def test_a_program_only_prints(program: str) -> None:
    assert only_prints(program)


@pytest.mark.parametrize(
    "program",
    [
        '{print $1 > "x"}', '{print $1 >> "x"}', '{print | "sh"}', 'BEGIN{system("id")}', 'BEGIN{system ("id")}',
        '{"id" | getline x}', '{getline < "f"}', "getline", '{print ENVIRON["X"]}', '{a/system("x")/b}', "/[/]/",
        '{print $1,\n$2 > "x"}', '@include "x"', '@load "x"', 'BEGIN{ARGV[1]="x"}', 'function f(){system("x")}',
        '{awk::system("x")}', "BEGIN{f=1;@f()}", 'BEGIN{printf("x") > "y"}', "{print $1 # x\n}", '{print "a}',
        "{a\\\n}",
        '{if (x) print y > "z"}', '{print (1) > "z"}', 'BEGIN{print PROCINFO["x"]}', '{x /a"/ b ; system("y") "/" }',
        '{print a |& "x"}', "BEGIN{close(1)}", '/[a/]b"]/{print > "x"}', '{print > $1}', "BEGIN{x(1)}",
        '($1) /"/ system("id") /"/', '{print $1; print $2 > "x"}', "{print\n> x}",
    ],
)  # fmt: skip
def test_a_program_may_do_more_than_print(program: str) -> None:
    assert not only_prints(program)


def test_a_line_end_in_a_replacement_may_end_the_text_before_it() -> None:
    """`sed -e 'a\\' -e 's/a/b<newline>w x/'`: the first line becomes text, and the second one writes a file."""
    assert not edits_lines("s/a/b\nw x/")
