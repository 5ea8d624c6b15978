"""Two kinds of terminals behind one interface: `screen` with live lines, `plain` line by line.

`base.Interface` is what a conversation needs of a terminal. `picker` is the list that questions and commands pick from,
without I/O.
"""
