"""Output for operators and scripts: text, colours, tables, progress, JSON. Takes values, returns strings; decides nothing."""
