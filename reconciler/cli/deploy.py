"""`reconcile deploy KEY --image REF`: writes an image and its activation time into the manifest, so that git stays authoritative.

The command only changes the file; a run of `reconcile` does the rest. It checks all manifests with the edit before it replaces
the file, so that a running daemon never reads an invalid edit.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from pydantic_core import PydanticCustomError

from manifests.problems import ManifestErrors
from manifests.source.directory import ENVIRONMENTS, SourceTree
from manifests.source.git_url import GitUrl
from manifests.source.identity import identity_of
from manifests.types.durations import Duration
from manifests.types.moments import parse_moment
from manifests.values.desired import SECOND, Desired, Workload
from manifests.values.image_ref import parse_image
from manifests.values.rollouts import STAGED, format_moment
from manifests.yaml.edit import Change, Put, Rename, edit, find
from manifests.yaml.read import Document
from manifests.yaml.text import Refused
from providers.errors import ProviderError
from providers.lib import files
from reconciler import tree
from reconciler.cli.given import GivenType
from reconciler.cli.objects import Known, of_desired, unknown_object
from reconciler.cli.options import DurationType, Options, common_options, instance_option, usage_error
from reconciler.cli.render.times import short
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock

_TEMPLATE = ("spec", "template", "spec", "containers")
_AT = ("spec", "rollout", "activateAt")
_DELAY = ("spec", "rollout", "activationDelay")


class When(NamedTuple):
    """When the image may be activated: a time as written, or a delay (ns); neither: as the manifest says."""

    at: str = ""
    delay: int | None = None


class Written(NamedTuple):
    """An edit: the file, its contents before and after, the manifests with the edit, and warnings about them."""

    file: Path
    before: bytes
    after: bytes
    desired: Desired
    warnings: tuple[str, ...]


@click.command(
    epilog="""\b
PATH is the directory of the manifests, by default the current one. Comments and layout of
the file stay. An edit that would change more than the image and the time is refused.
Without --activate-at and --activate-in, the time in the manifest applies. A time in a
manifest that has passed is due; an --activate-at that has passed needs --now. In a git
work tree, commit and push the change.

\b
Exit codes: 0 written or already up to date, 3 the manifests would be invalid, 7 edit the
file by hand, 64 no such workload or container. With any other code than 0 the file is
unchanged.

\b
Examples:
  reconcile deploy workload/web manifests/ --image registry.example.com/shop/web:1.5
  reconcile deploy workload/web --image web:1.5 --container web --activate-in 2m
  reconcile deploy workload/web --image web:1.5 --activate-at 2030-01-31T22:00:00+01:00 -o json
