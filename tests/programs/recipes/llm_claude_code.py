"""A plugin of `llm`, on the first Python SDK."""

# /// script
# dependencies = ["llm-claude-code==0.0.3"]
# ///
import subprocess


def run(*words: str) -> str:
    done = subprocess.run(["llm", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


assert "claude-code" in run("models")
assert "two plums" in run("-m", "claude-code", "--no-stream", "say two plums")
assert "three plums" in run("-m", "claude-code", "say three plums")
