"""`reconcile drift PATH`: lists what moved in the world while the manifests did not, and changes nothing."""

from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.last_good import chosen, id_option, path_or_id
from reconciler.cli.options import DurationType, Options, common_options, instance_option, state_option
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.tree import Given


@click.command(
    epilog="""\b
One line per field: object, field, its value by the manifests and as observed, and the answer:
corrected, reported (spec.drift of the Workload or Guard), or held and by which rule.
Changes of the manifests are no drift: 'reconcile plan' shows them. Drift is a field that
differs from the manifests in force and was as declared before; manifests that wait at PATH do
not count.

\b
Exit codes: 0 listed, 3 invalid manifests, 6 a provider cannot be read;
with --detailed-exitcode: 2 if and only if something drifted.

\b
Examples:
  reconcile drift manifests/
  reconcile drift --instance-id my-host --detailed-exitcode
  reconcile drift manifests/ -o json | jq '.drift[].field'
""",
)
@path_or_id
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 when something drifted.")
@click.option(
    "--timeout",
    type=DurationType(),
    default=30 * 1_000_000_000,
    metavar="DURATION",
    help="How long to wait for the answers of probes; default 30s.",
)
@id_option
@instance_option
@state_option
@common_options
def drift(path: "Given | None", detailed_exitcode: bool, instance_id: str, **raw: Any) -> Exit:
    """List the fields of containers, weights and record sets that moved while the manifests did not.

    Every provider is read once. Beside a running process, its probe verdicts and pushes are used.
    """
    from reconciler.cli import run  # noqa: PLC0415  (imported when it is needed)
    from reconciler.cli.render.drift import drift_document, drift_lines  # noqa: PLC0415
    from reconciler.start import in_force  # noqa: PLC0415

    options = Options.of({**raw, "prune": None, "take_over": False})
    place, stored = chosen(path, options, instance_id)
    other = in_force(place) if stored is None else None
    if other is not None:
        options.view.err("the manifests at PATH are not in force yet: the world is compared with those that are")
    stored = stored or other
    made = run.make_plan(place.path, options, run.intent(place.path, options), place, stored)
    code = exit_code(
        bool(made.decision.drift), unreadable=bool(made.decision.status.unknown), detailed=detailed_exitcode
    )
    if options.view.json:
        options.view.document(drift_document(made.decision, code))
    else:
        options.view.out(*drift_lines(made.decision, options.view.paint))
    return code


def exit_code(drifted: bool, *, unreadable: bool, detailed: bool) -> Exit:
    """The exit code of a listing. With `detailed` it is CHANGES exactly when something drifted."""
    if detailed and drifted:
        return Exit.CHANGES
    return Exit.UNFINISHED if unreadable else Exit.OK
