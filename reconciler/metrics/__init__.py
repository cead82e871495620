"""Metrics of a run in Prometheus' format, and the program's own health.

- Always loaded: `monitoring.py` (what `wire.py` connects to the loop), `pulse.py` (did the loop tick recently?), `catalogue.py` (every
  metric: name, type, labels, meaning).
- Only where metrics are on: `meter.py` (counters, and the text that a scrape gets), `state.py` (gauges from one decision),
  `restarts.py` (restarts by cause and actor), `ages.py` (since when holds exist), `textfile.py` (a file for node_exporter).
- `memory.py` counts what goes into the audit and the ledger; `reference.py` makes the table in `docs/metrics.md`.
"""
