"""Where a step comes from: the commit of the manifests in force, the place of its object in them, and the fields that caused it.

One text of JSON for each row of the journal and the audit; `reconcile events` and `explain` read it back with `read`. It holds names and
places, and no values. Called by the loop: `manifests` when others come into force, `of` for each step before it begins.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from manifests.problems import Where
from manifests.values.desired import Desired, Workload
from manifests.values.image_choice import IMAGE_POLICY
from reconciler.core import plan_changes
from reconciler.core.decision import Changed, Decision
from reconciler.core.model.step import Step
from reconciler.core.plan_places import Places, beside
from reconciler.core.replicas import setting_changes
from reconciler.core.replicas.setting_changes import Document


class Origin(NamedTuple):
    """The origin in a row of the audit. `fields` are (field, `file:line:column`), or "image policy" in its place."""

    commit: str = ""
    where: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The fields with their places and the commit, for a line; empty without fields."""
        if not self.fields:
            return ""
        shown = ", ".join(
            f"{field} {'by' if where == IMAGE_POLICY else 'at'} {where}" if where else field
            for field, where in self.fields[:_SHOWN]
        )
        more = len(self.fields) - _SHOWN
        commit = f", commit {self.commit[:12]}" if self.commit else ""
        return f"for {shown}{f' and {more} more' if more > 0 else ''}{commit}"


_SHOWN = 3
"""Fields in a line; JSON has all of them."""


def write(origin: Origin) -> str:
    """An origin as it is stored; empty where nothing is known."""
    if not any(origin):
        return ""
    row: dict[str, Any] = {"commit": origin.commit, "where": origin.where, "fields": origin.fields}
    return json.dumps({name: value for name, value in row.items() if value}, separators=(",", ":"))


def read(text: str) -> Origin:
    """An origin from the store; an empty one for rows of an earlier version."""
    try:
        raw = json.loads(text) if text else {}
        fields = tuple((str(field), str(where)) for field, where in raw.get("fields", ()))
        return Origin(str(raw.get("commit", "")), str(raw.get("where", "")), fields)
    except (ValueError, TypeError, AttributeError):
        return Origin()


def as_json(text: str) -> dict[str, Any]:
    """The stored origin as the fields of a JSON document."""
    origin = read(text)
    return {
        "commit": origin.commit or None,
        "where": origin.where or None,
        "fields": [{"field": field, "where": where or None} for field, where in origin.fields],
    }


class Origins:
    """The origins of the steps of one run.

    Args:
        commit: the commit of the manifests in force.
        places: finds fields in the files of the manifests in force; None where they are not kept.
    """

    def __init__(self, commit: Callable[[], str], places: Callable[[], Places | None]) -> None:
        self._commit, self._places_of = commit, places
        self._documents: Mapping[str, Where] = {}
        self._open: dict[str, tuple[Document, Document]] = {}
        self._changed: dict[str, Changed] = {}
        self._places: Places | None = None
        self._known: dict[str, str] = {}
        self._beside: Mapping[tuple[str, str], str] = {}

    def manifests(self, before: Desired | None, after: Desired) -> None:
        """Other manifests are in force. `before` None: it is not known which ones were."""
        self._documents, self._known = plan_changes.places(after), {}
        self._places, self._changed, self._beside = None, {}, beside(after)
        old = {} if before is None or before is after else setting_changes.documents(before)
        new = setting_changes.documents(after) if old else {}
        # Fields are compared once a step asks: after a change of thousands of objects the first weights must not wait for that.
        self._open = {key: (was, now) for key, now in new.items() if (was := old.get(key)) is not None and was != now}

    def settled(self, decision: Decision) -> None:
        """Forget the changes of objects that the decision has nothing left to do for: later steps have other causes.

        To be called while no call is under way: the steps that follow from one are in no decision yet.
        """
        if self._open and not decision.unsettled:
            objects = [step.object for step in decision.steps]
            objects += [hold.object for hold in decision.holds] + [wait.object for wait in decision.waits]
            keys = {plan_changes.document_key(obj) for obj in objects}
            self._open = {key: versions for key, versions in self._open.items() if key in keys}

    def of(self, step: Step, decision: Decision) -> str:
        """The origin of a step of a decision, as it is stored."""
        key = plan_changes.document_key(step.object)
        changed = self._of_manifests(key) or self._of_ledger(key, step, decision)
        if changed is not None:
            status = decision.status
            fields = plan_changes.fields_of(step, {key: changed}, status, status.observed)
            if fields:
                where = str(self._documents.get(key, ""))
                named = tuple((field.field, self._at(key, field.field)) for field in fields)
                by_policy = all(place == IMAGE_POLICY for _, place in named)
                return write(Origin("" if by_policy else self._commit(), where, named))
        return self.at(step.object)

    def at(self, obj: str) -> str:
        """The origin of an event about an object: its place in the manifests."""
        key = plan_changes.document_key(obj)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = write(Origin(self._commit(), str(self._documents.get(key, ""))))
        return known

    def _of_manifests(self, key: str) -> Changed | None:
        """What the manifests in force change in an object against those before; None once it is settled."""
        if key not in self._open:
            return None
        changed = self._changed.get(key)
        if changed is None:
            was, now = self._open[key]
            before, after = (item.template.revision if isinstance(item, Workload) else "" for item in (was, now))
            changed = self._changed[key] = Changed(key, before, after, setting_changes.between(was, now))
        return changed if changed.fields else None

    @staticmethod
    def _of_ledger(key: str, step: Step, decision: Decision) -> Changed | None:
        """What a workload changes against the templates in the ledger: after a restart of the program in the middle of a rollout."""
        group = decision.status.roster.groups.get(key)
        if group is None or group.workload.restart_only or step.cause not in plan_changes.REPLACED:
            return None
        return plan_changes.of_workload(decision.ledger, group, None)

    def _at(self, key: str, field: str) -> str:
        if (key, field) in self._beside:
            return self._beside[key, field]
        where = self._documents.get(key)
        if where is None:
            return ""
        if self._places is None:
            self._places = self._places_of()
        return str(where if self._places is None else self._places.of(where, field))
