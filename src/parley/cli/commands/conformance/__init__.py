"""`parley conform` and `parley conform-client`: does an engine or a client do what the protocol says?"""
