"""The network of sandboxed commands: the proxy, its rules about hosts, and the protocols it speaks."""
