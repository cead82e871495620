"""The contents that a plan compares: those of running containers, from the disk, and those of the manifests."""

from dataclasses import replace
from pathlib import Path

from manifests.values.desired import Desired
from manifests.values.files import FileContents, FilesVolume, OnFilesChange, SetFile, content_digest, entry
from manifests.values.pod import Mount, VolumeKind
from providers.actions import CreateContainer
from providers.facts import ContainerFact, Known, Unknown
from reconciler.shell import file_diffs
from reconciler.shell.store.file_store import FileStore
from tests.builders import NOW, container
from tests.sim.manifest import Spec, shop

WEB = Spec()
OLD, NEW = (SetFile("a", b"1\n"), SetFile("b", b"x")), (SetFile("a", b"2\n"), SetFile("b", b"x"))


def world(state: Path) -> tuple[Desired, ContainerFact, FileStore]:
    """A container whose files are kept, and manifests with other ones."""
    store = FileStore(state)
    store.offer({content_digest(OLD): FileContents(content_digest(OLD), OLD)})
    desired = shop().desired()
    volumes = [FilesVolume("conf", content_digest(files), tuple(map(entry, files))) for files in (OLD, NEW)]
    fact = container(WEB, 0)
    workload = desired.workloads[0]
    main = workload.template.container
    mounted = replace(main.engine, mounts=(Mount(VolumeKind.FILES, "conf", "/c", read_only=True),))
    before, after = (
        replace(workload.template, volumes=(volume,), container=replace(main, engine=mounted)) for volume in volumes
    )
    assert fact.mark is not None
    store.prepare(CreateContainer("local", fact.name, fact.mark, before, "/"))
    contents = {content_digest(NEW): FileContents(content_digest(NEW), NEW)}
    desired = replace(desired, workloads=(replace(workload, template=after),), file_contents=contents)
    return desired, replace(fact, files=(("conf", content_digest(OLD)),)), FileStore(state)


def test_only_files_that_differ_are_compared(tmp_path: Path) -> None:
    desired, fact, store = world(tmp_path)
    (diff,) = file_diffs.of_plan(desired, {"local": Known((fact,), "provider/local", NOW.steady)}, store)
    assert (diff.object, diff.volume, diff.name, diff.reaction) == ("workload/web", "conf", "a", "rollout")
    assert diff.lines == ("@@ -1 +1 @@", "-1", "+2")


def test_equal_unknown_and_signalled_containers_have_nothing_to_compare(tmp_path: Path) -> None:
    desired, fact, store = world(tmp_path)
    present = replace(fact, files=(("conf", content_digest(NEW)),))
    waiting = replace(fact, files=(("conf", ""),))
    for known in ((present,), (waiting,), ()):
        assert file_diffs.of_plan(desired, {"local": Known(known, "provider/local", NOW.steady)}, store) == ()
    assert file_diffs.of_plan(desired, {"local": Unknown("no answer", "provider/local", NOW.steady)}, store) == ()


def test_files_that_are_lost_are_named_by_their_digests(tmp_path: Path) -> None:
    desired, fact, _ = world(tmp_path)
    store = FileStore(tmp_path / "elsewhere")
    (diff,) = file_diffs.of_plan(desired, {"local": Known((fact,), "provider/local", NOW.steady)}, store)
    assert (diff.before, diff.after) == (content_digest(OLD), content_digest(NEW))
    assert "are not kept" in diff.why


def test_a_key_in_a_file_is_never_shown(tmp_path: Path) -> None:
    desired, fact, store = world(tmp_path)
    secret = (SetFile("a", b"AGE-SECRET-KEY-1HUNTER2"),)
    digest = content_digest(secret)
    workload = desired.workloads[0]
    volume = FilesVolume("conf", digest, tuple(map(entry, secret)), on_change=OnFilesChange.SIGNAL, signal="SIGHUP")
    template = replace(workload.template, volumes=(volume,))
    contents = {digest: FileContents(digest, secret)}
    desired = replace(desired, workloads=(replace(workload, template=template),), file_contents=contents)
    diffs = file_diffs.of_plan(desired, {"local": Known((fact,), "provider/local", NOW.steady)}, store)
    assert [diff.name for diff in diffs] == ["a", "b"]
    assert "HUNTER2" not in repr(diffs)
