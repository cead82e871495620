"""The command line: one module per command, imported only when it is named; `render/` turns values into text and JSON."""
