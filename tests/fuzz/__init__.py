"""A search for inputs that break the program, surface by surface. `make fuzz` runs it for minutes, the suite for seconds.

A surface is a place where text of others enters. Its inputs are valid texts with mutations, so that most of a parser is reached; its
check runs our code as it is and asserts what must hold for every input. The page docs/security.md shows the last long run.
"""
