"""`reconcile doctor PATH`: reaches each provider, checks rights and configuration, changes nothing, prints what to add."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.options import Options, common_options, instance_option, path_argument, state_option
from reconciler.exits import Exit


@click.command(
    epilog="""\b
Exit codes: 0 all is well, 6 a provider cannot be reached or lacks configuration,
3 invalid manifests.

\b
Examples:
  reconcile doctor manifests/
  reconcile doctor manifests/ -o json | jq '.providers[] | select(.missing != [])'
""",
)
@path_argument
@instance_option
@state_option
@common_options
def doctor(path: Path, **raw: Any) -> Exit:
    """Ask every provider that the manifests at PATH name whether it can do its part; change nothing."""
    options = Options.of(raw)
    import asyncio  # noqa: PLC0415  (what runs is imported when it runs)

    from reconciler import wire  # noqa: PLC0415

    findings = asyncio.run(wire.examine(path, instance_file=options.instance, state=options.state_dir))
    well = all(finding.reached and not finding.missing for finding in findings)
    code = Exit.OK if well else Exit.UNFINISHED
    view = options.view
    if view.json:
        found = [
            {
                "provider": finding.provider,
                "role": finding.role.value,
                "type": finding.type,
                "reached": finding.reached,
                "summary": finding.summary,
                "missing": list(finding.missing),
            }
            for finding in findings
        ]
        view.document({"exit_code": int(code), "well": well, "providers": found})
        return code
    for finding in findings:
        mark = view.paint.good("ok") if finding.reached and not finding.missing else view.paint.bad("to do")
        view.out(f"{mark}: {finding.role.value} provider '{finding.provider}' (type {finding.type}): {finding.summary}")
        for line in finding.missing:
            if line == finding.summary:
                continue  # who cannot be reached cannot say what it lacks either
            view.out("\n".join(f"    {part}" for part in line.splitlines()))
    verdict = "every provider can do its part" if well else "not every provider can do its part yet"
    view.out(f"result: {verdict} (exit {int(code)})")
    return code
