"""promptfoo: an evaluation whose provider is the TypeScript SDK. Its database is an optional package, on Linux only."""

# /// script
# [tool.program]
# npm = ["promptfoo@0.121.20", "@anthropic-ai/claude-agent-sdk@0.3.327", "@libsql/linux-x64-gnu"]
# ///
import json
import os
import subprocess
from pathlib import Path

provider = {
    "id": "anthropic:claude-agent-sdk",
    "config": {
        "path_to_claude_code_executable": os.environ["CLAUDE_CODE_EXECUTABLE"],
        "working_dir": os.getcwd(),
        "custom_allowed_tools": ["Bash"],
    },
}
config = {
    "prompts": ["say two plums", 'call Bash {"command": "echo two plums"}\nshow'],
    "providers": [provider],
    "tests": [{"assert": [{"type": "contains", "value": "two plums"}]}],
}
Path("node_modules").symlink_to(Path(os.environ["PROGRAM"], "node_modules"))
Path("promptfooconfig.json").write_text(json.dumps(config))
own = {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1", "PROMPTFOO_CONFIG_DIR": os.getcwd()}
done = subprocess.run(
    ["promptfoo", "eval", "-c", "promptfooconfig.json", "-o", "out.json", "--no-cache", "--no-table", "--no-write"],
    env={**os.environ, **own},
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    check=False,
)
assert Path("out.json").exists(), done.stdout + done.stderr
found = json.loads(Path("out.json").read_text())["results"]
stats = found["stats"]
problems = [str(row.get("error") or row["response"])[:600] for row in found["results"]]
assert (stats["successes"], stats["failures"], stats["errors"]) == (2, 0, 0), problems
