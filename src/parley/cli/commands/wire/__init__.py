"""`parley tap`, `inspect` and `schema`: what a client and an engine say to each other, and what they may say."""
