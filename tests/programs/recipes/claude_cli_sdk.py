"""A wrapper of the command line: an answer, and a failure."""

# /// script
# dependencies = ["claude-cli-sdk==0.2.1"]
# ///
from claude_cli_sdk import Claude, ClaudeConfig, check_claude_cli
from recipe import within


async def main() -> None:
    async with Claude(ClaudeConfig(input_format="text")) as claude:
        result = await claude.run("say two plums")
        assert result.text.strip() == "two plums", result


assert check_claude_cli()
within(main())
