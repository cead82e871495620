"""Changes of a manifest under load: what becomes of each, and how many requests fail.

    python -m bench.changes

Prints Markdown; `python -m bench --write changes` writes it into docs/changes.md. Needs root, dockerd, haproxy, named and
busybox-static; creates its own containers and servers on loopback, and removes them. `tests/e2e/test_changes.py` makes the same changes.
"""

import signal
import sys
import tempfile
from pathlib import Path

from tests.e2e.changes_world import CHANGES, Change, Changes, Load, engine_with_versions, under_load


def measured(docker: str, change: Change) -> Load:
    """What clients of a new world counted during one change."""
    world = Changes(docker)
    try:
        world.start_servers()
        return under_load(world, change)
    finally:
        world.close()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that containers and servers are removed
    failed = 0
    print("| change | what happens | requests | connections | failed |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as shared:
        docker = engine_with_versions(Path(shared))
    for change in CHANGES:
        load = measured(docker, change)
        failed += len(load.failures)
        count = f"{load.requests:,} | {load.connections:,} | {len(load.failures)}"
        print(f"| {change.name} | {change.outcome} | {count} |", flush=True)
        for failure in load.failures[:5]:
            print(f"changes: {change.name}: {failure}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
