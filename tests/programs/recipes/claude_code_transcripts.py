"""Transcripts as pages, by Simon Willison's program."""

# /// script
# dependencies = ["claude-code-transcripts==0.6"]
# ///
import os
import subprocess
from pathlib import Path

from recipe import run_claude

run_claude('call Bash {"command": "echo 42"}\nsay two plums', "--allowedTools", "Bash")
transcript = next(Path(os.environ["CLAUDE_CONFIG_DIR"]).glob("projects/*/*.jsonl"))
command = ["claude-code-transcripts", "json", str(transcript), "-o", "pages"]
subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
page = Path("pages/page-001.html").read_text()
assert "two plums" in page
assert "echo 42" in page
