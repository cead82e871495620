"""Random histories of a repository, and what a host must make of each of them.

    history = History(base, seed)
    history.run()                 raises AssertionError when a law is broken; `history.script` is the history as a shell script

A `Tree` is the model of one commit: which workloads its manifests declare, and why it may not be used. Commits, merges, reverts,
rewrites and signatures are made by git; the model follows, and must agree with git about the files of each commit.

The laws:

- The world becomes what the newest commit says that could be used when the repository was asked. It then stays so without a write.
- Nothing is done twice: no write leaves the world as it was, and while one commit is in force, no action is repeated.
- No pool and no name that is declared throughout loses its last member.
- A commit that cannot be used causes no write, and nothing that it declares is ever in the world.
- A commit that changes nothing in the meaning of the manifests causes no write.
"""

import json
import random
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path

from manifests.values.desired import SECOND
from providers.actions import Action, CreateContainer
from providers.facts import ContainerState
from reconciler.core.plan_text import describe
from tests.git.signed_repository import SshKey
from tests.git.upstream import ENV
from tests.git.upstream import git as run_git
from tests.laws.git_world import POLLED, GitWorld
from tests.sim.manifest import POOLS, ZONE

NAMES_OF_WORKLOADS = ("web", "api", "shop", "mail", "blog", "docs")
FILES = ("all.yaml", "web.yaml", "apps/api.yaml", "apps/more/rest.yml", "z.yaml")
"""Where manifests may be, in the set."""
CONVERGED = 900 * SECOND
"""In this time a world reaches what a commit says, whatever was under way before."""


@dataclass(frozen=True, slots=True)
class Item:
    """One workload with its service and its name. `note` is a comment in its file."""

    name: str
    file: str
    version: str = "v1"
    replicas: int = 2
    weight: int = 100
    note: str = ""

    @property
    def host(self) -> str:
        return f"{self.name}.{ZONE}"


@dataclass(frozen=True, slots=True)
class Tree:
    """One commit.

    Attributes:
        items: what its manifests declare, sorted.
        loose: other files, by path and content.
        fault: why its manifests are invalid; empty: they are valid.
        signed: by the trusted key.
    """

    items: tuple[Item, ...]
    loose: tuple[tuple[str, str], ...] = ()
    fault: str = ""
    signed: bool = True

    def files(self) -> dict[str, str]:
        """All files of the commit by path."""
        made = dict(self.loose)
        for item in self.items:
            path = f"set/{item.file}"
            made[path] = f"{made[path]}---\n{text(item)}" if path in made else text(item)
        if not self.fault:
            return made
        broken = {f"set/{item.file}": made.pop(f"set/{item.file}") for item in self.items if f"set/{item.file}" in made}
        return {**made, **FAULTS[self.fault](broken)}

    def with_items(self, *items: Item) -> "Tree":
        return replace(self, items=tuple(sorted(items, key=lambda item: item.name)))

    def changed(self, item: Item, **fields: object) -> "Tree":
        others = (other for other in self.items if other != item)
        return self.with_items(*others, replace(item, **fields))  # type: ignore[arg-type]


