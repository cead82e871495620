"""`reconcile schema`: prints the JSON Schema of the manifests, for editors and for checks in CI."""

import click

from reconciler.cli.options import usage_error
from reconciler.cli.view import View
from reconciler.exits import Exit


@click.command(
    epilog="""\b
The schema is draft-07. An editor with a YAML language server completes and checks a file
that begins with:  # yaml-language-server: $schema=schema.json
The schema knows fields, types and limits. 'reconcile validate' also checks references
between documents and everything that depends on more than one field.

\b
Exit codes: 0 printed, 64 there is no such kind.

\b
Examples:
  reconcile schema > schema.json
  reconcile schema Workload
""",
)
@click.argument("kind", required=False)
def schema(kind: str | None) -> Exit:
    """Print the JSON Schema of all kinds of documents, or of KIND alone."""
    from manifests.docs.schema import json_schema, kind_schema  # noqa: PLC0415  (imported when it is needed)
    from manifests.kinds import KINDS  # noqa: PLC0415
    from manifests.problems import did_you_mean  # noqa: PLC0415
    from providers.reference import settings_schemas  # noqa: PLC0415

    name = next((each for each in KINDS if kind is not None and each.lower() == kind.lower()), "")
    if kind is not None and not name:
        raise usage_error(f"there is no kind '{kind}'", did_you_mean(kind, list(KINDS), "kinds"))
    settings = settings_schemas()
    View().record(kind_schema(name, settings) if name else json_schema(settings), indent=2)
    return Exit.OK
