// Processes that are started before their session: `startup()`, `prewarm()` and the claim.

import { options, sdk, task, tell, tellError } from "./telling.mjs";

/** What a host has at the start: a hook and a server of its own. */
function hostOptions() {
  const note = async (input) => {
    tell("hook", [input.hook_event_name, input.cwd]);
    return {};
  };
  const secret = sdk.tool("secret", "Tells the secret", {}, async () => {
    tell("called", "secret");
    return { content: [{ type: "text", text: "forty-two" }] };
  });
  return {
    ...options(),
    ...task.options,
    hooks: { PreToolUse: [{ hooks: [note] }] },
    mcpServers: { host: sdk.createSdkMcpServer({ name: "host", tools: [secret] }) },
  };
}

async function tellAll(query) {
  try {
    for await (const message of query) tell("message", message);
  } catch (flaw) {
    tellError(flaw);
  }
}

async function warmQuery() {
  const warm = await sdk.startup({ options: hostOptions() });
  tell("started", true);
  await tellAll(warm.query(task.prompt));
}

async function spareProcess() {
  const spare = await sdk.prewarm({ options: hostOptions() });
  tell("started", true);
  const claimed = spare.claimed.then(
    (found) => tell("claimed", found),
    (flaw) => tell("refused", flaw.message),
  );
  if (task.claim === undefined) spare.close();
  else {
    const query = spare.claim({ prompt: task.prompt, options: task.claim });
    const described = query.initializationResult().then((found) => tell("described", found));
    await tellAll(query);
    await described;
  }
  await claimed;
  await spare.exited;
  tell("exited", true);
}

try {
  await (task.kind === "startup" ? warmQuery() : spareProcess());
} catch (flaw) {
  tellError(flaw);
}
