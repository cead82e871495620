"""The metrics of a run that ends, as a file for the textfile collector of node_exporter. Used by `cli/run.py`.

The collector reads every `*.prom` file of a directory, as another user and at any time. So the file is replaced in one step, is
readable by all users (metrics hold no secrets), and its temporary name does not end in `.prom`. A run that fails before its first
decision writes its exit code and no state, so that nothing old is shown as the present.
"""

import os
from contextlib import suppress
from pathlib import Path

from manifests.source.git_url import GitUrl
from reconciler.metrics.monitoring import LABEL, Monitoring
from reconciler.shell.store.directory import explain

SUFFIX = ".prom"


def write(path: Path, monitoring: Monitoring, manifests: Path | GitUrl, code: int) -> None:
    """Write the metrics of a run.

    Args:
        path: the file; its directory must exist.
        monitoring: of the run.
        manifests: names the run where the id of its Instance is not known, because its manifests are invalid.
        code: its exit code.

    Raises:
        StoreError: the file cannot be written; the earlier one is unchanged.
    """
    if monitoring.meter is None:
        from reconciler.metrics.meter import Meter  # noqa: PLC0415  (only where metrics are on)

        monitoring.meter = Meter(
            lambda: None,
            {LABEL: monitoring.instance or str(manifests.resolve() if isinstance(manifests, Path) else manifests)},
        )
    monitoring.ran(code)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            with open(fd, "wb") as file:
                os.fchmod(fd, 0o644)
                file.write(monitoring.meter.text(ended=True))
                file.flush()
                os.fsync(fd)
            os.replace(part, path)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()
    except OSError as error:
        raise explain(path, error) from error
