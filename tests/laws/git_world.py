"""A simulated world whose manifests come from a real bare repository, by the reader, the mirror and the source of a daemon.

Containers, pools, zones and time are those of `tests/sim`; git, signatures, the files of each commit, what is kept over restarts and
the choice of what comes into force are the program's own, with real git processes. Each `Life` starts as a daemon does: with the
manifests at the source, or with the last good ones.
"""

import json
from pathlib import Path

from manifests.source.git_url import parse
from manifests.values.desired import SECOND, Desired
from reconciler.git.reader import GitReader
from reconciler.git.verify import SignatureCheck
from reconciler.intent import Intent
from reconciler.shell.store.archive import Archive
from reconciler.shell.store.instance_index import place_of
from reconciler.start import source_of, start_manifests
from reconciler.tree import Location
from tests.git.signed_repository import SshKey
from tests.sim.manifest import INSTANCE, NAMES, NODE, POOLS
from tests.sim.world import World

INTERVAL = 60 * SECOND
"""Between two polls of the source."""
POLLED = INTERVAL + INTERVAL // 10 + 4 * SECOND
"""In this time a poll is certain, whatever the jitter."""


class _Manifests:
    """What `World` asks for when a process starts."""

    specs = ()

    def __init__(self, world: "GitWorld") -> None:
        self.world = world

    def desired(self) -> Desired:
        return self.world.begin()


class GitWorld(World):
    """The world, and the host's part of a git source.

    Args:
        base: an empty directory.
        bare: the repository; the set is its directory `set`.
        prune, fast_forward: as in the Instance.
        trusted: the key that signs commits; None: commits need no signature.
    """

    def __init__(
        self, base: Path, bare: Path, *, prune: bool = True, fast_forward: bool = False, trusted: SshKey | None = None
    ) -> None:
        super().__init__(_Manifests(self))  # type: ignore[arg-type]
        self.url = f"git+file://{bare}//set?ref=main"
        self.state, self.mirrors, self.local = base / "state", base / "mirrors", base / "local"
        self.state.mkdir(mode=0o700)
        self.local.mkdir(mode=0o700)
        source: dict[str, object] = {"url": self.url, "interval": "60s", "requireFastForward": fast_forward}
        if trusted is not None:
            keys = self.local / "signers"
            keys.write_text(f"{trusted.public}\n")
            keys.chmod(0o600)
            source["verify"] = {"mode": "head", "keys": [{"ssh": str(keys)}]}
        file = self.local / "host.yaml"
        documents = [
            {"kind": "Instance", "spec": {"id": INSTANCE, "prune": prune, "source": source}},
            {"kind": "Guard", "spec": {"massChange": {"share": "100%", "minimum": 1000, "names": 1000}}},
            *(
                {"kind": "Provider", "metadata": {"name": name}, "spec": {"type": f"memory-{role}"}}
                for name, role in ((NODE, "runtime"), (POOLS, "endpoints"), (NAMES, "dns"))
            ),
        ]
        head = {"apiVersion": "reconciler/v1", "metadata": {"name": "this"}}
        file.write_text("\n---\n".join(json.dumps({**head, **document}) for document in documents))
        file.chmod(0o600)

    def begin(self) -> Desired:
        """Read the source as a daemon does at its start, and follow it from then on."""
        clock = self.memory.process_clock
        checks = (SignatureCheck(self.local, self.clock),)
        reader = GitReader(parse(self.url), self.local, self.mirrors, checks, lambda: self.clock.now().steady / SECOND)
        location = Location(reader.url, self.local, self.state, reader=reader)
        start = start_manifests(location, self.clock, stored=True)
        place = place_of(location.path, location.instance_file)
        archive = Archive(self.state, None, INSTANCE, place, clock, location.commit)
        if start.invalid is None:
            assert archive.in_force(start.sources) == ""
        self.source = source_of(location, Intent(), start, self.state, archive, clock, follow=True)  # type: ignore[assignment]
        return location.at_work(Intent().applied_to(start.desired), self.state)

    def deliver(self) -> None:
        """A forge reports a push to the listener of the daemon, which has found the delivery genuine."""
        assert self.life is not None
        loop = self.life.loop
        self.life.events.call_soon(loop.webhook.accept, f"delivery {self.points}", "github", "refs/heads/main")
