"""The places of the fields in a plan: the file and line of each, instead of those of their documents. Called by the composition root."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from manifests.problems import Where
from manifests.values.desired import Desired
from manifests.values.image_choice import IMAGE_POLICY
from reconciler.core import plan_changes
from reconciler.core.decision import Plan
from reconciler.core.replicas.field_changes import FieldChange


class Places(Protocol):
    """Finds fields in files."""

    def of(self, where: Where, field: str) -> Where:
        """The place of a field, or of the nearest value around it, in the document at `where`."""


def placed(plan: Plan, desired: Desired, places: Places) -> Plan:
    """The plan with the places of its fields."""
    documents = plan_changes.places(desired)
    found = beside(desired)

    def at(key: str, fields: tuple[FieldChange, ...]) -> tuple[FieldChange, ...]:
        return fields_at(documents, places, key, fields, found)

    return replace(
        plan,
        changed=tuple(replace(row, fields=at(row.object, row.fields)) for row in plan.changed),
        steps=tuple(
            replace(step, fields=at(plan_changes.document_key(step.step.object), step.fields)) if step.fields else step
            for step in plan.steps
        ),
    )


def beside(desired: Desired) -> dict[tuple[str, str], str]:
    """The places of fields whose value stands elsewhere than in the manifest of their object, by object and field."""
    return of_variables(desired) | of_choices(desired)


def of_choices(desired: Desired) -> dict[tuple[str, str], str]:
    """What stands in the place of a file and line for the images that policies chose, by object and field."""
    return {
        (workload.key, choice.field): IMAGE_POLICY
        for workload in desired.workloads
        for choice in workload.image_choices
        if choice.image
    }


def of_variables(desired: Desired) -> dict[tuple[str, str], str]:
    """The places of the variables of every `envFile`, by the key of the workload and the name of the field."""
    return {
        (workload.key, f"containers[{container}].env[{name}]"): f"{place}:1"
        for workload in desired.workloads
        for container, name, place in workload.env_origins
    }


def fields_at(
    documents: Mapping[str, Where],
    places: Places,
    key: str,
    fields: tuple[FieldChange, ...],
    found: dict[tuple[str, str], str],
) -> tuple[FieldChange, ...]:
    """Fields of one object with their places. `found` keeps those that are known already."""
    where = documents.get(key)
    if where is None:
        return fields
    for field in fields:
        if (key, field.field) not in found:
            found[key, field.field] = str(places.of(where, field.field))
    return tuple(field._replace(where=found[key, field.field]) for field in fields)
