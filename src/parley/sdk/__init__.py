"""The other end of the wire: what people import. `import parley` finds everything here by itself."""
