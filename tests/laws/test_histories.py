"""Random histories of a repository, on the real mirror, reader and source of a daemon: the laws are in `laws/histories.py`.

Three histories at a desk, twenty in CI; `HISTORIES=200` runs as many as `make soak` does. A failure prints the history as a script.
"""

import os
from pathlib import Path

import pytest

from tests.laws.histories import History

COUNT = int(os.environ.get("HISTORIES") or (20 if os.environ.get("CI") else 3))


@pytest.mark.server("git")
@pytest.mark.server("ssh-keygen")
@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_history_ends_at_its_last_good_commit(seed: int, tmp_path: Path) -> None:
    history = History(tmp_path, seed)
    try:
        history.run()
    except AssertionError as error:
        raise AssertionError(f"{error}\n\nThe history:\n\n{history.script}\n") from error
