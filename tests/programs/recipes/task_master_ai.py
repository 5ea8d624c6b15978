"""Task Master: a task list from a document, with structured output."""

# /// script
# [tool.program]
# npm = ["task-master-ai@0.43.1"]
#
# [[tool.program.turns]]
# [[tool.program.turns.tools]]
# name = "StructuredOutput"
# [tool.program.turns.tools.input]
# metadata = { projectName = "plums", totalTasks = 1, sourceFile = "plums.txt", generatedAt = "2026-01-01" }
# [[tool.program.turns.tools.input.tasks]]
# id = 1
# title = "Count the plums"
# description = "Look at each plum."
# details = "There are two."
# testStrategy = "Count again."
# priority = "high"
# dependencies = []
# status = "pending"
#
# [[tool.program.turns]]
# text = "done"
# ///
import json
import os
import subprocess
from pathlib import Path

model = {"provider": "claude-code", "modelId": "sonnet", "maxTokens": 8000, "temperature": 0.2}
config = {
    "models": dict.fromkeys(("main", "research", "fallback"), model),
    "global": {"projectName": "plums", "anonymousTelemetry": False},
    "claudeCode": {"pathToClaudeCodeExecutable": os.environ["CLAUDE_CODE_EXECUTABLE"]},
}
Path(".taskmaster/tasks").mkdir(parents=True)
Path(".taskmaster/config.json").write_text(json.dumps(config))
Path("plums.txt").write_text("Count the plums.\n")
done = subprocess.run(
    ["task-master", "parse-prd", "plums.txt", "-n", "1", "--force"],
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    check=False,
)
path = Path(".taskmaster/tasks/tasks.json")
assert path.exists(), done.stdout + done.stderr
assert [task["title"] for task in json.loads(path.read_text())["master"]["tasks"]] == ["Count the plums"]
