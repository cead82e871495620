"""The comment about manifests that have no plan: it takes the place of an earlier plan, which does not hold any more. Called by `plan`."""

import os
from typing import TYPE_CHECKING

from manifests.load import declared_instance
from manifests.problems import ManifestErrors
from manifests.source.git_url import GitUrl
from manifests.source.local import read_local
from reconciler.cli.failures import code_of_manifests
from reconciler.cli.options import Options
from reconciler.core.plan_markdown import refusal

if TYPE_CHECKING:
    from reconciler.tree import Given


def show_refusal(error: Exception, path: "Given | None", options: Options) -> None:
    """Write the problems of manifests as Markdown. Nothing for other errors, and where the Instance is not local: its id is not known.

    Problems of local documents are the operator's and stay on standard error.
    """
    if not isinstance(error, ManifestErrors) or options.instance is None:
        return
    try:
        instance = declared_instance(read_local(options.instance, os.devnull))
    except ManifestErrors:
        return
    if instance is None:
        return
    code = code_of_manifests(error)
    of_tree = [problem for problem in error.problems if not os.path.isabs(problem.file)]
    lines = ["; ".join(line.strip() for line in problem.lines()) for problem in of_tree]
    if len(of_tree) < len(error.problems):
        lines.append("the operators of this instance have to correct its local documents")
    if isinstance(path, GitUrl) and path.ref:
        lines.insert(0, f"of {path.ref}:")
    options.view.markdown(refusal(lines, instance=instance.id, result=f"{code.sentence} (exit {int(code)})"))
