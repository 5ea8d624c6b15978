"""Transcripts as web pages."""

# /// script
# dependencies = ["claude-code-log==1.7.0"]
# ///
import os
import subprocess
from pathlib import Path

from recipe import run_claude

run_claude('call Bash {"command": "echo 42"}\nsay two plums', "--allowedTools", "Bash")
projects = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects"
folder = next(projects.iterdir())
subprocess.run(["claude-code-log", str(folder)], capture_output=True, text=True, check=True)
page = (folder / "combined_transcripts.html").read_text()
assert "two plums" in page
assert "echo 42" in page
