"""Scope: all declared objects of a tree by identity; it checks the names that refer to them.

Created by `resolver.py`, used by all builders. An object that is declared but not valid still counts as declared, and while
documents may be missing no name is unknown: one mistake gives one report, not one for each reference to it.
"""

from collections.abc import Iterable, Mapping, Sequence

from manifests.kinds.validate import Declared, Path, problem_at
from manifests.problems import Code, Problem, did_you_mean
from manifests.values.desired import Role
from manifests.values.files import FileContents, FileSet
from manifests.values.image_choice import ImageChoice
from manifests.values.nodes import Nodes

SINGLETONS = frozenset({"Instance", "Guard"})
"""Kinds of which a tree has at most one: their identity is the kind."""


class Scope:
    """Declared objects by kind and name, their problems, and the roles of providers.

    `node_lists` are the lists of nodes that were found valid: workloads with equal lists share one object. `sets` are the files that
    the tree refers to, by path, and `file_contents` what volumes hold of them, by digest.
    `choices` are what policies chose, by workload.
    """

    def __init__(
        self, declared: Iterable[Declared], local: Iterable[Declared], *, incomplete: bool, confined: bool = False
    ) -> None:
        """`local` objects replace those of the tree with the same identity.

        `incomplete`: documents may be missing. `confined`: only local documents say what the tree may reach.
        """
        self.problems: list[Problem] = []
        self.incomplete = incomplete
        self.confined = confined
        self.roles: dict[str, Role | None] = {}
        self.types: dict[str, str] = {}
        self.with_slots: set[str] = set()
        self.record_types: dict[str, frozenset[str]] = {}
        self.node_lists: dict[tuple[str, ...], Nodes] = {}
        self.sets: Mapping[str, FileSet] = {}
        self.choices: Mapping[str, tuple[ImageChoice, ...]] = {}
        self.file_contents: dict[str, FileContents] = {}
        self._objects: dict[str, dict[str, Declared]] = {}
        overridden = self._add(local, frozenset())
        self._add(declared, overridden)

    def _add(self, objects: Iterable[Declared], overridden: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        added: set[tuple[str, str]] = set()
        for declared in sorted(objects, key=lambda item: (item.document.file, item.document.index)):
            kind = declared.kind
            identity = kind, "" if kind in SINGLETONS else declared.name
            if identity in overridden:
                continue
            added.add(identity)
            known = self._objects.setdefault(kind, {})
            first = next(iter(known.values()), None) if kind in SINGLETONS else known.get(declared.name)
            if first is None:
                known[declared.name] = declared
                continue
            cause = f"there is more than one {kind}" if kind in SINGLETONS else f"{declared.key} is declared twice"
            message = f"{cause}: the other is at {first.document.where}"
            self.report(declared, ("metadata", "name"), Code.DUPLICATE_OBJECT, message, "keep one of the two")
        return frozenset(added)

    def all(self, kind: str) -> list[Declared]:
        """The declared objects of a kind, sorted by name."""
        return [declared for _, declared in sorted(self._objects.get(kind, {}).items())]

    def has(self, key: str) -> bool:
        """Whether an object with this key is declared."""
        kind, _, name = key.partition("/")
        return any(name in known for of, known in self._objects.items() if of.lower() == kind)

    def keys(self) -> list[str]:
        """The keys of all declared objects, sorted."""
        return sorted(declared.key for known in self._objects.values() for declared in known.values())

    def any_invalid(self, kind: str) -> bool:
        """Whether an object of this kind is invalid or may be missing."""
        return self.incomplete or any(declared.manifest is None for declared in self._objects.get(kind, {}).values())

    def report(self, at: Declared, path: Path, code: Code, message: str, hint: str = "", *, key: bool = False) -> None:
        """Report a problem of an object: of the value at `path`, or of its key."""
        self.problems.append(problem_at(at.document, path, code, message, hint, key=key))

    def find(self, kind: str, name: str, at: Declared, path: Path) -> Declared | None:
        """The object of a reference; None after reporting that there is none."""
        known = self._objects.get(kind, {})
        if name in known:
            return known[name]
        if not self.incomplete:
            hint = did_you_mean(name, sorted(known), f"declared {kind} objects") or f"add a {kind} with this name"
            self.report(at, path, Code.UNKNOWN_REFERENCE, f"{at.key}: there is no {kind} '{name}'", hint)
        return None

    def provider(self, name: str, role: Role, at: Declared, path: Path) -> bool:
        """Whether a provider of this name exists and has this role; False after reporting that it does not."""
        if self.find("Provider", name, at, path) is None:
            return False
        actual = self.roles.get(name)
        if actual is None or actual is role:
            return True
        others = self._providers_of(role)
        hint = did_you_mean(name, others, f"{role} providers") or f"add a Provider with the role {role}"
        message = f"{at.key}: provider '{name}' has the role {actual}, but {role} is needed"
        self.report(at, path, Code.WRONG_ROLE, message, hint)
        return False

    def only_provider(self, role: Role, at: Declared, path: Path, field: str) -> str:
        """The only provider of a role; empty after reporting that there is none, or more than one."""
        names = self._providers_of(role)
        if len(names) == 1:
            return names[0]
        if self.any_invalid("Provider") or any(known is None for known in self.roles.values()):
            return ""
        cause = f"there are {len(names)} {role} providers" if names else f"there is no {role} provider"
        hint = f"set {field} to one of: {', '.join(names[:12])}" if names else f"add a Provider with the role {role}"
        self.report(at, path, Code.NO_DEFAULT, f"{at.key}: {field} has no default: {cause}", hint)
        return ""

    def _providers_of(self, role: Role) -> Sequence[str]:
        return sorted(name for name, actual in self.roles.items() if actual is role)
