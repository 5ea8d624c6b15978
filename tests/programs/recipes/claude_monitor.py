"""A monitor of usage, once."""

# /// script
# dependencies = ["claude-monitor==4.0.0"]
# [tool.program]
# turns = [{ text = "two plums", usage = { input_tokens = 1000, output_tokens = 50 } }]
# ///
import os
import subprocess
from pathlib import Path

from recipe import run_claude

Path(os.environ["HOME"], ".claude").symlink_to(os.environ["CLAUDE_CONFIG_DIR"])
run_claude("How many plums?", "--model", "claude-sonnet-4-5")
command = ["claude-monitor", "--view", "daily", "--once", "--timezone", "UTC"]
done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
assert done.returncode == 0, done.stdout + done.stderr
assert "50" in done.stdout, done.stdout + done.stderr
