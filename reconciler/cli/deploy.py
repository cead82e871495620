"""`reconcile deploy KEY --image REF`: writes an image, and when it may take over, into the manifest, so that git stays the truth.

Nothing is deployed here: the file changes, and whoever follows it does the rest. The edited tree is checked as a whole before the
file is replaced, so a process that follows it never sees an invalid one because of this command.
"""

from pathlib import Path
from typing import Any, NamedTuple

import click
from pydantic_core import PydanticCustomError

from manifests.problems import ManifestErrors
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
from reconciler.cli.objects import Known, no_such, of_desired
from reconciler.cli.options import DurationType, Options, common_options, instance_option, mistake
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock

_TEMPLATE = ("spec", "template", "spec", "containers")
_AT = ("spec", "rollout", "activateAt")
_DELAY = ("spec", "rollout", "activationDelay")


class When(NamedTuple):
    """When the image may take over, as it was asked for: a time as written, or a delay (ns); neither = as the manifest says."""

    at: str = ""
    delay: int | None = None


class Written(NamedTuple):
    """What an edit comes to: the file and its two contents, the manifests with it, and warnings about them."""

    file: Path
    before: bytes
    after: bytes
    desired: Desired
    warnings: tuple[str, ...]


@click.command(
    epilog="""\b
PATH is the directory of the manifests, by default the current one. Comments and layout of the
file stay; what cannot be changed without touching more than the image and the time is refused.
Without a time the one in the manifest counts. In a git work tree, commit and push the change.

\b
Exit codes: 0 written, or already so; 3 the manifests would be invalid; 7 the file must be
edited by hand; 64 there is no such workload or container. Nothing is written unless it is 0.

\b
Examples:
  reconcile deploy workload/web manifests/ --image registry.example.com/shop/web:1.5
  reconcile deploy workload/web --image web:1.5 --container web --activate-in 2m
  reconcile deploy workload/web --image web:1.5 --activate-at 2030-01-31T22:00:00+01:00 -o json
""",
)
@click.argument("key")
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--image", required=True, metavar="REF", help="The image, with a tag or a digest.")
@click.option("--container", default="", metavar="NAME", help="Which container; needed when there are several.")
@click.option("--activate-at", default="", metavar="TIME", help="When it may take over, such as 2030-01-31T22:00:00Z.")
@click.option(
    "--activate-in",
    type=DurationType(),
    metavar="DURATION",
    help="How long after it was first seen it may take over, such as 30s.",
)
@instance_option
@common_options
def deploy(
    key: str, path: Path, image: str, container: str, activate_at: str, activate_in: int | None, **raw: Any
) -> Exit:
    """Write an image into the manifest of KEY (workload/web) below PATH."""
    options, key = Options.of(raw), key.lower()
    when = _when(activate_at, activate_in)
    try:
        parse_image(image)
    except ValueError as error:
        raise mistake(f"--image '{image}': {error}") from None
    if not key.startswith("workload/"):
        raise mistake(f"'{key}' has no image", "give a workload, such as workload/web")
    try:
        written = _edited(key, path, options.instance, image, container, when)
        if written.after != written.before:
            files.replace(key, written.file, written.after, written.before)
    except Refused as error:
        return _failed(options, Exit.PERSON, error.cause, error.next_step)
    except ManifestErrors as error:
        rendered = [problem.render() for problem in error.problems if not problem.is_warning]
        return _failed(options, Exit.INVALID, "\n".join(rendered), "nothing was written")
    except ProviderError as error:
        return _failed(options, Exit.ERROR, error.cause, error.next_step)
    return _told(options, key, written, image)


def _when(at: str, delay: int | None) -> When:
    """The time that was asked for, checked."""
    if at and delay is not None:
        raise mistake("--activate-at and --activate-in say two different times", "keep one")
    if at:
        try:
            parse_moment(at)
        except PydanticCustomError as error:
            context = error.context or {}
            raise mistake(f"--activate-at: {context.get('message', error)}", str(context.get("hint", ""))) from None
    return When(at, delay)


