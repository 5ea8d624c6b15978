"""The whole command line, from Python. It finds the executable on PATH."""

# /// script
# dependencies = ["pyclaudecli==1.0.6"]
# ///
from pathlib import Path

from pyclaudecli import ClaudeCLI, ClaudeCLIError

cli = ClaudeCLI()


def fails(call: object, *words: object) -> str:
    try:
        call(*words)  # type: ignore[operator]
    except ClaudeCLIError as exc:
        return str(exc)
    raise AssertionError(f"{call} should have failed")


# Prompts.
assert cli.prompt("say Hello").strip() == "Hello"
assert cli.prompt_json("say Hello")["result"] == "Hello"
assert [line["type"] for line in cli.prompt_stream("say Hello")][-1] == "result"

# Management: lists are empty, what is missing fails.
assert cli.list_agents() == []
assert cli.list_agents(all=True) == []
assert cli.auth_status()["loggedIn"] is True
assert cli.auth_status(as_json=False)
assert cli.auth_logout()
assert (
    set(cli.auto_mode_config()) == set(cli.auto_mode_defaults()) == {"allow", "soft_deny", "hard_deny", "environment"}
)
assert cli.auto_mode_reset()
for call in (cli.logs, cli.stop, cli.rm, cli.respawn, cli.mcp_logout, cli.plugin_details, cli.plugin_update):
    fails(call, "missing")
fails(cli.start_background, "say Hello")
fails(cli.ultrareview)
fails(cli.project_purge, str(Path("nowhere").absolute()))

# MCP servers.
assert "No MCP servers configured" in cli.mcp_list()
cli.mcp_add("one", "program", "argument", env=["A=1"])
cli.mcp_add("two", "http://127.0.0.1:9/mcp", transport="http", header=["X-One: 1"])
cli.mcp_add_json("three", {"command": "program"}, scope="user")
assert "Type: stdio" in cli.mcp_get("one")
cli.mcp_logout("two")
for name in ("one", "two", "three"):
    cli.mcp_remove(name)
cli.mcp_reset_project_choices()

# Plugins, from a marketplace.
market = Path("market")
(market / ".claude-plugin").mkdir(parents=True)
(market / ".claude-plugin" / "marketplace.json").write_text(
    '{"name": "market", "owner": {"name": "o"}, "plugins": [{"name": "plug", "source": "./plug"}]}'
)
(market / "plug" / ".claude-plugin").mkdir(parents=True)
(market / "plug" / ".claude-plugin" / "plugin.json").write_text('{"name": "plug", "version": "1.0.0"}')
assert "No marketplaces configured" in cli.plugin_marketplace_list()
cli.plugin_marketplace_add(str(market.absolute()))
assert cli.plugin_install("plug@market", as_json=True)["outcome"] == "ok"
assert [row["id"] for row in cli.plugin_list(as_json=True)] == ["plug@market"]
assert "plug 1.0.0" in cli.plugin_details("plug")
assert cli.plugin_disable(all=True)
assert cli.plugin_enable("plug", as_json=True)["outcome"] == "ok"
assert cli.plugin_disable("plug", as_json=True)["outcome"] == "ok"
assert cli.plugin_update("plug", yes=True, as_json=True)["updateOutcome"] == "up_to_date"
assert cli.plugin_validate(str(market / "plug"), as_json=True)["success"] is True
assert "Nothing to prune" in cli.plugin_prune(dry_run=True)
assert cli.plugin_uninstall("plug", keep_data=True, yes=True, as_json=True)["outcome"] == "ok"
cli.plugin_marketplace_update()
cli.plugin_marketplace_remove("market")
