"""`reconcile render PATH`: shows the manifests as they are merged, with the file and line of each field; offline."""

from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.given import path_argument, required
from reconciler.cli.options import Options, instance_option, render_options
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.tree import Given


@click.command(
    epilog="""\b
Objects are in the order of their kinds and names, fields in that of the reference, each with
the comment # FILE:LINE. Defaults are not added, references to secrets stay references, and
documents of --instance are not shown. The output is a manifest itself: its render is equal.

\b
Exit codes: 0 shown, 3 invalid manifests or no such environment, 7 there are no manifests at
PATH, 8 the git source at PATH cannot be read.

\b
Examples:
  reconcile render manifests/ --env prod
  reconcile render manifests/ --env prod -o json | jq '.objects[].origins'
  diff <(reconcile render manifests/ --env staging) <(reconcile render manifests/ --env prod)
""",
)
@path_argument
@instance_option
@render_options
def render(path: "Given | None", **raw: Any) -> Exit:
    """Show the manifests at PATH as they are merged, with the origin of each field."""
    options = Options.of(raw)
    path = required(path, options, "reconcile render")
    from manifests.load import manifest_documents  # noqa: PLC0415  (nothing heavy before the command line is checked)
    from manifests.overlay.render import origins_json, rendered, yaml_text  # noqa: PLC0415
    from reconciler import tree  # noqa: PLC0415

    sources = tree.Location(path, options.instance, environment=options.env).read()
    tree.resolve(sources)
    objects = rendered(manifest_documents(sources))
    if options.view.json:
        shown = [{"key": item.key, "manifest": item.value, "origins": origins_json(item)} for item in objects]
        options.view.document({"exit_code": 0, "environment": sources.tree.environment or None, "objects": shown})
    else:
        options.view.out(*yaml_text(objects).removesuffix("\n").split("\n"))
    return Exit.OK
