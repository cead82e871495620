"""From all documents of a tree to `Desired`, or everything that is wrong with them, at once. Called by `load.py`.

Pure: the documents and the types of providers in, a value out. The order of files and documents does not matter.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from manifests import kinds
from manifests.kinds.validate import Declared, validate
from manifests.problems import LOST, Code, ManifestErrors, Problem, did_you_mean
from manifests.resolve import dns, push, workload_and_service
from manifests.resolve import limits as build_limits
from manifests.resolve.exclusive_claims import check_claims
from manifests.resolve.list_conflicts import check_lists
from manifests.resolve.name_conflicts import check_names
from manifests.resolve.pod import Support, TemplateSupport
from manifests.resolve.probe import check_commands
from manifests.resolve.record_list import record_list
from manifests.resolve.references import Scope
from manifests.resolve.workload_and_service import KnownTypes, Selection, SettingsModel
from manifests.source.directory import SourceTree
from manifests.values import desired
from manifests.yaml.read import Document

INSTANCE_EXAMPLE = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec:
  id: my-host"""


def any_field(_type: str) -> Support | None:
    """Support of runtimes that do not say what they understand: nothing is refused."""
    return None


@dataclass(frozen=True, slots=True)
class Resolved:
    """A valid tree, and what is worth knowing about its text all the same."""

    desired: desired.Desired
    warnings: tuple[Problem, ...]


def resolve(
    tree: SourceTree,
    documents: Sequence[Document],
    local: Sequence[Document] = (),
    *,
    settings_model: SettingsModel,
    known_types: KnownTypes,
    template_support: TemplateSupport = any_field,
    problems: Iterable[Problem] = (),
) -> Resolved:
    """Resolve the documents of a tree.

    Args:
        tree: where they come from.
        documents: all documents of the tree that are not empty.
        local: documents from outside the tree; each replaces the object of the tree with the same identity (an Instance
            or a Guard whatever its name).
        settings_model: role and settings model of a provider type.
        known_types: all provider types, for suggestions.
        template_support: which fields of a pod template a runtime type has, and needs.
        problems: what reading has found already.

    Raises:
        ManifestErrors: there is any problem that is not a warning; it holds all of them.
    """
    found = list(problems)
    if not documents and not any(problem.code in LOST or problem.code is Code.PATH_NOT_FOUND for problem in found):
        hint = "check the path; to remove everything on purpose there is a command of its own"
        message = "there are no manifests, so nothing is applied and nothing is removed"
        raise ManifestErrors([*found, Problem(".", 0, 0, Code.EMPTY_TREE, "", message, hint)])
    declared, of_tree = _validate(documents)
    declared_locally, of_local = _validate(local)
    found += of_tree + of_local
    nameless = any(problem.code is Code.PATH_NOT_FOUND or problem.code in LOST for problem in found)
    scope = Scope(declared, declared_locally, lost=nameless or len(declared) < len(documents))
    scope.problems.extend(found)
    value = _desired(tree, scope, settings_model, known_types, template_support)
    warnings = tuple(sorted({problem for problem in scope.problems if problem.is_warning}))
    if value is None or len(warnings) < len(set(scope.problems)):
        raise ManifestErrors(scope.problems)
    return Resolved(value, warnings)


def _validate(documents: Iterable[Document]) -> tuple[list[Declared], list[Problem]]:
    declared: list[Declared] = []
    problems: list[Problem] = []
    for document in documents:
        one, wrong = validate(document)
        problems += wrong
        if one is not None:
            declared.append(one)
    return declared, problems


