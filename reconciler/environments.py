"""Keeps the environments of one set apart: each is an instance of its own, with its own state. Called by `start.py` and `wire.py`.

The id of the instance decides which state a run uses, so a run that has the id of another environment would turn that one into itself. It is
refused. So are manifests of which a part would not be read any more, because it is in the directory of the environments.
"""

from dataclasses import replace
from pathlib import Path

from manifests.load import Sources
from manifests.problems import Code, ManifestErrors, Problem
from manifests.source.directory import ENVIRONMENTS, SourceTree
from manifests.values.source_identity import environment_of
from reconciler import tree
from reconciler.shell.store import instance_index, last_good, source_record
from reconciler.shell.store.directory import StoreError


def conflict(state: Path, read: SourceTree, instance: str) -> Problem | None:
    """Why the instance of a run is not that of the environment that was read; None when it is.

    Args:
        state: the state directory of the run.
        read: the files of the run.
        instance: the id that they declare; empty while they are invalid: then only `state` is asked.
    """
    in_force = {}
    record = source_record.load(state)
    if record is not None and record.in_force is not None and not record.removed:
        in_force[state] = environment_of(record.in_force.source)
        instance = instance or record.instance
    elif instance:
        # Without such a record in the own state directory, the id may be in use with another one.
        try:
            in_force = instance_index.environments(tree.state_base(), instance)
        except tree.NoHome:
            in_force = {}
    for environment in in_force.values():
        if environment == read.environment:
            continue
        is_read = f"environment '{read.environment}'" if read.environment else "the base without an environment"
        runs = f"environment '{environment}'" if environment else "the base without an environment"
        message = f"instance '{instance}' runs {runs}, and this run reads {is_read}"
        again = f"--env {environment}" if environment else "no --env"
        hint = (
            f"to go on with what runs, give {again}; to run both, give {is_read} an Instance with another spec.id\n"
            "to change the instance to what this run reads, look at the plan with --take-over, then apply with --take-over"
        )
        return Problem(ENVIRONMENTS, 0, 0, Code.WRONG_ENVIRONMENT, "", message, hint)
    return None


def checked(state: Path, read: SourceTree, instance: str, *, take_over: bool) -> None:
    """Raise ManifestErrors where a run of these files would be refused for the environment."""
    other = None if take_over else conflict(state, read, instance)
    wrong = left_out(state, read) if other is None else [other]
    if wrong:
        raise ManifestErrors(wrong)


def changed(before: SourceTree, read: SourceTree) -> list[Problem]:
    """The problem of files of another environment than a running process began with; none when it is the same."""
    if before.environment == read.environment:
        return []
    names = [f"'{each.environment}'" if each.environment else "none" for each in (before, read)]
    message = f"the environment of this process changed from {names[0]} to {names[1]}"
    hint = "correct spec.source.env of the local Instance, or start the process again"
    return [Problem(ENVIRONMENTS, 0, 0, Code.WRONG_ENVIRONMENT, "", message, hint)]


def reads_environments(tree: SourceTree) -> bool:
    """Whether files of `environments/` are manifests of the base: a program before environments existed has read them."""
    return not tree.environment and any(file.name.startswith(f"{ENVIRONMENTS}/") for file in tree.files)


def with_left_out(state: Path, sources: Sources) -> Sources:
    """The files of a read, with the problem of `left_out`."""
    wrong = left_out(state, sources.tree)
    problems = tuple(sorted({*sources.tree.problems, *wrong}))
    return replace(sources, tree=replace(sources.tree, problems=problems)) if wrong else sources


def left_out(state: Path, read: SourceTree) -> list[Problem]:
    """The problem of manifests in force that would not be read any more, although they are where they were; none when there are none.

    Programs before environments existed read `environments/` like any other directory. The objects in it must not vanish by an update.
    """
    if read.environment or not read.environments:
        return []
    try:
        good = last_good.load(state)
    except StoreError:
        return []
    if good is None or good.removed or good.sources.tree.environment:
        return []
    there = tuple(f"{ENVIRONMENTS}/{name}/" for name in read.environments)
    names = [file.name for file in good.sources.tree.files if file.name.startswith(there)]
    if not names:
        return []
    more = f" and {len(names) - 1} more files" if len(names) > 1 else ""
    message = f"{names[0]}{more} are in force, but files in {ENVIRONMENTS} are read only with --env"
    hint = f"rename the directory {ENVIRONMENTS}; or remove these files for one run, if their objects are to be removed"
    return [Problem(names[0], 0, 0, Code.WRONG_ENVIRONMENT, "", message, hint)]
