"""Other spellings of the same messages."""
