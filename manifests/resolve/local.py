"""What the manifests of the tree may reach when there are local documents (`--instance`). Called by `resolver.py`.

An author who can merge must not gain the host: local documents, outside the tree, name the servers, sockets and programs, the limits, and where each
secret may go. They are not confined themselves. Without them a tree is trusted like a script.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pydantic import BaseModel

from manifests import kinds
from manifests.kinds.health_check import CheckFields
from manifests.kinds.pod import EnvVar
from manifests.kinds.probe import HTTPHeader
from manifests.kinds.secret_ref import SecretReference, written
from manifests.kinds.secret_rule import Destination, SecretRule
from manifests.kinds.validate import Declared, Path, problem_at
from manifests.problems import Code, Problem, key_path
from manifests.resolve.pod import TemplateSupport
from manifests.resolve.references import Scope
from manifests.values.desired import Role
from manifests.values.pod import RELATIVE_WORKING_DIR

TREE_KINDS = frozenset({"Workload", "Service", "DNSPolicy", "Record", "RecordList", "HealthCheck"})
"""Kinds that the tree may declare; all others are for local documents."""

WITH_SECRETS = ("Workload", "DNSPolicy", "HealthCheck")
"""Kinds of the tree whose fields may refer to secrets."""


def without_local_kinds(declared: Sequence[Declared]) -> tuple[list[Declared], list[Problem]]:
    """The objects of the tree, and a problem for each that only a local document may declare. Its name stays known, its content does not."""
    kept: list[Declared] = []
    problems: list[Problem] = []
    for item in declared:
        if item.kind in TREE_KINDS:
            kept.append(item)
            continue
        message = f"{item.key}: with local documents, only they may declare the kind {item.kind}"
        hint = "move this document to the file or directory of --instance, or remove it"
        problems.append(problem_at(item.document, ("kind",), Code.LOCAL_ONLY, message, hint))
        kept.append(replace(item, manifest=None))
    return kept, problems


def check_reach(scope: Scope, support: TemplateSupport) -> None:
    """Report references to secrets, and local processes, that the Instance does not allow the tree."""
    declared = scope.all("Instance")
    instance = declared[0].manifest if declared else None
    if not isinstance(instance, kinds.Instance):
        return  # reported elsewhere
    if not scope.confined:
        _check_no_rules(declared[0], instance, scope)
        return
    place = declared[0].document.file
    for kind in WITH_SECRETS:
        for item in scope.all(kind):
            if item.local or item.manifest is None:
                continue
            for use in _uses(item):
                if not any(_allows(rule, use) for rule in instance.spec.secrets):
                    _report_secret(item, use, scope, place)
    _check_processes(instance, scope, support, place)


def _check_no_rules(declared: Declared, instance: kinds.Instance, scope: Scope) -> None:
    """Refuse rules that nothing reads: an author of the tree could change them."""
    if declared.local:
        return
    spec = instance.spec
    fields = (
        ("secrets", spec.secrets),
        ("secretCommands", spec.secret_commands),
        ("decryption", spec.decryption),
        ("allowProcess", spec.allow_process),
        ("notifications", spec.notifications),
        ("forge", spec.forge),
        ("reviews", spec.reviews),
        ("source", spec.source),
        ("deployments", spec.deployments),
        ("imagePolicies", spec.image_policies),
    )
    for field, given in fields:
        if given:
            message = f"{declared.key}: spec.{field} does nothing in the tree, whose authors could change it"
            hint = "move this document out of the tree and pass it with --instance, or remove the field"
            scope.report(declared, ("spec", field), Code.LOCAL_ONLY, message, hint)


# --- processes on the host -------------------------------------------------------------------------------------------


def _check_processes(instance: kinds.Instance, scope: Scope, support: TemplateSupport, place: str) -> None:
    """Report workloads of the tree that would run programs as the user of this process."""
    for item in scope.all("Workload"):
        if item.local or not isinstance(item.manifest, kinds.Workload) or item.name in instance.spec.allow_process:
            continue
        # Without nodes the only runtime is meant; more than one are reported elsewhere.
        nodes = item.manifest.spec.nodes or sorted(name for name, role in scope.roles.items() if role is Role.RUNTIME)
        on_host = [node for node in nodes if _shares_the_host(scope.types.get(node, ""), support)]
        if not on_host:
            continue
        message = f"{item.key}: its replicas on node '{on_host[0]}' are processes of this host, with the rights of the user of reconcile"
        hint = f"if the authors of the tree may run programs here, add to the Instance in {place}:\nspec: {{allowProcess: [{item.name}]}}"
        path: Path = ("spec", "nodes") if item.manifest.spec.nodes else ("spec",)
        scope.report(item, path, Code.PROCESS_NOT_ALLOWED, message, hint)


def _shares_the_host(provider_type: str, support: TemplateSupport) -> bool:
    """Whether replicas of this type of runtime are processes of this host: then working directories are below the tree."""
    known = support(provider_type) if provider_type else None
    return known is not None and RELATIVE_WORKING_DIR in known[0]


# --- secrets ---------------------------------------------------------------------------------------------------------


class _Server(NamedTuple):
    """Where a header of a health check goes. `address` is empty where it is not one that the manifests fix."""

    address: str
    host: str
    port: int
    protocol: str
    verified: bool


class _Use(NamedTuple):
    """One reference of the tree. `header` is empty for a variable of a workload's container; `servers` get the header of a check.

    `host_header`: another header of the check overrides its host, so that nothing can be said about who answers.
    """

    path: Path
    reference: SecretReference
    workload: str = ""
    header: str = ""
    servers: tuple[_Server, ...] = ()
    host_header: bool = False


def _uses(declared: Declared) -> Iterator[_Use]:
    manifest = declared.manifest
    assert manifest is not None  # noqa: S101  (the caller has checked it)
    servers, host_header = _servers(manifest)
    workload = declared.name if declared.kind == "Workload" else ""
    for path, owners, reference in references_in(manifest):
        header = next((owner.name for owner in owners if isinstance(owner, HTTPHeader)), "")
        if header or any(isinstance(owner, EnvVar) for owner in owners):
            yield _Use(path, reference, workload, header, servers, host_header)
        else:
            yield _Use(path, reference)  # a field that no rule is for: refused


def references_in(
    value: object, path: Path = (), owners: tuple[BaseModel, ...] = ()
) -> Iterator[tuple[Path, tuple[BaseModel, ...], SecretReference]]:
    """Every reference below a value, wherever a kind has one: its path, the models around it, and itself."""
    if isinstance(value, SecretReference):
        yield path, owners, value
    elif isinstance(value, BaseModel):
        fields = type(value).model_fields
        for name in value.model_fields_set:
            yield from references_in(getattr(value, name), (*path, fields[name].alias or name), (*owners, value))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from references_in(item, (*path, index), owners)


def _servers(manifest: kinds.Manifest) -> tuple[tuple[_Server, ...], bool]:
    """The servers that a health check sends its headers to, and whether one of its headers overrides its host.

    One server with an empty address stands for all whose address the manifests do not fix.
    """
    if isinstance(manifest, kinds.HealthCheck):
        address = manifest.spec.address
        name = address.removesuffix(".") if address.endswith(".") else ""
        return (_server(manifest.spec, address, manifest.spec.host or name),), _has_host_header(manifest.spec)
    if not isinstance(manifest, kinds.DNSPolicy) or manifest.spec.health_check is None:
        return (), False
    check = manifest.spec.health_check
    host = check.host or manifest.spec.host.removesuffix(".")
    servers: dict[_Server, None] = {}
    for target in manifest.spec.targets:
        if target.health_check is not None:
            continue  # that HealthCheck decides, and has headers of its own
        for address in target.addresses if target.addresses is not None else ("",):
            servers[_server(check, address, host)] = None
    return tuple(servers), _has_host_header(check)


def _has_host_header(check: CheckFields) -> bool:
    return any(header.name.casefold() == "host" for header in check.additional_headers)


def _server(check: CheckFields, address: str, host: str) -> _Server:
    verified = check.protocol == "HTTPS" and not check.allow_insecure_certificates
    return _Server(address, host, check.port, check.protocol, verified)


def _allows(rule: SecretRule, use: _Use) -> bool:
    """Whether a rule lets the tree use a secret at this place."""
    if rule.source() != use.reference.source():
        return False
    if (rule.header or "").casefold() != use.header.casefold():
        return False
    if rule.workload is not None:
        return rule.workload == use.workload
    if use.host_header or not use.servers:
        return False
    return all(_is_bound(rule.destination, server) for server in use.servers)


def _is_bound(destination: Destination | None, server: _Server) -> bool:
    """Whether a header for this server reaches nothing else than a destination."""
    if destination is None or (destination.protocol, destination.port) != (server.protocol, server.port):
        return False
    if destination.address is None:
        return server.verified and destination.host == server.host
    # The Host header chooses among the sites of a shared address, so it is bound too.
    name = destination.address.removesuffix(".") if destination.address.endswith(".") else ""
    return (
        destination.address == server.address
        and server.host == (destination.host or name)
        and (server.verified or destination.protocol == "HTTP" or destination.allow_insecure_certificates)
    )


def _report_secret(declared: Declared, use: _Use, scope: Scope, place: str) -> None:
    secret = use.reference.source()
    source = written(secret)
    message = f"{declared.key}: {key_path(use.path)}: no local rule lets the tree use the secret in {secret} here"
    rules = list(_missing_rules(source, use))
    if use.host_header:
        hint = "write host in the check instead of a Host header"
    elif rules:
        hint = "\n".join([f"if the tree may use it here, add to spec.secrets of the Instance in {place}:", *rules])
    elif use.servers:
        hint = (
            "the addresses of this check are not fixed: check over HTTPS without allowInsecureCertificates, give its targets addresses, "
            "or move this document to the file or directory of --instance"
        )
    else:
        hint = "remove it, or move this document to the file or directory of --instance"
    scope.report(declared, use.path, Code.SECRET_NOT_ALLOWED, message, hint)


def _missing_rules(source: str, use: _Use) -> Iterator[str]:
    """The lines of the rules that would allow a use; none where no rule can."""
    if use.workload:
        yield f"- {{{source}, workload: {use.workload}{f', header: {use.header}' if use.header else ''}}}"
        return
    if use.host_header or not use.servers or any(not server.verified and not server.address for server in use.servers):
        return
    for line in dict.fromkeys(_destination(server) for server in use.servers):
        yield f"- {{{source}, header: {use.header}, destination: {{{line}}}}}"


def _destination(server: _Server) -> str:
    """The narrowest destination for a server."""
    port = "" if server.port == Destination.model_fields["port"].default else f", port: {server.port}"
    if server.verified and server.host:
        return f"host: {server.host}{port}"
    host = f", host: {server.host}" if server.host and server.host != server.address.removesuffix(".") else ""
    plain = ", protocol: HTTP" if server.protocol == "HTTP" else ""
    insecure = "" if server.verified or plain else ", allowInsecureCertificates: true"
    return f"address: {_quoted(server.address)}{host}{port}{plain}{insecure}"


def _quoted(address: str) -> str:
    return f"'{address}'" if ":" in address else address
