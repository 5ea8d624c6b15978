// A command line for agents of the Agent Client Protocol, with the vendor's agent and with Parley's own.

// /// script
// [tool.program]
// npm = ["acpx@0.19.1", "@agentclientprotocol/claude-agent-acp@0.99.1"]
// ///
import assert from "node:assert";
import { execFileSync } from "node:child_process";

for (const agent of ["claude-agent-acp", "claude acp"]) {
  const text = execFileSync("acpx", ["--agent", agent, "exec", "say two plums"], { encoding: "utf8" });
  assert.ok(text.includes("two plums"), text);
}