def text(item: Item) -> str:
    """The documents of a workload."""
    probe = {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5, "failureThreshold": 2}
    container = {
        "name": "main",
        "image": f"shop/{item.name}:{item.version}",
        "env": [{"name": "VERSION", "value": item.version}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "livenessProbe": probe,
        "readinessProbe": probe,
    }
    pod = {"terminationGracePeriodSeconds": 5, "containers": [container]}
    specs = {
        "Workload": {
            "replicas": item.replicas,
            "template": {"metadata": {"labels": {"app": item.name}}, "spec": pod},
            "drain": {"min": "1s", "max": "5s"},
        },
        "Service": {
            "selector": {"app": item.name},
            "port": "http",
            "weight": item.weight,
            "balancers": [{"provider": POOLS, "pool": item.name, "addresses": ["203.0.113.10"]}],
        },
        "DNSPolicy": {
            "host": item.host[:-1],
            "zone": ZONE[:-1],
            "ttl": "10s",
            "targets": [{"name": "all", "service": {"name": item.name, "publish": "endpoints"}}],
        },
    }
    documents = (
        json.dumps({"apiVersion": "reconciler/v1", "kind": kind, "metadata": {"name": item.name}, "spec": spec})
        for kind, spec in specs.items()
    )
    note = f"# {item.note}\n" if item.note else ""
    return note + "\n---\n".join(documents) + "\n"


def _beside(name: str, content: str):
    return lambda files: {**files, f"set/{name}": content}


def _cut(files: dict[str, str]) -> dict[str, str]:
    """Every file ends in the middle of its last document."""
    return {path: content[: len(content) - 20] for path, content in files.items()}


def _unknown_field(files: dict[str, str]) -> dict[str, str]:
    return {path: content.replace('"replicas"', '"replicaz"') for path, content in files.items()}


DOCUMENT = "apiVersion: reconciler/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"
FAULTS = {
    "half a document": _cut,
    "an unknown field": _unknown_field,
    "no manifests": lambda _: {},
    "no YAML": _beside("broken.yaml", "kind: [\n"),
    "an unknown kind": _beside("kind.yaml", DOCUMENT.format(kind="Cluster", name="x", spec="{}")),
    "a missing reference": _beside(
        "ref.yaml",
        DOCUMENT.format(
            kind="DNSPolicy",
            name="x",
            spec="{host: x.example.test, zone: example.test, targets: [{service: {name: gone}}]}",
        ),
    ),
    "a kind for local documents": _beside("local.yaml", DOCUMENT.format(kind="Guard", name="x", spec="{}")),
    "an identity twice": lambda files: {**files, "set/twice.yaml": next(iter(files.values()))},
}
"""What makes a commit invalid: from the files of a valid one those of the invalid one."""


class Repository:
    """The repository of a history, its authors, and the script of all they did."""

    def __init__(self, base: Path, trusted: SshKey | None, other: SshKey | None) -> None:
        self.bare, self.work, self.trusted, self.other = base / "repo.git", base / "work", trusted, other
        self.script: list[str] = [
            "set -e",
            *(f"export {name}='{value}'" for name, value in ENV.items() if "GIT" in name),
        ]
        for key in (trusted, other):
            if key is not None:
                self.script.append(f"ssh-keygen -q -t ed25519 -N '' -f {key.file}  # another key in each run")
        self.trees: dict[str, Tree] = {}
        self._run("init", "-q", "-b", "main", str(self.work))
        self._run("init", "-q", "--bare", "-b", "main", str(self.bare))
        self._run("config", "uploadpack.allowFilter", "true", at=self.bare)
        self.script.append(f"cd {self.work}")
        self.head = ""

    def _run(self, *words: str, at: Path | None = None) -> str:
        where = "" if at is None else f" -C {at}"
        self.script.append(f"git{where} {shlex.join(words)}")
        return run_git(*words, at=at)

    def git(self, *words: str) -> str:
        self.script.append(f"git {shlex.join(words)}")
        return run_git(*words, at=self.work)

    def note(self, what: str) -> None:
        self.script.append(f"# {what}")

    def parents(self, commit: str) -> list[str]:
        return run_git("rev-list", "--parents", "-n", "1", commit, at=self.work).split()[1:]

    def follows(self, old: str, new: str) -> bool:
        """Whether the history of a commit contains another one."""
        return old in run_git("rev-list", new, at=self.work).split()

    def _signing(self, tree: Tree) -> tuple[list[str], list[str]]:
        """Options of git before and after the command that makes a commit."""
        if self.trusted is None or self.other is None:
            return [], []
        key = self.trusted if tree.signed else self.other
        return ["-c", "gpg.format=ssh", "-c", f"user.signingkey={key.file}"], ["-S"]

    def _made(self, tree: Tree) -> str:
        """A commit was made; the model must agree with git about its files."""
        commit = run_git("rev-parse", "HEAD", at=self.work)
        names = run_git("ls-tree", "-r", "--name-only", "HEAD", at=self.work).splitlines()
        files = {name: (self.work / name).read_text() for name in names}
        assert files == tree.files(), f"the model of commit {commit} is wrong"
        self.trees[commit] = tree
        return commit

    def commit(self, tree: Tree, message: str) -> str:
        """Commit all files of a tree on the branch that is checked out."""
        files = tree.files()
        tracked = set(run_git("ls-files", at=self.work).splitlines())
        for name in sorted(tracked - set(files)):
            self.git("rm", "-q", "--", name)
        for name, content in files.items():
            path = self.work / name
            if path.is_file() and path.read_text() == content:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            self.script.append(f"mkdir -p {shlex.quote(str(path.parent))}")
            self.script.append(f"printf %s {shlex.quote(content)} > {shlex.quote(name)}")
        before, after = self._signing(tree)
        self.git("add", "-A")
        self.git(*before, "commit", "-q", "--allow-empty", *after, "-m", message)
        return self._made(tree)

    def merge(self, ours: Tree, theirs: Tree, both: Tree) -> str:
        """Commit `theirs` on a branch and `ours` on main, and merge them."""
        self.git("checkout", "-q", "-B", "feature")
        self.commit(theirs, "on a branch")
        self.git("checkout", "-q", "main")
        self.commit(ours, "meanwhile on main")
        before, after = self._signing(both)
        self.git(*before, "merge", "-q", "--no-ff", *after, "-m", "merge the branch", "feature")
        return self._made(both)

    def revert(self) -> str:
        """Revert the newest commit, a merge by what the branch brought."""
        head = run_git("rev-parse", "HEAD", at=self.work)
        parents = self.parents(head)
        tree = replace(self.trees[parents[0]], signed=True)
        before, after = self._signing(tree)
        mainline = ["-m", "1"] if len(parents) > 1 else []
        if tree.files() == self.trees[head].files():  # git refuses to revert a commit without changes
            return self.commit(tree, "nothing to revert")
        self.git(*before, "revert", *after, "--no-edit", *mainline, "HEAD")
        return self._made(tree)

    def rewind(self, commits: int) -> str:
        """Go back along the first parents. Returns the commit."""
        self.git("reset", "-q", "--hard", f"HEAD~{commits}")
        return run_git("rev-parse", "HEAD", at=self.work)

    def begin_again(self, tree: Tree) -> str:
        """A first commit with these files, in place of the whole history."""
        self.git("checkout", "-q", "--orphan", "again")
        commit = self.commit(tree, "a new first commit")
        self.git("branch", "-q", "-M", "main")
        return commit

    def push(self) -> None:
        self.git("push", "-q", "--force", str(self.bare), "HEAD:refs/heads/main")
        self.head = run_git("rev-parse", "HEAD", at=self.work)

    @property
    def length(self) -> int:
        """Commits along the first parents before the newest one."""
        return int(run_git("rev-list", "--first-parent", "--count", "HEAD", at=self.work)) - 1


@dataclass
class History:
    """One history. `seed` chooses everything in it."""

    base: Path
    seed: int
    turns: int = 12
    counts: dict[str, int] = field(default_factory=dict)
    """How often each kind of event happened."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        signs, self.fast_forward = self.seed % 3 == 1, self.seed % 5 == 2
        self.prune = self.rng.random() < 0.6
        trusted = SshKey(self.base, "alice") if signs else None
        other = SshKey(self.base, "mallory") if signs else None
        self.repository = Repository(self.base, trusted, other)
        self.world = GitWorld(
            self.base, self.repository.bare, prune=self.prune, fast_forward=self.fast_forward, trusted=trusted
        )
        self.signs = signs
        self.good = ""
        self.published: set[str] = set()
        """The pools and names that are declared throughout the time that passes now."""
        self.serving: set[str] = set()
        self.allowed: set[tuple[str, str]] = set()
        """The workloads and versions of all commits that could be used when the repository was asked."""
        self.killed = False
        self.epoch = ""
        self.done: set[str] = set()
        self.world.checks.append(self.watch)

    @property
    def script(self) -> str:
        return "\n".join(
            [f"# seed {self.seed}: prune {self.prune}, fast-forward only {self.fast_forward}", *self.repository.script]
        )

    # --- the laws ----------------------------------------------------------------------------------------------------

    def watch(self, action: Action) -> None:
        """After each write."""
        world, what = self.world, describe(action)
        if isinstance(action, CreateContainer):
            made = action.mark.workload, dict(action.template.container.env)["VERSION"]
            assert made in self.allowed, f"done for a commit that cannot be used: {what} ({made[1]})"
        write = world.traffic.writes[-1]
        epoch = world.source.commit()
        if epoch != self.epoch:
            self.epoch, self.done = epoch, set()
        assert write.effective or self.killed, f"done twice: {what}"
        if write.effective:
            assert repr(action) not in self.done, f"done twice while commit {epoch} is in force: {what}"
            self.done.add(repr(action))
        serving = self._serving()
        for name in sorted(self.published & self.serving - serving):
            raise AssertionError(f"{name} lost its last member or address by: {what}")
        self.serving = serving

    def _serving(self) -> set[str]:
        """The workloads with a member that has a weight, and those with an address."""
        world = self.world
        pools = {f"pool {name}" for name in NAMES_OF_WORKLOADS if any(world.weights(name).values())}
        return pools | {f"name {name}" for name in NAMES_OF_WORKLOADS if world.published(f"{name}.{ZONE}")}

    def state(self) -> dict[str, object]:
        """What the world has of each workload."""
        world = self.world
        found: dict[str, object] = {}
        for name in NAMES_OF_WORKLOADS:
            of = [item for item in world.containers().values() if item.mark and item.mark.workload == name]
            up = [item for item in of if item.state is ContainerState.RUNNING]
            versions = sorted(dict(item.env)["VERSION"] for item in up)
            weights = sorted(world.weights(name).values())
            addresses = set(world.published(f"{name}.{ZONE}"))
            if of or weights or addresses:
                right = addresses == {item.address for item in up}
                found[name] = (len(of), versions, weights, right or addresses)
        return found

    def wanted(self, tree: Tree) -> dict[str, object]:
        """What the world must have for a tree, of what it declares."""
        return {
            item.name: (item.replicas, [item.version] * item.replicas, [item.weight] * item.replicas, True)
            for item in tree.items
        }

    def compared(self) -> tuple[dict[str, object], dict[str, object]]:
        """What the world has, of what must be exact, and what it must have.

        What is not declared may stay without `prune`, and while the newest commit cannot be used: then nothing is pruned.
        """
        found, wanted = self.state(), self.wanted(self.repository.trees[self.good])
        exact = self.prune and self.good == self.repository.head
        return found if exact else {name: found.get(name) for name in wanted}, wanted

    # --- time --------------------------------------------------------------------------------------------------------

    def usable(self, commit: str) -> bool:
        tree = self.repository.trees[commit]
        if tree.fault or (self.signs and not tree.signed):
            return False
        return not (self.fast_forward and self.good) or self.repository.follows(self.good, commit)

    def asked(self) -> None:
        """The repository is asked now: its newest commit comes into force, if it can be used."""
        head = self.repository.head
        if self.usable(head):
            self.good = head
            self.allowed |= {(item.name, item.version) for item in self.repository.trees[head].items}

    def passes(self, duration: int, *, reachable: bool = True) -> None:
        """Let time pass in which the repository is certainly asked."""
        self.repository.note(f"{duration // SECOND} s pass")
        head = self.repository.head
        before, trees = self.good, self.repository.trees
        usable = reachable and self.usable(head)
        was = {item.name for item in trees[before].items} if before else set()
        after = {item.name for item in trees[head].items} if usable else was
        # A name that is not declared at one end of this time may lose what it has.
        self.published = {f"{what} {name}" for what in ("pool", "name") for name in was & after}
        found, wanted = self.state(), self.wanted(trees[before]) if before else {}
        idle = not self.killed and (found if self.prune else {name: found.get(name) for name in wanted}) == wanted
        writes = len(self.world.traffic.writes)
        if reachable:
            self.asked()
        same = bool(before) and meaning(trees[before]) == meaning(trees[self.good])
        self.world.run(duration)
        made = [describe(write.action) for write in self.world.traffic.writes[writes:]]
        assert not (idle and same and made), f"without a commit that changes anything: {made}"
        self.killed = self.killed and self.world.kill_in >= 0

    def settle(self) -> None:
        """At the end: the world is what the last good commit says, and stays so."""
        self.world.kill_in = -1
        self.passes(CONVERGED)
        found, wanted = self.compared()
        assert found == wanted, f"not converged to commit {self.good}: {found} instead of {wanted}; {self._holds()}"
        writes = len(self.world.traffic.writes)
        self.world.run(300 * SECOND)
        idle = [describe(write.action) for write in self.world.traffic.writes[writes:]]
        assert not idle, f"done in a world that had converged: {idle}"

    def _holds(self) -> str:
        last = self.world.tape.last
        return "" if last is None else "; ".join(f"{hold.object}: {hold.message}" for hold in last.holds)

    # --- events ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The whole history."""
        first = Tree(
            tuple(Item(name, self.rng.choice(FILES)) for name in sorted(self.rng.sample(NAMES_OF_WORKLOADS, 3)))
        )
        self.repository.commit(first, "the first commit")
        self.repository.push()
        try:
            self.passes(120 * SECOND)
            for _ in range(self.turns):
                self.turn()
            self.settle()
        finally:
            self.world.close()

    def turn(self) -> None:
        """One event, or several in a row before the repository is asked."""
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            tree = self.repository.trees[self.repository.head]
            kinds = self.KINDS if not tree.fault else (*self.KINDS, *(History.mended,) * len(self.KINDS))
            kind = self.rng.choice(kinds)
            self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1
            self.repository.note(f"event: {kind.__name__}")
            kind(self, tree)
        if self.rng.random() < 0.3 and self.world.life is not None:
            self.repository.note("a webhook is delivered")
            self.world.deliver()
            duration = self.rng.randrange(5, 20) * SECOND
            self.passes(duration)
        else:
            self.passes(POLLED + self.rng.randrange(0, 120) * SECOND)

    def _commit(self, tree: Tree, message: str) -> None:
        self.repository.commit(tree, message)
        self.repository.push()

    def change(self, tree: Tree) -> None:
        """A new version, number of replicas or weight."""
        self._commit(self._changed(tree), "a change")

    def _changed(self, tree: Tree, among: tuple[Item, ...] = ()) -> Tree:
        item = self.rng.choice(among or tree.items)
        fields = self.rng.choice(
            (
                {"version": f"v{self.rng.randrange(2, 6)}"},
                {"replicas": self.rng.randrange(1, 4)},
                {"weight": self.rng.choice((50, 100, 200))},
            )
        )
        return replace(tree.changed(item, **fields), signed=True)

    def add(self, tree: Tree) -> None:
        free = [name for name in NAMES_OF_WORKLOADS if name not in {item.name for item in tree.items}]
        if free:
            item = Item(self.rng.choice(free), self.rng.choice(FILES))
            self._commit(replace(tree.with_items(*tree.items, item), signed=True), "a new workload")

    def delete(self, tree: Tree) -> None:
        if len(tree.items) > 1:
            gone = self.rng.choice(tree.items)
            left = (item for item in tree.items if item != gone)
            self._commit(replace(tree.with_items(*left), signed=True), "a workload less")

    def move(self, tree: Tree) -> None:
        """The same documents in other files."""
        moved = (replace(item, file=self.rng.choice(FILES)) for item in tree.items)
        self._commit(replace(tree.with_items(*moved), signed=True), "other files")

    def rename(self, tree: Tree) -> None:
        """A workload, its service and its name get another name."""
        free = [name for name in NAMES_OF_WORKLOADS if name not in {item.name for item in tree.items}]
        if free:
            item = self.rng.choice(tree.items)
            self._commit(replace(tree.changed(item, name=self.rng.choice(free)), signed=True), "another name")

    def elsewhere(self, tree: Tree) -> None:
        """Files that are no manifests, in the set and beside it, or a comment in a manifest."""
        if self.rng.random() < 0.4:
            item = self.rng.choice(tree.items)
            self._commit(replace(tree.changed(item, note=f"note {self.rng.random()}"), signed=True), "a comment")
            return
        path = self.rng.choice(("README.md", "set/README.md", "set/.draft.yaml", "src/main.py", "other/web.yaml"))
        loose = dict(tree.loose) | {path: f"{self.rng.random()}\n"}
        self._commit(replace(tree, loose=tuple(sorted(loose.items())), signed=True), "another file")

    def merge(self, tree: Tree) -> None:
        files = sorted({item.file for item in tree.items})
        if len(files) < 2 or tree.fault:
            self.change(tree)
            return
        here, there = self.rng.sample(files, 2)
        ours = self._changed(tree, tuple(item for item in tree.items if item.file == here))
        changed = self._changed(tree, tuple(item for item in tree.items if item.file == there))
        both = replace(
            tree,
            items=tuple(
                new if old.file == there else kept
                for old, kept, new in zip(tree.items, ours.items, changed.items, strict=True)
            ),
            signed=True,
        )
        self.repository.merge(ours, changed, both)
        self.repository.push()

    def revert(self, _: Tree) -> None:
        if self.repository.length:
            self.repository.revert()
            self.repository.push()

    def force_push(self, tree: Tree) -> None:
        """The branch goes back, and sometimes on from there; or it begins again, without a common commit."""
        if self.rng.random() < 0.2:
            self.repository.begin_again(replace(tree, signed=True))
            self.repository.push()
            return
        if not self.repository.length:
            return
        commit = self.repository.rewind(self.rng.randrange(1, min(3, self.repository.length) + 1))
        if self.rng.random() < 0.6:
            self.repository.commit(self._changed(self.repository.trees[commit]), "a rewritten change")
        self.repository.push()

    def broken(self, tree: Tree) -> None:
        """A commit that is invalid, and would also remove a workload and change all others."""
        fault = self.rng.choice(tuple(FAULTS))
        self._commit(replace(self._forbidden(tree), fault=fault, signed=True), f"broken: {fault}")

    def unverified(self, tree: Tree) -> None:
        """A commit by a key that is not trusted; where no signature is needed, a broken one."""
        if self.signs:
            self._commit(replace(self._forbidden(tree), signed=False), "another key")
        else:
            self.broken(tree)

    def _forbidden(self, tree: Tree) -> Tree:
        left = tree.items[1:] or tree.items
        version = f"bad{len(self.repository.trees)}"
        return tree.with_items(*(replace(item, version=version) for item in left))

    def mended(self, tree: Tree) -> None:
        """The manifests are valid again, as they were before the fault."""
        good = self.repository.trees[self.good]
        self._commit(replace(tree, items=good.items, fault="", signed=True), "mended")

    def outage(self, _: Tree) -> None:
        """The repository does not answer."""
        gone = self.repository.bare.with_name("gone.git")
        self.repository.note("the repository does not answer")
        self.repository.bare.rename(gone)
        self.passes(POLLED, reachable=False)
        gone.rename(self.repository.bare)
        self.repository.note("the repository answers again")

    def terminate(self, _: Tree) -> None:
        """SIGTERM, and a new process, which asks the repository when it starts."""
        self.repository.note("SIGTERM, and a new process")
        self.world.restart()
        self.asked()

    def kill(self, _: Tree) -> None:
        """kill -9 some writes later, and a new process."""
        self.world.kill_in = self.rng.randrange(0, 25)
        self.killed = True
        self.repository.note(f"kill -9 after {self.world.kill_in} points, and a new process")

    KINDS = (
        change, change, change, add, delete, move, rename, elsewhere, merge, revert, force_push, broken, broken, unverified, outage,
        terminate, kill,
    )  # fmt: skip


def meaning(tree: Tree) -> tuple[object, ...]:
    """What a tree declares, without where it stands and what is written beside it."""
    return tuple(replace(item, file="", note="") for item in tree.items)
