"""`reconcile approve [HASH]`: lists the changes that wait for an approval, or approves them."""

import json
import re
from pathlib import Path
from typing import Any

import click

from reconciler.cli.inbox import refreshed, send_and_report
from reconciler.cli.options import Options, common_options, target_options, usage_error
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.core.limits.approvals import LASTS
from reconciler.exits import Exit

_HASH = re.compile(r"[0-9a-f]{16}")
_SECOND = 1_000_000_000


@click.command(
    epilog="""\b
An approval is for exactly the changes with this hash: these objects, these values before and
after, under this Guard. It counts for 24h, until it is used. Without a running process it is
kept for the next run. Each change has a hash of its own, too.

\b
Exit codes: 0 nothing waits, or approved; 7 changes wait for an approval, or the running process
has other changes than those with this hash.

\b
Examples:
  reconcile approve
  reconcile approve 0123456789abcdef --reason "shop-old is shut down"
  reconcile approve 0123456789abcdef manifests/ --by alice
""",
)
@click.argument("hash_", metavar="[HASH]", required=False)
@path_optional
@click.option("--by", metavar="NAME", default="", help="Who approves; default: the user who runs the command.")
@click.option("--reason", default="", help="The reason, for the audit.")
@target_options
@common_options
def approve(hash_: str | None, path: Path | None, by: str, reason: str, **raw: Any) -> Exit:
    """List the changes that wait for an approval, or approve those with HASH."""
    options = Options.of(raw)
    if hash_ is not None and not _HASH.fullmatch(hash_):
        if path is not None:
            message = f"'{hash_}' is not a hash of held changes"
            raise usage_error(message, "give the 16 digits that 'reconcile approve' lists")
        path, hash_ = Path(hash_), None
    if hash_ is None and (by or reason):
        raise usage_error("HASH is missing", "to list what waits, leave out --by and --reason")
    place = find(path, options, raw["instance_id"])
    if hash_ is None:
        return _list(place, options)
    payload = {"object": hash_, "value": by.strip(), "reason": reason.strip()}
    key, effect = f"held changes {hash_}", f"approved for {LASTS // (3600 * _SECOND)}h"
    stored = _decision(place)
    if hash_ not in {stored.get("approve"), *(hold.get("item") for hold in stored.get("holds", ()))}:
        effect += ", although no change with this hash waits now"

    def other() -> str:
        holds = _decision(place).get("holds", ())
        return next((hold["message"] for hold in holds if f"the approval of {hash_} is" in hold["message"]), "")

    return send_and_report("approve", [payload], place, options, key, effect, other)


def _decision(place: Place) -> dict[str, Any]:
    """The present decision of the running process, else the last one; empty when the instance has never run."""
    if not place.has_run:
        return {}
    refreshed(place)
    with joined(place) as store:
        last = store.last_decision()
    return {} if last is None else dict(json.loads(last.text))


def _list(place: Place, options: Options) -> Exit:
    stored = _decision(place)
    waiting = [hold for hold in stored.get("holds", ()) if hold.get("item")]
    code = Exit.MANUAL if waiting else Exit.OK
    if options.view.json:
        changes = [{key: hold[key] for key in ("item", "object", "action", "rule", "message")} for hold in waiting]
        options.view.document({"exit_code": int(code), "hash": stored.get("approve"), "changes": changes})
        return code
    if not waiting:
        options.view.out("no change waits for an approval")
        return code
    for hold in waiting:
        options.view.out(f"{hold['item']} {hold['object']}: {hold['action']} ({hold['rule']}: {hold['message']})")
    if stored.get("approve_command"):
        options.view.out(f"to approve the held changes, run: {stored['approve_command']}")
    return code
