"""`reconcile doctor PATH`: checks that providers are reachable, permitted and configured, and prints missing configuration."""

from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.last_good import chosen, id_option, path_or_id
from reconciler.cli.options import Options, common_options, instance_option, state_option
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.git.doctor import SourceFinding
    from reconciler.tree import Given, Location


@click.command(
    epilog="""\b
For missing configuration doctor prints the lines to add. Warnings do not change the exit
code.

\b
Exit codes: 0 all providers are ready, 3 invalid manifests, 6 a provider cannot be reached
or lacks configuration, 8 the git source cannot be read.

\b
Examples:
  reconcile doctor manifests/
  reconcile doctor manifests/ --instance-id my-host
  reconcile doctor manifests/ -o json | jq '.providers[] | select(.missing != [])'
""",
)
@path_or_id
@id_option
@instance_option
@state_option
@common_options
def doctor(path: "Given | None", instance_id: str, **raw: Any) -> Exit:
    """Check that every provider of the manifests at PATH is reachable and configured, and change nothing."""
    options = Options.of(raw)
    import asyncio  # noqa: PLC0415  (imported when it is needed)

    from reconciler import wire  # noqa: PLC0415

    place, stored = chosen(path, options, instance_id)
    findings = asyncio.run(wire.examine(place, stored))
    source = _source(place) if stored is None else None
    well = all(finding.reached and not finding.missing for finding in (*findings, *([source] if source else ())))
    code = Exit.OK if well else Exit.UNFINISHED
    view = options.view
    if view.json:
        providers = [
            {
                "provider": finding.provider,
                "role": finding.role.value,
                "type": finding.type,
                "reached": finding.reached,
                "summary": finding.summary,
                "missing": list(finding.missing),
                "warnings": list(finding.warnings),
            }
            for finding in findings
        ]
        checked = None if source is None else {**_fields(source), "address": str(place.path)}
        document = {"exit_code": int(code), "well": well, "providers": providers}
        view.document({**document, **({"source": checked} if checked else {})})
        return code
    if source is not None:
        mark = view.paint.good("ok") if source.reached and not source.missing else view.paint.bad("not ready")
        view.out(f"{mark}: source {place.path}: {source.summary}", *(f"    {line}" for line in source.missing))
    for finding in findings:
        mark = view.paint.good("ok") if finding.reached and not finding.missing else view.paint.bad("not ready")
        view.out(f"{mark}: {finding.role.value} provider '{finding.provider}' (type {finding.type}): {finding.summary}")
        for line in finding.missing:
            if line == finding.summary:
                continue  # an unreachable provider repeats its summary here
            view.out(*(f"    {part}" for part in line.split("\n")))
        for line in finding.warnings:
            view.out(f"    {view.paint.warn('warning:')} {line}")
    count = sum(1 for finding in findings if not finding.reached or finding.missing)
    verdict = "all providers are ready" if well else f"{count} of {len(findings)} providers are not ready"
    if not well and not count:
        verdict = "the source is not ready"
    view.out(f"result: {verdict} (exit {int(code)})")
    return code


def _source(place: "Location") -> "SourceFinding | None":
    """The result for the git source of the manifests; None for a directory."""
    if place.reader is None:
        return None
    from reconciler.git.doctor import examine  # noqa: PLC0415  (only for git sources)

    return examine(place.reader)


def _fields(source: "SourceFinding") -> dict[str, Any]:
    return {"reached": source.reached, "summary": source.summary, "missing": list(source.missing)}
