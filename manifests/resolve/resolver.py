"""From all documents of a tree to `Desired`, or to all of its problems at once. Called by `load.py`.

Pure: the documents and the types of providers in, a value out. The order of files and documents does not matter.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from manifests.kinds.validate import Declared, validate
from manifests.problems import HIDES_DOCUMENTS, Code, ManifestErrors, Problem
from manifests.resolve import ciphertext, dns, image_choices
from manifests.resolve.exclusive_claims import check_claims
from manifests.resolve.guard import guard
from manifests.resolve.instance import instance
from manifests.resolve.list_conflicts import check_lists
from manifests.resolve.local import check_reach, without_local_kinds
from manifests.resolve.name_conflicts import check_names
from manifests.resolve.pod import Support, TemplateSupport
from manifests.resolve.policy import Violation, policy_of, violations
from manifests.resolve.provider import KnownTypes, SettingsModel, provider
from manifests.resolve.record_checks import check_records
from manifests.resolve.record_list import record_list
from manifests.resolve.references import Scope
from manifests.resolve.secret_files import ReadFile, check_secret_files
from manifests.resolve.secret_names import check_names as check_secret_names
from manifests.resolve.service import Selection, check_shared_pools, service, services_of
from manifests.resolve.workload import workload
from manifests.source.directory import SourceTree
from manifests.values import desired
from manifests.values.image_choice import ImageChoice
from manifests.yaml.read import Document, internal_problem


def any_field(_type: str) -> Support | None:
    """Support of runtimes that do not say which fields they understand: nothing is refused."""
    return None


@dataclass(frozen=True, slots=True)
class Resolved:
    """The value of a valid tree, and the warnings about it."""

    desired: desired.Desired
    warnings: tuple[Problem, ...]


def resolve(
    tree: SourceTree,
    documents: Sequence[Document],
    local: Sequence[Document] | None = None,
    *,
    settings_model: SettingsModel,
    known_types: KnownTypes,
    template_support: TemplateSupport = any_field,
    problems: Iterable[Problem] = (),
    confined: bool = True,
    enforce: bool = True,
    secret_files: ReadFile | None = None,
    choices: tuple[ImageChoice, ...] = (),
) -> Resolved:
    """Resolve the documents of a tree.

    `settings_model`, `known_types` and `template_support` are what this package cannot know; `problems` is what reading reported.

    Args:
        tree: where they come from.
        documents: all documents of the tree that are not empty.
        local: local documents; None without `--instance`. They say what the tree may reach; each replaces the object of the tree
            with the same identity (an Instance or a Guard whatever its name).
        settings_model: role and settings model of a provider type.
        known_types: all provider types, for suggestions.
        template_support: which fields of a pod template a runtime type has, and needs.
        problems: the problems of reading.
        confined: whether local documents confine the tree; without it they only replace.
        enforce: whether violations of the policy are problems. False: they only mark the workloads, so that manifests which were in force
            before the policy stay in force for what runs.
        secret_files: reads encrypted files of the tree, to check them too; None leaves them to the run.
        choices: images that policies chose without a commit; they count only where local documents allow it.

    Raises:
        ManifestErrors: there is any problem that is not a warning; it holds all of them.
    """
    known = list(problems)
    documents, encrypted = ciphertext.without_data(documents, local or ())
    known += encrypted
    hidden = any(problem.code in HIDES_DOCUMENTS for problem in known)
    if not documents and not hidden:
        hint = "check the path; to remove everything on purpose run `reconcile destroy`"
        message = "there are no manifests: nothing is applied and nothing is removed"
        raise ManifestErrors([*known, Problem(".", 0, 0, Code.EMPTY_TREE, "", message, hint)])
    declared, of_tree = _validate(documents)
    declared_locally, of_local = _validate(local or ())
    declared_locally = [replace(item, local=True) for item in declared_locally]
    known += of_tree + of_local
    confined = confined and local is not None
    if confined:
        declared, moved = without_local_kinds(declared)
        known += moved
    hidden = any(problem.code in HIDES_DOCUMENTS for problem in known)
    incomplete = hidden or len(declared) < len(documents)
    chosen: image_choices.Choices = {}
    if choices and image_choices.allowed(declared_locally):
        declared, of_tree_choices = image_choices.applied(declared, choices)
        declared_locally, of_local_choices = image_choices.applied(declared_locally, choices)
        chosen = {**of_tree_choices, **of_local_choices}
    scope = Scope(declared, declared_locally, incomplete=incomplete, confined=confined)
    scope.choices = chosen
    scope.problems.extend(known)
    scope.sets = {item.path: item for item in tree.sets}
    value = _desired(tree, scope, settings_model, known_types, template_support)
    check_reach(scope, template_support)
    check_secret_names(scope)
    if secret_files is not None:
        check_secret_files(scope, secret_files)
    # With local documents their Guard alone has the policy, or its default.
    guards = [guard for guard in (declared if local is None else declared_locally) if guard.kind == "Guard"]
    policy = policy_of(guards[0] if guards else None, local=local is not None)
    found = () if value is None else tuple(violations(policy, scope, value))
    if enforce:
        for violation in found:
            scope.report(violation.declared, violation.path, Code.POLICY_VIOLATION, violation.message, violation.hint)
    elif value is not None:
        value = replace(value, workloads=_marked(value.workloads, found))
    if value is not None:
        value = replace(value, guard=replace(value.guard, policy=policy))
    warnings = tuple(sorted({problem for problem in scope.problems if problem.is_warning}))
    if value is None or len(warnings) < len(set(scope.problems)):
        raise ManifestErrors(scope.problems)
    return Resolved(value, warnings)


def _marked(workloads: tuple[desired.Workload, ...], found: Sequence[Violation]) -> tuple[desired.Workload, ...]:
    """The workloads, each that violates the policy with the first reason why."""
    reasons: dict[str, str] = {}
    for violation in found:
        reasons.setdefault(violation.declared.key, violation.message.removeprefix(f"{violation.declared.key}: "))
    if not reasons:
        return workloads
    return tuple(replace(item, forbidden=reasons.get(item.key, "")) for item in workloads)


def _validate(documents: Iterable[Document]) -> tuple[list[Declared], list[Problem]]:
    declared: list[Declared] = []
    problems: list[Problem] = []
    for document in documents:
        try:
            problems += ciphertext.texts(document)
            identified, wrong = validate(document)
        except Exception as error:  # noqa: BLE001  (a document that breaks a check must not end a daemon)
            problems.append(internal_problem(document.where, error))
            continue
        problems += wrong
        if identified is not None:
            declared.append(identified)
    return declared, problems


def _desired(
    tree: SourceTree,
    scope: Scope,
    settings_model: SettingsModel,
    known_types: KnownTypes,
    template_support: TemplateSupport,
) -> desired.Desired | None:
    """The whole value; None when there is no valid Instance. Only to be used when the scope has no problems."""
    this = instance(scope)
    made = [provider(declared, scope, settings_model, known_types) for declared in scope.all("Provider")]
    providers = tuple(value for value in made if value is not None)
    instance_id = this.id if this else ""
    resolved = [workload(declared, scope, instance_id, template_support) for declared in scope.all("Workload")]
    workloads = [value for value in resolved if value is not None]
    check_claims(scope, workloads)
    selection = Selection(scope.all("Workload"))
    services = [value for declared in scope.all("Service") if (value := service(declared, scope, selection))]
    policies = [policy for declared in scope.all("DNSPolicy") if (policy := dns.policy(declared, scope))]
    checks = [check for declared in scope.all("HealthCheck") if (check := dns.health_check(declared))]
    records = [record for declared in scope.all("Record") if (record := dns.record(declared, scope))]
    lists = [listed for declared in scope.all("RecordList") if (listed := record_list(declared, scope))]
    check_shared_pools(scope)
    check_names(scope, policies, records)
    check_lists(scope, lists, [*policies, *records])
    check_records(scope, policies, records, lists)
    limits = guard(scope)
    if this is None:
        return None
    return desired.Desired(
        source=tree.identity,
        revision=tree.revision,
        root=tree.root,
        complete=tree.complete,
        instance=this,
        guard=limits,
        providers=providers,
        workloads=tuple(workloads),
        services=tuple(services),
        policies=tuple(policies),
        services_of=services_of(services),
        prune=this.prune,
        checks=tuple(checks),
        records=tuple(records),
        record_lists=tuple(lists),
        file_contents=scope.file_contents,
    )
