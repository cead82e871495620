"""Containers with files of the repository: mounts at creation, signals, and what a kill between two halves leaves."""

from pathlib import Path

import pytest

from manifests.values.desired import Container, Template
from manifests.values.files import FileContents, FilesVolume, OnFilesChange, SetFile, content_digest, entry
from manifests.values.pod import Engine, Mount, VolumeKind
from providers.actions import CreateContainer, RuntimeAction, StartContainer, UpdateContainer
from providers.errors import Conflict, Unreachable
from providers.facts import ContainerFact, Mark, container_name
from providers.spi import Context
from providers.testing.memory import MemorySettings, MemoryWorld
from providers.testing.memory_runtime import MemoryRuntime
from providers.wrappers.repository_files import RuntimeWithFiles
from reconciler.shell.store.file_store import FileStore

FIRST, SECOND = (SetFile("a", b"1"),), (SetFile("a", b"2"),)
OLD, NEW = content_digest(FIRST), content_digest(SECOND)
MARK = Mark("demo", "web", 0, "1" * 16)
NAME = container_name(MARK)


class Dying(MemoryRuntime):
    """A runtime under which the program is killed right after, or right before, an update."""

    before = after = False
    mounts: tuple[Mount, ...] = ()

    def perform(self, action: RuntimeAction) -> None:
        if isinstance(action, CreateContainer):
            self.mounts = action.template.container.engine.mounts
        if self.before:
            raise Unreachable(NAME, "killed")
        super().perform(action)
        if self.after:
            raise Unreachable(NAME, "killed")


class Node:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.inner = Dying("local", MemorySettings(), Context("demo", str(state)), MemoryWorld())
        self.restart()
        volume = FilesVolume("conf", OLD, tuple(map(entry, FIRST)), on_change=OnFilesChange.SIGNAL, signal="SIGHUP")
        engine = Engine(mounts=(Mount(VolumeKind.FILES, "conf", "/conf", read_only=True),))
        template = Template((), Container("web", (), engine=engine), volumes=(volume,))
        self.runtime.perform(CreateContainer("local", NAME, MARK, template, "/"))
        self.runtime.perform(StartContainer("local", NAME, self.fact.generation))

    def restart(self) -> None:
        """A new process over the same state and containers."""
        store = FileStore(self.state)
        store.offer({item.digest: item for item in (FileContents(OLD, FIRST), FileContents(NEW, SECOND))})
        self.inner.before = self.inner.after = False
        self.runtime = RuntimeWithFiles(self.inner, store)

    @property
    def fact(self) -> ContainerFact:
        (fact,) = self.runtime.observe()
        return fact

    @property
    def seen(self) -> str:
        return (Path(self.inner.mounts[0].source) / "a").read_text()

    @property
    def signals(self) -> list[str]:
        return self.inner._containers[NAME].signals

    def update(self) -> None:
        action = UpdateContainer("local", NAME, self.fact.generation, (), files=(("conf", NEW, "SIGHUP"),))
        self.runtime.perform(action)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    tmp_path.chmod(0o700)
    return Node(tmp_path)


def test_a_container_mounts_the_directory_behind_its_digest(node: Node) -> None:
    assert [(mount.kind, mount.read_only) for mount in node.inner.mounts] == [(VolumeKind.BIND, True)]
    assert (node.seen, node.signals) == ("1", [])
    assert dict(node.fact.files)["conf"] in ("", OLD)


def test_an_update_shows_the_files_sends_one_signal_and_is_read_back(node: Node) -> None:
    node.update()
    assert (node.seen, node.signals, node.fact.files) == ("2", ["SIGHUP"], (("conf", NEW),))


def test_a_kill_before_the_signal_leads_to_the_signal(node: Node) -> None:
    node.inner.before = True
    with pytest.raises(Unreachable):
        node.update()
    node.restart()
    assert (node.seen, node.signals, dict(node.fact.files)) == ("2", [], {"conf": ""})
    node.update()
    assert (node.signals, dict(node.fact.files)) == (["SIGHUP"], {"conf": NEW})


def test_a_kill_after_the_signal_leads_to_a_second_one_and_no_third(node: Node) -> None:
    node.inner.after = True
    with pytest.raises(Unreachable):
        node.update()
    node.restart()
    assert dict(node.fact.files) == {"conf": ""}
    node.update()
    assert (node.signals, dict(node.fact.files)) == (["SIGHUP", "SIGHUP"], {"conf": NEW})


def test_a_container_that_is_down_sees_the_files_and_gets_no_signal(node: Node) -> None:
    item = node.inner._containers[NAME]
    item.state = type(item.state).EXITED
    with pytest.raises(Conflict):
        node.update()
    assert node.signals == []
