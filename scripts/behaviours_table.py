"""Write the behaviours of the protocol, src/parley/conformance/behaviours.tsv, from the catalogue.

    python scripts/behaviours_table.py [CATALOGUE] [--check]

The catalogue is a folder of Markdown pages whose tables describe the protocol row by row. It is not part of the
package, so its rows are kept as a table: id, area, level, priority, summary, source. Without `--check` the table is
written; with it, a difference is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

CATALOGUE = Path(__file__).parents[2] / "shared" / "protocol"
TABLE = Path(__file__).parents[1] / "src" / "parley" / "conformance" / "behaviours.tsv"
HEADER = "id\tarea\tlevel\tpriority\tsummary\tsource"
SUMMARY_CHARS = 120

SECTIONS = {
    ("messages", "1. Framing rules"): ("framing", "messages", "core"),
    ("messages", "2. Index of stdout messages"): ("out", "messages", "core"),
    ("messages", "3. Index of stdin messages"): ("in", "messages", "core"),
    ("messages", "4. `user`"): ("user", "messages", "core"),
    ("messages", "5. `assistant`"): ("assistant", "messages", "core"),
    ("messages", "5.1 Content blocks"): ("block", "messages", "core"),
    ("messages", "6. `stream_event`"): ("stream_event", "messages", "core"),
    ("messages", "7. `result`"): ("result", "messages", "core"),
    ("messages", "8.1 `init`"): ("init", "messages", "core"),
    ("messages", "8.2 Other P0 subtypes"): ("system", "messages", "core"),
    ("messages", "8.3 P1 subtypes"): ("system", "messages", "core"),
    ("messages", "9. Other top-level types"): ("top", "messages", "core"),
    ("control", "1. Envelopes"): ("envelope", "control", "control"),
    ("control", "3. Timeouts and silence"): ("silence", "control", "control"),
    ("control", "4. SDK"): ("request", "control", "control"),
    ("control", "Request"): ("initialize", "control", "control"),
    ("control", "Success response"): ("initialized", "control", "control"),
    ("control", "8.4 Common output"): ("hook_output", "hooks", "control"),
    ("control", "8.5 Events"): ("hook", "hooks", "control"),
    ("control", "9.1 `can_use_tool`"): ("can_use_tool", "permissions", "control"),
    ("control", "9.2 Decision order"): ("mode", "permissions", "control"),
    ("control", "9.3 PermissionUpdate"): ("permission_update", "permissions", "control"),
    ("control", "9.4 Rule grammar"): ("rule", "permissions", "control"),
    ("control", "9.5 ExitPlanMode"): ("asked_tool", "permissions", "control"),
    ("control", "Config forms"): ("mcp", "mcp", "control"),
    ("control", "11. Engine"): ("ask", "control", "control"),
    ("cli", "2. Flags"): ("flag", "command line", "core"),
    ("cli", "Set by the SDKs for the child"): ("client_env", "environment", "core"),
    ("cli", "The engine should honour"): ("env", "environment", "core"),
    ("cli", "4. Exit codes"): ("exit", "exit codes", "core"),
    ("cli", "6.1 Session transcripts"): ("transcript", "sessions", "sessions"),
    ("tools", "1. P0: the ten of the seeds"): ("tool", "tools", "core"),
    ("tools", "2. P0: plan and question tools"): ("tool", "tools", "core"),
    ("tools", "3. P1"): ("tool", "tools", "core"),
    ("tools", "5. Behaviour facts"): ("tool_fact", "tools", "core"),
    ("dialects", "1. Message by message"): ("dialect", "dialects", "dialects"),
    ("dialects", "2. Result mapping"): ("dialect_result", "dialects", "dialects"),
}
"""What the ids of a section begin with, its area and its level."""
SESSION_FLAGS = ("resume", "continue", "session-id", "fork-session", "session-mirror")
DIALECT_FLAGS = ("flag.stdio", "flag.db")


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--check"]
    catalogue = Path(words[0]) if words else CATALOGUE
    if not catalogue.is_dir():
        print(f"{catalogue} is not here; the table stays as it is", file=sys.stderr)
        return 0
    text = render(catalogue)
    if "--check" in sys.argv:
        if TABLE.read_text(encoding="utf-8") != text:
            print(f"{TABLE} differs from the catalogue: run scripts/behaviours_table.py", file=sys.stderr)
            return 1
        return 0
    TABLE.write_text(text, encoding="utf-8")
    print(f"{len(text.splitlines()) - 1} behaviours")
    return 0


def render(catalogue: Path) -> str:
    """The table as text."""
    rows = [row for page in ("messages", "control", "cli", "tools", "dialects") for row in page_rows(catalogue, page)]
    seen: dict[str, int] = {}
    lines = [HEADER]
    for key, *rest in rows:
        seen[key] = seen.get(key, 0) + 1
        lines.append("\t".join([key if seen[key] == 1 else f"{key}-{seen[key]}", *rest]))
    return "\n".join(lines) + "\n"


def page_rows(catalogue: Path, page: str) -> Iterator[list[str]]:
    section, parent = "", ""
    header: list[str] = []
    for line in (catalogue / f"{page}.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            parent = section = line.strip("# ")
        elif line.startswith("### "):
            section = line.strip("# ")
            if named := find_section(page, parent) if page == "tools" else None:
                name = re.sub(r"\W.*", "", section)
                yield row(f"{named[0]}.{name}", named, priority_of(parent), section, page, parent)
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not header:
            header = cells
        elif set(line) - set("|-: ") and (named := find_section(page, section)):
            yield table_row(named, header, cells, page, section)


def find_section(page: str, section: str) -> tuple[str, str, str] | None:
    return next((named for (its, start), named in SECTIONS.items() if its == page and section.startswith(start)), None)


def table_row(named: tuple[str, str, str], header: list[str], cells: list[str], page: str, section: str) -> list[str]:
    priority = cells[header.index("Prio")] if "Prio" in header else priority_of(section)
    name, summary = identify(cells[0], named[0]), describe(header, cells)
    return row(f"{named[0]}.{name}", named, priority, summary, page, section)


def row(key: str, named: tuple[str, str, str], priority: str, summary: str, page: str, section: str) -> list[str]:
    _, area, level = named
    if re.search(r"_[BCD]$", key) or re.search(r"\([BCD]\)", priority):
        area, level = "dialects", "dialects"
    if any(flag in key for flag in SESSION_FLAGS) and key.startswith("flag."):
        area, level = "sessions", "sessions"
    if key in DIALECT_FLAGS:
        area, level = "dialects", "dialects"
    found = re.match(r"P[0-2]", priority)
    number = re.match(r"[\d.]+", section)
    source = f"{page}.md §{number[0].rstrip('.')}" if number else f"{page}.md, {section}"
    return [key, area, level, found[0] if found else "-", shorten(summary), source]


def priority_of(section: str) -> str:
    found = re.search(r"\bP[01]\b", section)
    return found[0] if found else ""


def identify(cell: str, prefix: str) -> str:
    """The id of a row, from its first cell: the names in code, else its words."""
    names = re.findall(r"`([^`]+)`", cell)
    marks = re.findall(r"\((?:[BCD])(?:[, ][^)]*)?\)", cell)
    text = "+".join(names[:2]) if names else cell
    text = re.sub(r"\{.*", "", text)
    if marks:
        text += "_" + re.findall(r"[BCD]", marks[0])[0]
    text = re.sub(r"[^A-Za-z0-9_+/\-.]+", "-", text).strip("-.")
    return text[:48].strip("-") or {"flag": "end-of-flags", "framing": "bad-JSON"}.get(prefix, "added")


def describe(header: list[str], cells: list[str]) -> str:
    """The cell that says most, else the first."""
    wanted = ("Meaning", "Detail", "Effect", "Notes", "Fields (beyond common)", "Fields", "Rule", "Matches", "Payload")
    for name in wanted:
        if name in header and header.index(name) < len(cells) and cells[header.index(name)]:
            return f"{cells[0]}: {cells[header.index(name)]}"
    return f"{cells[0]}: {cells[-1]}" if cells[-1] and len(cells) > 1 else cells[0]


def shorten(text: str) -> str:
    text = re.sub(r"\s+", " ", text.replace("`", "").replace("**", "")).strip()
    return text if len(text) <= SUMMARY_CHARS else text[: SUMMARY_CHARS - 1].rstrip() + "…"


if __name__ == "__main__":
    raise SystemExit(main())
