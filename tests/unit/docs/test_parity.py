"""Rows and declarations are read strictly: whatever is wrong with them is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from parity import rows, typescript
from parity.typescript import Literal, ParseError

from parley.protocol.messages.system import CAPABILITIES

DECLARATIONS = """
import { z } from 'zod';
/** Not a type: { x: string } */
export declare class Thing { private a?; constructor(b: string); }
export declare function make(options?: { a: string }): Promise<void>;
declare namespace inner { export { Message } }
export declare const NAMES: readonly ['One', "Two"];
declare const Schema: () => z.ZodObject<{ on: z.ZodOptional<z.ZodBoolean>; deep: z.ZodObject<{ x: z.ZodString }> }>;
export declare type Base = { id: string; };
export declare type Message = Base & {
    type: 'message';
    /** A list; with `{` in its comment. */
    items?: Array<{ name: string; "odd-name": number }>;
    by: Record<string, { size: number } | string>;
    call(value: string): void;
    then?: (value: { not: string }) => void;
    [key: string]: unknown;
} | (Base & { type: `other`; readonly pair: [first: number, second?: { z: 1 }] });
export interface Wide extends Base, Partial<Omit<Message, 'by'>> { own: z.infer<ReturnType<typeof Schema>>; }
export declare type Loop = { next: Loop | null };
"""


@pytest.fixture(scope="module")
def module() -> typescript.Module:
    return typescript.read(DECLARATIONS)


def test_fields_of_unions_and_intersections_are_put_together(module: typescript.Module) -> None:
    fields = module.fields(module.types["Message"])

    assert list(fields) == ["id", "type", "items", "by", "call", "then", "pair"]
    assert module.texts(fields["type"]) == ["message", "other"]


def test_paths_lead_through_lists_mappings_and_tuples(module: typescript.Module) -> None:
    assert list(module.flatten(module.types["Message"], 9)) == [
        *("id", "type", "items", "items[].name", "items[].odd-name", "by", "by.*.size", "call", "then", "pair"),
        "pair[].z",
    ]
    assert list(module.flatten(module.types["Message"], 1))[-1] == "pair"


def test_interfaces_have_the_fields_of_their_bases(module: typescript.Module) -> None:
    assert list(module.flatten(module.types["Wide"], 2)) == [
        *("id", "type", "items", "items[].name", "items[].odd-name", "call", "then", "pair", "pair[].z"),
        *("own", "own.on", "own.deep"),
    ]


def test_constants_and_loops_are_read(module: typescript.Module) -> None:
    assert module.texts(module.constants["NAMES"]) == ["One", "Two"]
    assert list(module.flatten(module.types["Loop"], 3)) == ["next", "next.next", "next.next.next"]
    assert Literal("One") in module.members(typescript.Choice((Literal("One"),)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("type A = {\n  a: ;\n}", "line 2: a type cannot start with ';'"),
        ("type A = { a: string", "line 1: expected ':', found ''"),
        ("type A = #", "line 1: unexpected '#'"),
    ],
)
def test_what_is_not_understood_is_an_error_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        typescript.read(text)


HERE = "unit/docs/test_parity.py::test_a_right_file_has_no_problems"


def load(folder: Path, text: str) -> rows.Table:
    (folder / "things.toml").write_text(text)
    return rows.load("things", folder)


def test_a_right_file_has_no_problems(tmp_path: Path) -> None:
    table = load(tmp_path, f'"a" = {{ works = "{HERE}", fields = "x y" }}\n"b" = {{ refused = "not supported" }}\n')

    assert table.problems == ()
    assert list(table.by_name()) == ["a", "a.x", "a.y", "b"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('"a" = { works = "" }', "'a' says works without a test"),
        ('"a" = { silent = " " }', "'a' says silent without a text"),
        ('"a" = { works = "unit/docs/test_parity.py::test_nothing" }', "has no test test_nothing"),
        ('"a" = { works = "unit/nowhere.py::test_a" }', "there is no file tests/unit/nowhere.py"),
        ('"a" = { works = "by hand" }', "'by' is not PATH::TEST"),
        ('"a" = { perhaps = "x" }', "'a' needs exactly one of works, refused, not-ours, silent"),
        ('"a" = { silent = "x", refused = "y" }', "'a' needs exactly one of"),
        ('"a" = "works"', "'a' needs exactly one of"),
        ('"b" = { silent = "x" }\n"a" = { silent = "x" }', "'b' is not in its place"),
        ('"a" = { silent = "x", fields = "b" }\n"a.b" = { silent = "x" }', "'a.b' has two rows"),
        ('"a" = { silent = "x" }\n"a" = { silent = "x" }', "things.toml: Cannot overwrite a value"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, text: str, problem: str) -> None:
    assert [found for found in load(tmp_path, text).problems if problem in found]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert rows.load("things", tmp_path).problems == ("things.toml does not exist",)


def test_a_capability_is_advertised_exactly_if_it_works() -> None:
    found = rows.load("capabilities").by_name().values()

    assert {row.name for row in found if row.status == "works"} == set(CAPABILITIES)
