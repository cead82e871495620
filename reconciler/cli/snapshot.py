"""`reconcile snapshot`: writes what this host observes to a file, for `reconcile plan --observed` where there is no access to it.

The file has no secrets, no local documents, and nothing of other owners that a plan does not need. Changes nothing on the host.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manifests.values.desired import SECOND
from reconciler.cli.last_good import chosen, id_option, path_or_id
from reconciler.cli.options import (
    DurationType,
    Options,
    common_options,
    instance_option,
    intent_options,
    state_option,
    usage_error,
)
from reconciler.cli.render.times import ago
from reconciler.cli.view import masked
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.snapshots.snapshot import Snapshot
    from reconciler.tree import Given

HOUR = 3_600 * SECOND


@click.command(
    epilog="""\b
The snapshot has names, states, weights and our own records of this host, the addresses of our own
replicas and endpoints, the ledger, and the documents of the tree in force. It has no secrets,
no local documents, no messages of servers, and nothing of other owners but their containers' names.

\b
Make a key with: ssh-keygen -t ed25519 -N '' -f snapshot-key
Give CI the file and snapshot-key.pub, and keep snapshot-key on this host.

\b
Exit codes: 0 written, 1 it cannot be signed or written, 3 invalid manifests.

\b
Examples:
  reconcile snapshot --instance /etc/reconciler --out host.snapshot --key snapshot-key
  reconcile snapshot --instance-id my-host --out host.snapshot --key snapshot-key --expires 24h
""",
)
@path_or_id
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="File to write, mode 0600; it is replaced in one step.",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Private SSH key that signs it; without it the snapshot is not signed.",
)
@click.option(
    "--expires",
    type=DurationType(),
    default=HOUR,
    metavar="DURATION",
    help="Age from which on plans refuse the snapshot; default 1h.",
)
@intent_options
@click.option(
    "--timeout",
    type=DurationType(),
    default=30 * SECOND,
    metavar="DURATION",
    help="How long to wait for the answers of probes; default 30s.",
)
@id_option
@instance_option
@state_option
@common_options
def snapshot(path: "Given | None", out: Path, key: Path | None, expires: int, instance_id: str, **raw: Any) -> Exit:
    """Write what this host observes to a file, signed, for plans elsewhere. Changes nothing."""
    from reconciler.cli import run  # noqa: PLC0415  (imported when it is needed)
    from reconciler.shell.store.directory import write_durable  # noqa: PLC0415
    from reconciler.snapshots.document import write  # noqa: PLC0415
    from reconciler.snapshots.signature import file_of  # noqa: PLC0415

    options = Options.of(raw)
    if expires == 0:
        raise usage_error("a snapshot that expires after 0s can never be used", "write --expires 1h, or leave it out")
    if not out.absolute().parent.is_dir():
        raise usage_error(f"{out}: there is no directory {out.parent}", "make it, or choose another file")
    place, stored = chosen(path, options, instance_id)
    taken = run.take_snapshot(options, run.intent(place.path, options), expires, place, stored)
    write_durable(Path(os.path.abspath(out)), file_of(masked(write(taken)), key))
    signed = "signed" if key is not None else "not signed"
    unread = sorted(taken.facts.unknown)
    if options.view.json:
        document = {
            "instance": taken.instance,
            "revision": taken.revision,
            "commit": taken.commit or None,
            "file": str(out),
        }
        times = {"taken_wall": taken.at_wall, "expires_wall": taken.expires_wall}
        options.view.document({"exit_code": 0, **document, **times, "signed": key is not None, "unknown": unread})
        return Exit.OK
    without = [f"it is incomplete: {', '.join(unread)} cannot be read"] if unread else []
    options.view.out(
        f"{out}: snapshot of instance '{taken.instance}', {signed}, expires in {expires // SECOND}s", *without
    )
    return Exit.OK


def opened(file: Path, keys: Path | None, options: Options) -> "Snapshot":
    """The snapshot in a file, verified with public keys; says what it is on standard error. Raises SnapshotRefused."""
    from reconciler.shell.clock import SystemClock, utc  # noqa: PLC0415  (imported when it is needed)
    from reconciler.snapshots.document import read  # noqa: PLC0415
    from reconciler.snapshots.signature import text_of  # noqa: PLC0415

    text, verified = text_of(file, keys)
    found = read(text)
    options.view.common["observed"] = {
        "snapshot": str(file),
        "as_of": utc(found.at_wall).isoformat(),
        "revision": found.revision,
        "verified": verified,
    }
    checked = "its signature is valid" if verified else "its signature was not checked; add --observed-key to check it"
    when = ago(found.at_wall, SystemClock().now().wall)
    options.view.err(f"planned from the snapshot {file} of instance '{found.instance}', taken {when}; {checked}")
    return found
