"""Sessions on the network: `parley serve`."""
