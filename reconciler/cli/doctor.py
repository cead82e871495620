"""`reconcile doctor PATH`: checks that providers are reachable, permitted and configured, and prints missing configuration."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.last_good import chosen, id_option, path_or_id
from reconciler.cli.options import Options, common_options, instance_option, state_option
from reconciler.exits import Exit


@click.command(
    epilog="""\b
For missing configuration doctor prints the lines to add. Warnings do not change the exit
code. Every secret that the manifests name is resolved and never shown; those of the
environment are read once, when reconcile starts.

\b
Exit codes: 0 all providers are ready, 3 invalid manifests, 6 a provider cannot be reached
or lacks configuration, or a secret cannot be used.

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
def doctor(path: Path | None, instance_id: str, **raw: Any) -> Exit:
    """Check that every provider of the manifests at PATH is reachable and configured, and change nothing."""
    options = Options.of(raw)
    import asyncio  # noqa: PLC0415  (imported when it is needed)

    from reconciler import wire  # noqa: PLC0415

    place, stored = chosen(path, options, instance_id)
    findings, secrets = asyncio.run(wire.examine(place, stored))
    ready = all(finding.reached and not finding.missing for finding in findings)
    unusable = sum(1 for secret in secrets if not secret.usable)
    well = ready and not unusable
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
        named = [
            {
                "secret": secret.secret,
                "needed_by": list(secret.needed_by),
                "usable": secret.usable,
                "message": secret.message,
            }
            for secret in secrets
        ]
        view.document({"exit_code": int(code), "well": well, "providers": providers, "secrets": named})
        return code
    for finding in findings:
        mark = view.paint.good("ok") if finding.reached and not finding.missing else view.paint.bad("not ready")
        view.out(f"{mark}: {finding.role.value} provider '{finding.provider}' (type {finding.type}): {finding.summary}")
        for line in finding.missing:
            if line == finding.summary:
                continue  # an unreachable provider repeats its summary here
            view.out(*(f"    {part}" for part in line.split("\n")))
        for line in finding.warnings:
            view.out(f"    {view.paint.warn('warning:')} {line}")
    for secret in secrets:
        mark = view.paint.good("ok") if secret.usable else view.paint.bad("not usable")
        view.out(f"{mark}: secret in {secret.secret}, for {', '.join(secret.needed_by)}: {secret.message}")
    count = sum(1 for finding in findings if not finding.reached or finding.missing)
    verdict = "all providers are ready" if ready else f"{count} of {len(findings)} providers are not ready"
    if unusable:
        verdict += f"; {unusable} of {len(secrets)} secrets cannot be used"
    view.out(f"result: {verdict} (exit {int(code)})")
    return code
