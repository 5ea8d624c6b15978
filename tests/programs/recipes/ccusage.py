"""Usage by day, read from transcripts."""

# /// script
# [tool.program]
# npm = ["ccusage@17.2.1"]
# turns = [{ text = "two plums", usage = { input_tokens = 100, output_tokens = 50 } }]
# ///
import json
import subprocess

from recipe import run_claude

run_claude("How many plums?", "--model", "claude-sonnet-4-5")
done = subprocess.run(["ccusage", "daily", "--json", "--offline"], capture_output=True, text=True, check=True)
assert json.loads(done.stdout)["totals"]["outputTokens"] == 50, done.stdout
