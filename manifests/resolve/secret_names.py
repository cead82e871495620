"""Names in references to secrets: the commands and identities that the Instance defines. Called by `resolver.py`.

References in the settings of providers are not seen here, because only the types of providers know their settings: they fail when they
are resolved, with the same message.
"""

from manifests import kinds
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code, did_you_mean
from manifests.resolve.local import references_in
from manifests.resolve.references import Scope

_KINDS = ("Instance", "Workload", "DNSPolicy", "HealthCheck")
"""Kinds whose fields may refer to secrets."""

EXAMPLE_COMMAND = "secretCommands: [{name: NAME, command: [/usr/bin/pass, show, db]}]"


def check_names(scope: Scope) -> None:
    """Report references to commands and identities that do not exist."""
    declared = scope.all("Instance")
    instance = declared[0].manifest if declared else None
    if not isinstance(instance, kinds.Instance):
        return  # reported elsewhere
    commands = [command.name for command in instance.spec.secret_commands]
    decryption = instance.spec.decryption
    identities = [identity.name for identity in decryption.identities] if decryption is not None else []
    where = f"the Instance in {declared[0].document.file}"
    for kind in _KINDS:
        for item in scope.all(kind):
            for path, _, reference in references_in(item.manifest) if item.manifest is not None else ():
                if reference.command is not None and reference.command not in commands:
                    missing = f"there is no secret command '{reference.command}'"
                    _report(
                        scope,
                        item,
                        (*path, "command"),
                        missing,
                        reference.command,
                        commands,
                        f"{where}: {EXAMPLE_COMMAND}",
                    )
                if reference.age is not None:
                    _check_identity(scope, item, path, reference.age.identity, identities, where)


def _check_identity(
    scope: Scope, item: Declared, path: Path, name: str | None, identities: list[str], where: str
) -> None:
    add = f"{where}: decryption: {{identities: [{{name: {name or 'main'}, file: /etc/reconciler/age.txt}}]}}"
    if name is not None and name not in identities:
        _report(scope, item, (*path, "age", "identity"), f"there is no identity '{name}'", name, identities, add)
    elif name is None and len(identities) != 1:
        if not identities:
            _report(scope, item, (*path, "age"), "there is no identity that decrypts it", "", [], add)
            return
        message = f"{item.key}: there is more than one identity"
        hint = f"add identity, one of: {', '.join(identities[:12])}"
        scope.report(item, (*path, "age"), Code.NO_DEFAULT, message, hint)


def _report(scope: Scope, item: Declared, path: Path, cause: str, name: str, known: list[str], example: str) -> None:
    hint = did_you_mean(name, known, "defined") or f"with --instance, a local document defines it; add to {example}"
    scope.report(item, path, Code.UNKNOWN_REFERENCE, f"{item.key}: {cause}", hint)