def _edited(key: str, path: Path, instance: Path | None, image: str, container: str, when: When) -> Written:
    """The edit, checked with the whole tree; nothing is written.

    Raises:
        ManifestErrors: the manifests are invalid, before or after it.
        Refused: it cannot be made cleanly.
        ProviderError: the file cannot be read.
        click.UsageError: there is no such workload or container.
    """
    desired, _ = tree.load_with_warnings(path, instance)
    workload = _workload(key, desired)
    name = workload.where.file
    if instance is not None and name == str(instance):
        raise Refused(f"{key} is declared in the local file {instance}", "edit it by hand")
    file = Path(desired.root, name).resolve()
    before = files.read(key, file)
    if before is None:
        raise Refused(f"{file} is not there any more", "try again")
    document = find(name, before, "Workload", workload.name)
    if document is None:
        raise Refused(f"{file} was changed meanwhile", "try again")
    changes: list[Change] = [Put((*_TEMPLATE, _place(document, container, workload), "image"), image)]
    after = edit(name, before, "Workload", workload.name, [*changes, *_times(document, when)])
    new, warnings = tree.load_with_warnings(path, instance, {name: after})
    return Written(file, before, after, new, tuple(warning.render() for warning in warnings))


def _workload(key: str, desired: Desired) -> Workload:
    found = next((workload for workload in desired.workloads if workload.key == key), None)
    if found is None:
        known = {one for one in of_desired(desired) if one.startswith("workload/") and one.count("/") == 1}
        raise no_such(key, Known(frozenset(known), frozenset()))
    return found


def _place(document: Document, container: str, workload: Workload) -> int:
    """The container's place in the list of the template."""
    value: Any = document.value
    containers = value["spec"]["template"]["spec"]["containers"]
    names = [str(one.get("name", "")) for one in containers]
    if container and container not in names:
        raise mistake(f"{workload.key} has no container '{container}'", f"it has: {', '.join(names)}")
    if not container and len(names) > 1:
        raise mistake(f"{workload.key} has several containers", f"add --container with one of: {', '.join(names)}")
    place = names.index(container) if container else 0
    if "image" not in containers[place]:
        raise mistake(f"container '{names[place]}' of {workload.key} has no image", "it runs a program of its node")
    return place


def _times(document: Document, when: When) -> list[Change]:
    """How the time gets into `rollout`, in the place of the other one if that is there."""
    if not when.at and when.delay is None:
        return []
    value: Any = document.value
    rollout = value["spec"].get("rollout") or {}
    mine, text = (_AT, when.at) if when.at else (_DELAY, str(Duration(when.delay or 0)))
    other = _DELAY if when.at else _AT
    if other[-1] in rollout and mine[-1] not in rollout:
        return [Rename(other, mine[-1], text)]
    return [Put(mine, text)]


def _activation(workload: Workload, now: int) -> str:
    """When the new revision may take over, RFC 3339; empty where it takes over replica by replica, from now on."""
    if workload.strategy not in STAGED:
        return ""
    rollout = workload.rollout
    wall = rollout.activate_at or now + rollout.delay
    return format_moment(wall if rollout.activate_at else wall // SECOND * SECOND)


def _told(options: Options, key: str, written: Written, image: str) -> Exit:
    workload, now = _workload(key, written.desired), SystemClock().now().wall
    activation = _activation(workload, now)
    changed = written.after != written.before
    due = workload.rollout.activate_at
    if not changed:
        message = f"{written.file} already says so"
    elif not activation:
        message = f"replicas are replaced as strategy {workload.strategy.value} says"
    elif due and due <= now:
        message = f"it takes over as soon as its replicas are well: {activation} has passed"
    elif due:
        message = f"it may take over at {activation}"
    else:
        delay = Duration(workload.rollout.delay)
        message = f"it may take over {delay} after it is first seen: not before {activation}"
    in_git = identity_of(written.file)[1]
    follow_up = f"commit it: git add {written.file.name} && git commit" if changed and in_git else ""
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
        options.view.err(line)
    word = "wrote" if changed else "kept"
    options.view.out(
        f"{options.view.paint.good(word)} {image} in {written.file}: revision {workload.template.revision}"
    )
    options.view.out(f"{key}: {message}")
    if follow_up:
        options.view.out(follow_up)
    return Exit.OK


def _failed(options: Options, code: Exit, cause: str, next_step: str) -> Exit:
    """Nothing was written: why, and what to do."""
    view = options.view
    if view.json:
        message = f"{cause}; {next_step}"
        view.document(
            {"exit_code": int(code), "success": False, "message": message, "revision": None, "activation_time": None}
        )
        return code
    view.err(f"{view.paint_err.bad('error:')} {cause}")
    if next_step:
        view.err(next_step)
    view.err(f"result: {code.sentence} (exit {int(code)})")
    return code
