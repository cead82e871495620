"""What people and scripts read: text, colour, tables, progress. Takes values, returns strings; decides nothing."""