""",
)
@click.argument("key")
@click.argument("path", type=GivenType(), default=Path())
@click.option("--image", required=True, metavar="REF", help="The image, with a tag or a digest.")
@click.option("--container", default="", metavar="NAME", help="The container; required when there are several.")
@click.option(
    "--activate-at", default="", metavar="TIME", help="Earliest activation time, such as 2030-01-31T22:00:00Z."
)
@click.option(
    "--activate-in",
    type=DurationType(),
    metavar="DURATION",
    help="Earliest activation after the change is first observed, such as 30s.",
)
@click.option("--now", is_flag=True, help="Allow an --activate-at that has passed: the image is due at once.")
@instance_option
@common_options
def deploy(  # one parameter per argument and option of the command line
    key: str,
    path: Path | GitUrl,
    image: str,
    container: str,
    activate_at: str,
    activate_in: int | None,
    now: bool,
    **raw: Any,
) -> Exit:
    """Write an image into the manifest of KEY (workload/web) below PATH."""
    options, key = Options.of(raw), key.lower()
    if not isinstance(path, Path):
        hint = "give the directory of a checkout, then commit and push the change"
        raise usage_error("deploy writes a file, and PATH is the address of a git source", hint)
    when = _when(activate_at, activate_in, now)
    try:
        parse_image(image)
    except ValueError as error:
        raise usage_error(f"--image '{image}': {error}") from None
    if not key.startswith("workload/"):
        raise usage_error(f"'{key}' is not a workload", "give a workload, such as workload/web")
    try:
        written = _edited(key, path, options, image, container, when)
        if written.after != written.before:
            files.replace(key, written.file, written.after, written.before)
    except Refused as error:
        return _failed(options, Exit.MANUAL, [error.cause], error.next_step)
    except ManifestErrors as error:
        problems = [line for problem in error.problems if not problem.is_warning for line in problem.lines()]
        return _failed(options, Exit.INVALID, problems, "the file is unchanged")
    except ProviderError as error:
        return _failed(options, Exit.ERROR, [error.cause], error.next_step)
    return _report(options, key, written, image)


def _when(at: str, delay: int | None, allow_past: bool) -> When:
    """The requested time, checked. A time that has passed is more often a typo than a wish, so it has to be allowed."""
    if at and delay is not None:
        raise usage_error("--activate-at and --activate-in cannot be used together", "give one of them")
    if allow_past and not at:
        raise usage_error("--now has a meaning only with --activate-at", "leave out --now")
    if at:
        try:
            moment = parse_moment(at)
        except PydanticCustomError as error:
            context = error.context or {}
            raise usage_error(f"--activate-at: {context.get('message', error)}", str(context.get("hint", ""))) from None
        passed = SystemClock().now().wall - moment
        if passed >= 0 and not allow_past:
            raise usage_error(
                f"--activate-at: {at} has passed, {short(max(passed, SECOND))} ago",
                "give a time in the future, or add --now to activate the image as soon as its replicas are healthy",
            )
    return When(at, delay)


def _edited(key: str, path: Path, options: Options, image: str, container: str, when: When) -> Written:
    """The edit, checked with all manifests and not yet written.

    Raises:
        ManifestErrors: the manifests are invalid, before or after the edit.
        Refused: the edit would change more than it should.
        ProviderError: the file cannot be read.
        click.UsageError: there is no such workload or container.
    """
    instance, environment = options.instance, options.env
    desired, _ = tree.load_with_warnings(path, instance, environment=environment)
    workload = _workload(key, desired)
    name = _file_of(workload, tree.Location(path, instance, environment=environment).read().tree)
    if os.path.isabs(name):
        raise Refused(f"{key} is declared in the local document {name}", "edit it by hand")
    file = Path(desired.root, name).resolve()
    before = files.read(key, file)
    if before is None:
        raise Refused(f"{file} was removed meanwhile", "try again")
    document = find(name, before, "Workload", workload.name)
    if document is None:
        raise Refused(f"{file} was changed meanwhile", "try again")
    changes: list[Change] = [Put((*_TEMPLATE, _index(document, container, workload), "image"), image)]
    after = edit(name, before, "Workload", workload.name, [*changes, *_times(document, when)])
    new, warnings = tree.load_with_warnings(path, instance, {name: after}, environment=environment)
    return Written(file, before, after, new, tuple(warning.render() for warning in warnings))


def _file_of(workload: Workload, read: SourceTree) -> str:
    """The file to edit: that of the environment, where there is one. Raises Refused when only the base has the workload."""
    name = workload.where.file
    if not read.environment or os.path.isabs(name) or name.startswith(f"{ENVIRONMENTS}/{read.environment}/"):
        return name
    for file in read.overlay:
        document = find(file.name, file.data, "Workload", workload.name)
        value: Any = None if document is None else document.value
        try:
            if value is not None and value["spec"]["template"]["spec"]["containers"]:
                return file.name
        except (KeyError, TypeError):
            continue  # it changes other fields
    cause = f"the image of {workload.key} is in {name}, which all environments share"
    step = f"add the container with its image to {ENVIRONMENTS}/{read.environment}; or deploy without --env to change all environments"
    raise Refused(cause, step)


def _workload(key: str, desired: Desired) -> Workload:
    for workload in desired.workloads:
        if workload.key == key:
            return workload
    known = {name for name in of_desired(desired) if name.startswith("workload/") and name.count("/") == 1}
    raise unknown_object(key, Known(frozenset(known), frozenset()))


def _index(document: Document, container: str, workload: Workload) -> int:
    """The container's index in the list of the template."""
    value: Any = document.value
    containers = value["spec"]["template"]["spec"]["containers"]
    names = [str(declared.get("name", "")) for declared in containers]
    if container and container not in names:
        raise usage_error(f"{workload.key} has no container '{container}'", f"its containers: {', '.join(names)}")
    if not container and workload.template.sidecars:
        every = [each.name for each in (workload.template.container, *workload.template.sidecars)]
        raise usage_error(f"{workload.key} has several containers", f"add --container with one of: {', '.join(every)}")
    index = names.index(container) if container else 0
    if "image" not in containers[index]:
        hint = f"it runs a local program, or its image is in another file; edit {document.file} by hand"
        raise usage_error(f"container '{names[index]}' of {workload.key} has no image", hint)
    return index


