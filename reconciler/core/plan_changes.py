"""What the manifests change in each object, and for which of these fields a step is taken.

A workload is compared with what runs: with the manifests in force where they declared that revision, else with its template in the ledger,
else with what the runtime shows. Everything else is compared with the manifests in force. Called by `forecast`; for steps that are
carried out by `shell/report/origins`.
"""

from collections.abc import Collection, Iterator, Mapping

from manifests.problems import NOWHERE, Where
from manifests.values.desired import Desired, OnSecretChange, Workload
from providers.actions import (
    ChangeRecords,
    CreateContainer,
    RemoveContainer,
    SetWeight,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.facts import ContainerFact, Known
from reconciler.core.decision import Basis, Changed, Decision
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.core.replicas import image_pins, runtime_changes, setting_changes, template_changes, templates
from reconciler.core.replicas.field_changes import SECRET, Effect, FieldChange
from reconciler.core.replicas.roster import Group
from reconciler.core.status.objects import Status

REPLACED = frozenset({Reason.TEMPLATE_CHANGED, Reason.SUPERSEDED, Reason.MISSING, Reason.NOT_STARTED})
"""Causes of the steps by which a container of another revision takes the place of one."""

_MOVED = frozenset({Reason.NODE_CHANGED, Reason.MISSING, Reason.NOT_STARTED})

_SCALED = frozenset({Reason.SURPLUS, Reason.MISSING, Reason.NOT_STARTED})

_OF_POOLS = frozenset({Reason.READY, Reason.RAMP, Reason.MOVED, Reason.SPREAD, Reason.GONE, Reason.PUSHED_READY})
_OF_NAMES = frozenset({Reason.CHANGED, Reason.PUBLISHED, Reason.WITHDRAWN})
"""Causes of steps on pools and names that follow from their manifests, and not from failed health or an order."""


def document_key(key: str) -> str:
    """The document of an object: `workload/web` of `workload/web/0`."""
    return "/".join(key.split("/", 2)[:2])


def places(desired: Desired) -> dict[str, Where]:
    """Where each document of the manifests stands, by the key of its object."""
    lists = (
        desired.workloads, desired.services, desired.policies, desired.checks, desired.records, desired.record_lists,
        desired.providers,
    )  # fmt: skip
    return {item.key: item.where for items in lists for item in items if item.where != NOWHERE}


def of_plan(desired: Desired, decision: Decision, in_force: Desired | None) -> tuple[Changed, ...]:
    """What the manifests change, by object; only objects with a change.

    Args:
        decision: the first one of the plan.
        in_force: the manifests that a run put in force last; None when they are not known.
    """
    earlier = {} if in_force is None else setting_changes.documents(in_force)
    ledger = decision.ledger
    rows = [
        changed
        for key, group in sorted(decision.status.roster.groups.items())
        if not group.workload.restart_only and (changed := of_workload(ledger, group, earlier.get(key))) is not None
    ]
    for key, item in setting_changes.documents(desired).items():
        fields = () if isinstance(item, Workload) else setting_changes.changes(earlier.get(key), item)
        if fields:
            rows.append(Changed(key, "", "", fields, where=str(item.where)))
    return tuple(rows)


def of_workload(ledger: Ledger, group: Group, earlier: object) -> Changed | None:
    """What the manifests change in one workload; None for nothing. `earlier`: the workload in the manifests in force."""
    workload = group.workload
    declared, before = workload.template, ""
    was = earlier if isinstance(earlier, Workload) else None
    fields: tuple[FieldChange, ...] = ()
    basis = Basis.MANIFESTS
    found = templates.replaced(group)
    if found is not None:
        before, fact = found
        known = was is not None and was.template.revision == before
        template = was.template if known and was is not None else templates.known(ledger, workload.key, before)
        if template is not None:
            pins = (image_pins.pins_of(ledger, workload.key, revision) for revision in (before, declared.revision))
            fields = template_changes.changes(template, declared, *pins)
        else:
            fields = runtime_changes.changes(fact, declared)
            basis = Basis.RUNTIME if fact.image or fact.setup is not None or fact.live else Basis.UNKNOWN
    elif was is not None:
        before = was.template.revision
        fields = () if was.template == declared else template_changes.changes(was.template, declared)
    elif group.unseen or group.unreadable_nodes or group.members():
        before = declared.revision
    elif workload.replicas:
        fields = template_changes.given(declared)
    fields += setting_changes.changes(was, workload)
    fields += tuple(_secrets(group, {field.field for field in fields}))
    if not fields and found is None:
        return None
    where = "" if workload.where == NOWHERE else str(workload.where)
    return Changed(workload.key, before, declared.revision, fields, basis, where)


def _secrets(group: Group, known: Collection[str]) -> Iterator[FieldChange]:
    """Secrets with another value than running containers have, found by their salted digests. `known`: fields that are listed already.

    A container of an earlier revision counts too, where the manifests still give the variable: its successor gets the other value.
    """
    template, wanted = group.workload.template, group.workload.template.revision
    given = {
        f"{container.name}/{variable}"
        for container in (template.container, *template.sidecars)
        for variable, *_ in container.engine.secret_env
    }
    stale = {
        name
        for belief in group.members()
        if belief.fact.mark is not None
        for name in belief.fact.stale_secrets
        if belief.fact.mark.revision == wanted or name in given
    }
    restarts = group.workload.on_secret_change is OnSecretChange.RESTART
    for name in sorted(stale):
        container, _, variable = name.rpartition("/")
        field = f"containers[{container or template.container.name}].env[{variable}]"
        if field not in known:
            yield FieldChange(
                field, SECRET, f"another {SECRET}", Effect.NEW_CONTAINER if restarts else Effect.NO_CONTAINER
            )


def fields_of(
    step: Step, changed: Mapping[str, Changed], status: Status, observed: Observed
) -> tuple[FieldChange, ...]:
    """The fields of the manifests for whose change a step is taken; of a change in place those that differ in the container, and those of
    the volumes whose files it gets.

    Args:
        changed: what the manifests change, by the key of the document.
        status: of the decision that has the step, for the workloads. observed: its facts, for the containers.
    """
    action = step.action
    row = changed.get(document_key(step.object))
    if isinstance(action, UpdateContainer):
        files = tuple(f"volumes[{volume}].files." for volume, *_ in action.files)
        of_files = tuple(field for field in row.fields if field.field.startswith(files)) if row is not None else ()
        group, fact = status.roster.groups.get(document_key(step.object)), _fact(observed, action)
        if group is None or fact is None:
            return of_files
        main = group.workload.template.container.name
        return (*runtime_changes.live_changes(fact.live, action.live, main), *of_files)
    if row is None:
        return ()
    if isinstance(action, SetWeight):
        return row.fields if step.cause in _OF_POOLS else ()
    if isinstance(action, ChangeRecords):
        return row.fields if step.cause in _OF_NAMES else ()
    if not isinstance(action, CreateContainer | StartContainer | StopContainer | RemoveContainer) or row.is_new:
        return ()
    return tuple(field for field in row.fields if _causes(step, action, row, field))


def _fact(observed: Observed, action: UpdateContainer) -> ContainerFact | None:
    """The container that is changed in place, as it was observed before."""
    known = observed.runtimes.get(action.node)
    facts = known.value if isinstance(known, Known) else ()
    return next((fact for fact in facts if fact.name == action.name), None)


def _causes(step: Step, action: object, row: Changed, field: FieldChange) -> bool:
    """Whether the change of one field is why a step on a container is taken."""
    name, cause = field.field, step.cause
    if field.before == SECRET and row.before == row.after:
        return cause in (Reason.SECRET_CHANGED, Reason.MISSING, Reason.NOT_STARTED)
    if name == "replicas":
        return cause in _SCALED
    if name.partition("[")[0] == "nodes":
        return cause in _MOVED
    if field.effect is not Effect.NEW_CONTAINER or cause not in REPLACED:
        return False
    created = isinstance(action, CreateContainer | StartContainer)
    of_new = row.after[:8] in step.id if created else row.after[:8] not in step.id
    return row.before != row.after and of_new