def _desired(
    tree: SourceTree,
    scope: Scope,
    settings_model: SettingsModel,
    known_types: KnownTypes,
    template_support: TemplateSupport,
) -> desired.Desired | None:
    """The whole value; None when there is no valid Instance. Only to be used when the scope has no problems."""
    instance = _instance(scope)
    made = [workload_and_service.provider(one, scope, settings_model, known_types) for one in scope.all("Provider")]
    providers = tuple(provider for provider in made if provider is not None)
    instance_id = instance.id if instance else ""
    workloads = [
        workload_and_service.workload(one, scope, instance_id, template_support) for one in scope.all("Workload")
    ]
    check_claims(scope, [one for one in workloads if one is not None])
    selection = Selection(scope.all("Workload"))
    services = [
        service for one in scope.all("Service") if (service := workload_and_service.service(one, scope, selection))
    ]
    policies = [policy for one in scope.all("DNSPolicy") if (policy := dns.policy(one, scope))]
    checks = [check for one in scope.all("HealthCheck") if (check := dns.health_check(one, scope))]
    records = [record for one in scope.all("Record") if (record := dns.record(one, scope))]
    lists = [found for one in scope.all("RecordList") if (found := record_list(one, scope))]
    _report_shared_pools(scope)
    check_names(scope, policies, records)
    check_lists(scope, lists, [*policies, *records])
    guard = _guard(scope)
    if instance is None:
        return None
    return desired.Desired(
        source=tree.identity,
        revision=tree.revision,
        root=tree.root,
        complete=tree.complete,
        instance=instance,
        guard=guard,
        providers=providers,
        workloads=tuple(workload for workload in workloads if workload is not None),
        services=tuple(services),
        policies=tuple(policies),
        services_of=_services_of(services),
        prune=instance.prune,
        checks=tuple(checks),
        records=tuple(records),
        record_lists=tuple(lists),
    )


def _instance(scope: Scope) -> desired.Instance | None:
    declared = scope.all("Instance")
    if not declared:
        if not scope.lost:
            message = "there is no Instance, which says who this installation is"
            hint = f"add a document like this, with an id of your own:\n{INSTANCE_EXAMPLE}"
            scope.problems.append(Problem(".", 0, 0, Code.NO_INSTANCE, "", message, hint))
        return None
    manifest = declared[0].manifest
    if not isinstance(manifest, kinds.Instance):
        return None
    spec = manifest.spec
    every = spec.intervals
    return desired.Instance(
        id=spec.id,
        prune=spec.prune,
        look_runtime=int(every.runtime),
        look_endpoints=int(every.endpoints),
        look_dns=int(every.dns),
        push=push.listener(declared[0], scope, manifest),
        enhanced_liveness=spec.enhanced_liveness,
        allow_addresses=tuple(sorted(spec.allow_addresses)),
    )


def _guard(scope: Scope) -> desired.Guard:
    declared = scope.all("Guard")
    manifest = declared[0].manifest if declared else None
    if not isinstance(manifest, kinds.Guard):
        return desired.Guard()
    spec = manifest.spec
    for index, key in enumerate(spec.deny):
        if not scope.lost and not scope.has(key) and not key.startswith("container/"):
            hint = did_you_mean(key, scope.keys(), "declared objects")
            path = ("spec", "deny", index)
            scope.report(
                declared[0], path, Code.UNKNOWN_REFERENCE, f"{declared[0].key}: there is no object '{key}'", hint
            )
    for one in scope.all("Workload") if spec.exec_commands is not None else ():
        check_commands(one, scope, spec.exec_commands or ())
    limits = spec.mass_change
    mass_change = desired.MassChange(int(limits.share), limits.minimum, limits.records, limits.names)
    return desired.Guard(
        spec.suspend,
        frozenset(spec.deny),
        mass_change,
        spec.exec_commands,
        restarts=build_limits.guard_restarts(spec),
        mass_failure=build_limits.mass_failure(spec),
        windows=build_limits.windows(spec),
    )


def _report_shared_pools(scope: Scope) -> None:
    """A pool (or its slots of one prefix) holds the endpoints of one service: two would remove each other's."""
    first: dict[tuple[str, str, str | None], Declared] = {}
    for declared in scope.all("Service"):
        if not isinstance(declared.manifest, kinds.Service):
            continue
        for index, balancer in enumerate(declared.manifest.spec.balancers):
            other = first.setdefault((balancer.provider, balancer.pool, balancer.slots), declared)
            if other is not declared:
                message = f"{declared.key}: {other.key} at {other.document.where} already has pool '{balancer.pool}' of '{balancer.provider}'"
                path = ("spec", "balancers", index, "pool")
                scope.report(declared, path, Code.CONFLICT, message, "give each service its own pool")


def _services_of(services: Iterable[desired.Service]) -> dict[str, tuple[tuple[str, int], ...]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for service in services:
        for backend in service.backends:
            found.setdefault(backend.workload, []).append((service.key, backend.port))
    return {workload: tuple(sorted(found[workload])) for workload in sorted(found)}
