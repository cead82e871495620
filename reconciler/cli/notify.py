"""`reconcile notify test`: sends a test notice through the channels of the Instance, and says what happened."""

from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.given import path_argument, required
from reconciler.cli.options import Options, common_options, instance_option, usage_error
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.tree import Given

TEST = "test"


@click.command(
    epilog="""\b
Channels are spec.notifications of the Instance in local documents (--instance). The message is
sent at once, also beside a running daemon; no limit counts it.

\b
Exit codes: 0 every channel took the message, 1 a channel did not, 3 invalid manifests,
64 no such channel.

\b
Examples:
  reconcile notify test manifests/ --instance /etc/reconciler
  reconcile notify test manifests/ --channel ops --instance /etc/reconciler
  reconcile notify test manifests/ -o json | jq '.channels[] | select(.sent == false)'
""",
)
@click.argument("what", type=click.Choice([TEST]))
@path_argument
@click.option("--channel", default="", metavar="NAME", help="Only this channel; by default all.")
@instance_option
@common_options
def notify(what: str, path: "Given | None", channel: str, **raw: Any) -> Exit:
    """Send a test notice through the channels of the Instance, and report the result."""
    del what  # there is one so far
    options = Options.of(raw)
    from providers.lib.secrets import define, on_resolve  # noqa: PLC0415  (imported when it is needed)
    from reconciler import tree  # noqa: PLC0415
    from reconciler.notify import attach  # noqa: PLC0415
    from reconciler.notify.text import clean  # noqa: PLC0415
    from reconciler.shell.clock import SystemClock  # noqa: PLC0415
    from reconciler.shell.secrets import SECRETS  # noqa: PLC0415

    desired = tree.load(required(path, options, "reconcile notify test"), options.instance, options.env)
    channels = desired.instance.informed.channels
    names = [item.name for item in channels]
    if channel and channel not in names:
        raise usage_error(
            f"the Instance has no channel '{channel}'", f"channels: {', '.join(names)}" if names else "it has none"
        )
    chosen = tuple(item for item in channels if channel in ("", item.name))
    view = options.view
    if not chosen:
        raise usage_error("the Instance has no channel", "add spec.notifications to the Instance of --instance")
    define(desired.instance.secret_programs, desired.root)
    rows: list[dict[str, Any]] = []
    with on_resolve(SECRETS.add):
        for tested in attach.test(chosen, desired.instance.id, SystemClock()):
            cause = clean(tested.cause)
            hint = f"check the address of {tested.channel.name} in spec.notifications, and that its server runs"
            next_step = (tested.next_step or hint) if cause else ""
            rows.append(
                {
                    "channel": tested.channel.name,
                    "sent": not cause,
                    "cause": cause or None,
                    "next_step": next_step or None,
                }
            )
            if view.json:
                continue
            if not cause:
                view.out(f"{view.paint.good('sent')}: channel {tested.channel.name} took the test notice")
                continue
            view.out(f"{view.paint.bad('not sent')}: channel {tested.channel.name}: {cause}")
            view.out(f"    next step: {next_step}")
    failed = sum(not row["sent"] for row in rows)
    code = Exit.ERROR if failed else Exit.OK
    if view.json:
        view.document({"exit_code": int(code), "channels": rows})
        return code
    verdict = f"{failed} of {len(rows)} channels did not take it" if failed else "every channel took it"
    view.out(f"result: {verdict} (exit {int(code)})")
    return code
