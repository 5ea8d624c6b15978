"""A loop over a prompt file, on the Python SDK."""

# /// script
# dependencies = ["ralph-orchestrator==1.2.3"]
# ///
import subprocess
from pathlib import Path

subprocess.run(["git", "init", "--quiet", "."], check=True)
path = Path("plums.txt").absolute()
Path("PROMPT.md").write_text(f'call Write {{"file_path": "{path}", "content": "two"}}\nsay done\n')
done = subprocess.run(
    ["ralph", "run", "-a", "claude", "-i", "1", "--no-git"],
    stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
)  # fmt: skip
assert path.exists(), done.stdout + done.stderr
assert path.read_text() == "two"
