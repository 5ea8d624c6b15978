"""The table of the keys of `sandbox`. docs/sandbox.md says what each means, and what it risks."""

from __future__ import annotations

from parley.settings.keys.kinds import COUNT, LIST, OBJECT, SWITCH, TEXT, TEXTS
from parley.settings.keys.table import ANYONE, MANAGED, PERSON, SettingKey, quiet, reported

MACOS = "it concerns only macOS"
NO_TLS = "the proxy does not decrypt connections"
SOCKETS = "the system call filter cannot tell Unix sockets by path; allowAllUnixSockets permits all of them"

NETWORK: dict[str, SettingKey] = {
    "allowedDomains": SettingKey(
        TEXTS, note="hosts that commands may reach; `*.example.com` for subdomains", merge="union"
    ),
    "deniedDomains": SettingKey(
        TEXTS, ANYONE, "hosts that commands may not reach, even if they are allowed", merge="union"
    ),
    "strictAllowlist": SettingKey(SWITCH, PERSON, "other hosts are refused, and no one is asked", merge="any_true"),
    "allowManagedDomainsOnly": SettingKey(SWITCH, MANAGED, "only managed settings can allow hosts"),
    "allowUnixSockets": reported(SOCKETS),
    "allowAllUnixSockets": SettingKey(SWITCH, note="commands may use Unix sockets, such as that of Docker"),
    "allowLocalBinding": SettingKey(
        SWITCH, note="always true in bubblewrap: commands have a loopback interface of their own"
    ),
    "allowMachLookup": quiet(MACOS),
    "httpProxyPort": SettingKey(COUNT, PERSON, "the port of your own HTTP proxy, which replaces the built-in one"),
    "socksProxyPort": SettingKey(COUNT, PERSON, "the port of your own SOCKS5 proxy"),
    "tlsTerminate": reported(NO_TLS),
}
FILESYSTEM: dict[str, SettingKey] = {
    "allowWrite": SettingKey(TEXTS, note="more paths that commands may change", merge="union"),
    "denyWrite": SettingKey(TEXTS, ANYONE, "paths in writable folders that commands may not change", merge="union"),
    "denyRead": SettingKey(TEXTS, ANYONE, "paths that commands may not read", merge="union"),
    "allowRead": SettingKey(
        TEXTS, PERSON, "paths that commands may read, although they are denied or hidden", merge="union"
    ),
    "allowManagedReadPathsOnly": SettingKey(SWITCH, MANAGED, "only managed settings can set `allowRead`"),
    "disabled": SettingKey(SWITCH, PERSON, "commands may read and change all files; only the network is confined"),
}
CREDENTIALS: dict[str, SettingKey] = {
    "files": SettingKey(
        LIST, ANYONE, "files that commands may not read; the mode `mask` is treated as `deny`", merge="union"
    ),
    "envVars": SettingKey(
        LIST, ANYONE, "variables that commands do not get; `mask` is treated as `deny`", merge="union"
    ),
    "allowPlaintextInject": reported(NO_TLS, off=(False,)),
    "awsPairs": reported(NO_TLS),
    "sigv4": reported(NO_TLS),
}
GROUPS = {"network": NETWORK, "filesystem": FILESYSTEM, "credentials": CREDENTIALS}
"""Objects in `sandbox` whose keys are merged one by one."""
SANDBOX: dict[str, SettingKey] = {
    "enabled": SettingKey(SWITCH, note="commands run in the sandbox", merge="any_true"),
    "failIfUnavailable": SettingKey(
        SWITCH, note="whether a session without a sandbox is refused (default: true)", merge="any_true"
    ),
    "autoAllowBashIfSandboxed": SettingKey(SWITCH, note="commands in the sandbox need no approval (default: false)"),
    "allowUnsandboxedCommands": SettingKey(
        SWITCH, note="the model may ask to run a command outside (default: true)", merge="any_false"
    ),
    "network": SettingKey(OBJECT),
    "filesystem": SettingKey(OBJECT),
    "credentials": SettingKey(OBJECT),
    "ignoreViolations": SettingKey(OBJECT, note="violations that are not reported, by command"),
    "enableWeakerNestedSandbox": SettingKey(SWITCH, note="keep the /proc of the host, for containers"),
    "allowNestedUserNamespaces": SettingKey(SWITCH, PERSON, "commands may create user namespaces"),
    "enableWeakerNetworkIsolation": quiet(MACOS),
    "allowAppleEvents": quiet(MACOS),
    "excludedCommands": SettingKey(TEXTS, note="commands that run outside", merge="union"),
    "ripgrep": quiet("Parley finds protected files without ripgrep"),
    "bwrapPath": SettingKey(TEXT, MANAGED, "the path of bubblewrap"),
    "socatPath": quiet("the proxy does not need socat"),
    "confineReaders": SettingKey(
        SWITCH,
        PERSON,
        "commands that are allowed because they only read or edit run in a sandbox for just that (default: true)",
    ),
    "confineHooks": SettingKey(
        SWITCH, ANYONE, "command hooks run in the sandbox; in a project, only its own hooks", merge="any_true"
    ),
    "confineMcpServers": SettingKey(
        SWITCH, ANYONE, "stdio MCP servers run in the sandbox; in a project, only its own servers", merge="any_true"
    ),
}
"""The keys of `sandbox`. Without `enabled` most of them mean nothing."""
