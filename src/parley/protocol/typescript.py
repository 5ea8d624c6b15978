"""The schema as TypeScript: one interface for each definition.

    to_typescript(build_schema())       -> "export interface Assistant { ... }"

Objects have an index signature, because unknown fields are kept and never refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from parley.protocol.base import Json

IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
SCALARS = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}
OBJECT, ANY = "JsonObject", "unknown"
HEAD = """\
/* {title}, version {version}.
 * Generated from the classes of the messages; do not edit.
 * The unions have the known members only: an engine may send others, and a client should ignore them. */

export type JsonObject = {{ [key: string]: unknown }};
"""


def to_typescript(document: Json) -> str:
    """The types of all definitions, and `Line`, which is any line."""
    parts = [HEAD.format(title=document["title"], version=document["version"])]
    parts += [declare(name, shape) for name, shape in document["$defs"].items()]
    if "anyOf" in document:
        parts.append(f"/** Any line. */\nexport type Line ={join_lines(map(type_of, document['anyOf']))};\n")
    return "\n".join(parts)


def declare(name: str, shape: Json) -> str:
    """The declaration of one definition."""
    comment = f"/** {clean(shape['description'])} */\n" if shape.get("description") else ""
    if "properties" not in shape:
        return f"{comment}export type {name} ={join_lines(map(type_of, filter(is_known, shape['anyOf'])))};\n"
    return f"{comment}export interface {name} {{\n" + "".join(fields(shape)) + "}\n"


def is_known(shape: Json) -> bool:
    """Whether a member of a union has a name. With a member for all others, no `switch` could tell them apart."""
    return "$ref" in shape


def fields(shape: Json) -> Iterator[str]:
    required = shape.get("required", ())
    for name, value in shape["properties"].items():
        key = name if IDENTIFIER.fullmatch(name) else json.dumps(name)
        if value.get("description"):
            yield f"  /** {clean(value['description'])} */\n"
        yield f"  {key}{'' if name in required else '?'}: {type_of(value)};\n"
    if "jsonrpc" in shape["properties"]:
        yield "  type?: undefined;\n"  # tells it apart from all other lines
    yield "  [key: string]: unknown;\n"


def type_of(shape: Json) -> str:
    """A schema as a type."""
    match shape:
        case {"$ref": ref}:
            return str(ref.rpartition("/")[2])
        case {"enum": values}:
            return join_types(json.dumps(value) for value in values)
        case {"anyOf": shapes}:
            return join_types(map(type_of, shapes))
        case {"type": "array", "items": item}:
            return array_of(type_of(item))
        case {"type": "object", "properties": _}:
            return "{ " + "".join(part.strip() + " " for part in fields(shape)) + "}"
        case {"type": "object", "additionalProperties": dict() as item}:
            return f"{{ [key: string]: {type_of(item)} }}"
        case {"type": [*types]}:
            return join_types(type_of({"type": kind}) for kind in types)
        case {"type": "array"}:
            return "unknown[]"
        case {"type": "object"}:
            return OBJECT
        case {"type": str() as kind}:
            return SCALARS[kind]
    return ANY


def array_of(item: str) -> str:
    return f"({item})[]" if " | " in item else f"{item}[]"


def join_types(types: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(types))


def join_lines(types: Iterable[str]) -> str:
    return "".join(f"\n  | {each}" for each in dict.fromkeys(types))


def clean(text: str) -> str:
    return " ".join(text.replace("*/", "* /").split())