def _times(document: Document, when: When) -> list[Change]:
    """The changes that write the time into `rollout`; it replaces the field of the other kind of time."""
    if not when.at and when.delay is None:
        return []
    value: Any = document.value
    rollout = value["spec"].get("rollout") or {}
    field, text = (_AT, when.at) if when.at else (_DELAY, str(Duration(when.delay or 0)))
    other = _DELAY if when.at else _AT
    if other[-1] in rollout and field[-1] not in rollout:
        return [Rename(other, field[-1], text)]
    return [Put(field, text)]


def _activation(workload: Workload, now: int) -> str:
    """The earliest activation of the new revision, RFC 3339; empty for a strategy that replaces replica by replica."""
    if workload.strategy not in STAGED:
        return ""
    rollout = workload.rollout
    wall = rollout.activate_at or now + rollout.delay
    return format_moment(wall if rollout.activate_at else wall // SECOND * SECOND)


def _report(options: Options, key: str, written: Written, image: str) -> Exit:
    workload, now = _workload(key, written.desired), SystemClock().now().wall
    activation = _activation(workload, now)
    changed = written.after != written.before
    due = workload.rollout.activate_at
    if not changed:
        message = f"{written.file} is already up to date"
    elif not activation:
        message = f"replicas are replaced with strategy {workload.strategy.value}"
    elif due and due <= now:
        message = f"activated as soon as its replicas are healthy: {activation} has passed"
    elif due:
        message = f"activated at {activation} at the earliest"
    else:
        delay = Duration(workload.rollout.delay)
        message = f"activated {delay} after it is first observed at the earliest, not before {activation}"
    in_git = identity_of(written.file)[1]
    follow_up = f"git add {written.file.name} && git commit" if changed and in_git else ""
    if options.view.json:
        options.view.document(
            {
                "exit_code": 0,
                "success": True,
                "message": message,
                "revision": workload.template.revision,
                "activation_time": activation or None,
                "object": key,
                "image": image,
                "file": str(written.file),
                "changed": changed,
                "next_step": follow_up or None,
                "warnings": list(written.warnings),
            }
        )
        return Exit.OK
    for line in written.warnings:
        options.view.err(*line.split("\n"))
    verb = "wrote" if changed else "kept"
    options.view.out(
        f"{options.view.paint.good(verb)} {image} in {written.file}: revision {workload.template.revision}"
    )
    options.view.out(f"{key}: {message}")
    if follow_up:
        options.view.out(f"next step: {follow_up}")
    return Exit.OK


def _failed(options: Options, code: Exit, cause: Sequence[str], next_step: str) -> Exit:
    """Report in lines why nothing was written, and the next step."""
    view = options.view
    first, *more = cause
    if view.json:
        message = "\n".join(cause) + f"; {next_step}"
        view.document(
            {"exit_code": int(code), "success": False, "message": message, "revision": None, "activation_time": None}
        )
        return code
    view.err(f"{view.paint_err.bad('error:')} {first}", *more)
    if next_step:
        view.err(next_step)
    view.err(f"result: {code.sentence} (exit {int(code)})")
    return code
