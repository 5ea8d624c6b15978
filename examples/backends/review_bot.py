"""A bot that reviews the changes of a branch in CI: annotations for GitHub, and an exit code.

    python review_bot.py origin/main

It exits with 1 if a finding must be fixed, and with 0 if there is none or the review did not work: a model that is
down must not stop a merge. It can read files, and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Literal

from parley import ClaudeSDKError, Options, run_sync

MODEL = os.environ.get("REVIEW_MODEL", "sonnet")
MOST_CHARS = 200_000
PROMPT = """Review this change. Report bugs, security problems and broken promises of the documentation, not style.
Read the files around it before you report something. Report nothing that you are not sure of.

"""


@dataclass
class Finding:
    path: str
    line: int
    severity: Literal["error", "warning"]
    text: str


@dataclass
class Review:
    findings: list[Finding] = field(default_factory=list)


def main(base: str) -> int:
    command = ["git", "diff", "--merge-base", base]
    diff = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if not diff:
        return 0
    options = Options(
        model=MODEL,
        tools=["Read", "Grep", "Glob"],
        permission_mode="dontAsk",
        setting_sources=[],  # the change could contain settings
        output_type=Review,
        max_turns=30,
        max_budget_tokens=500_000,
    )
    try:
        result = run_sync(PROMPT + diff[:MOST_CHARS], options)
    except ClaudeSDKError as exc:
        print(f"::warning::the review did not work: {exc}")
        return 0
    for finding in result.output.findings:
        text = finding.text.replace("%", "%25").replace("\n", "%0A")
        print(f"::{finding.severity} file={finding.path},line={finding.line}::{text}")
    print(f"{len(result.output.findings)} findings, {result.usage.get('output_tokens')} tokens")
    return int(any(finding.severity == "error" for finding in result.output.findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
