"""A status line: what it prints of a session, from the input of a status line and its transcript."""

# /// script
# [tool.program]
# npm = ["ccstatusline@2.2.30"]
# turns = [{ text = "two plums", usage = { input_tokens = 12000, output_tokens = 50 } }]
# ///
import json
import os
import subprocess
from pathlib import Path

from recipe import run_claude

lines = run_claude("How many plums?", "--model", "claude-sonnet-4-5")
session = lines[-1]["session_id"]
transcript = next(Path(os.environ["CLAUDE_CONFIG_DIR"]).glob(f"projects/*/{session}.jsonl"))
input = {
    "hook_event_name": "Status",
    "session_id": session,
    "transcript_path": str(transcript),
    "cwd": os.getcwd(),
    "model": {"id": "claude-sonnet-4-5", "display_name": "Sonnet 4.5"},
    "workspace": {"current_dir": os.getcwd(), "project_dir": os.getcwd()},
    "version": lines[0]["claude_code_version"],
}
done = subprocess.run(["ccstatusline"], input=json.dumps(input), capture_output=True, text=True, check=True)
line = done.stdout.replace("\N{NO-BREAK SPACE}", " ")
assert "Sonnet 4.5" in line, line
assert "Ctx: 12.0k" in line, line
