"""Files of the repository in the state directory: whole or absent, never changed, and removed when nothing needs them."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from manifests.values.desired import Container, Template
from manifests.values.files import FileContents, FilesVolume, OnFilesChange, SetFile, content_digest, entry
from manifests.values.pod import Engine, Mount, VolumeKind
from providers.actions import CreateContainer
from providers.errors import Rejected, Unreachable
from providers.facts import Generation, Mark
from reconciler.shell.store.file_store import DATA, FileStore

NAME = "demo-web-12345678-0"
FIRST = (SetFile("app.conf", b"1"), SetFile("d/run", b"#!/bin/sh", executable=True))
SECOND = (SetFile("app.conf", b"2"), SetFile("more", b"3"))


def contents(*sets: tuple[SetFile, ...]) -> dict[str, FileContents]:
    return {content_digest(files): FileContents(content_digest(files), files) for files in sets}


def create(
    files: tuple[SetFile, ...], on_change: OnFilesChange = OnFilesChange.ROLLOUT, *, single: bool = False
) -> CreateContainer:
    volume = FilesVolume("conf", content_digest(files), tuple(map(entry, files)), single, on_change)
    mount = Mount(VolumeKind.FILES, "conf", "/conf", read_only=True)
    data = Mount(VolumeKind.NAMED, "data", "/data")
    main = Container("web", (), engine=Engine(image="x", mounts=(data, mount)))
    side = Container("side", (), engine=Engine(image="x", mounts=(mount,)))
    template = Template((), main, sidecars=(side,), volumes=(volume,))
    return CreateContainer("local", NAME, Mark("demo", "web", 0, "1" * 16), template, "/")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def store(state: Path) -> FileStore:
    made = FileStore(state)
    made.offer(contents(FIRST, SECOND))
    return made


def source(action: CreateContainer) -> Path:
    (named, mount), (side,) = action.template.container.engine.mounts, action.template.sidecars[0].engine.mounts
    assert (named.kind, mount) == (VolumeKind.NAMED, side)
    assert (mount.kind, mount.read_only, mount.target) == (VolumeKind.BIND, True, "/conf")
    return Path(mount.source)


def content(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file() and ".." not in str(path.relative_to(directory))
    }


def modes(directory: Path) -> dict[str, int]:
    return {str(path.relative_to(directory)): path.stat().st_mode & 0o777 for path in directory.rglob("*")}


def test_all_containers_share_one_directory_that_only_can_be_read(store: FileStore, state: Path) -> None:
    directory = source(store.prepare(create(FIRST)))
    assert content(directory) == {"app.conf": "1", "d/run": "#!/bin/sh"}
    assert modes(directory) == {"app.conf": 0o444, "d": 0o555, "d/run": 0o555}
    assert directory.stat().st_mode & 0o777 == 0o555
    assert (state / "files").stat().st_mode & 0o777 == 0o700
    before = directory.stat().st_ino
    assert source(store.prepare(create(FIRST))).stat().st_ino == before


def test_a_volume_of_one_file_mounts_that_file(store: FileStore) -> None:
    one = (SetFile("one.conf", b"1"),)
    store.offer(contents(one))
    assert source(store.prepare(create(one, single=True))).read_bytes() == b"1"


def test_other_contents_do_not_touch_what_is_mounted(store: FileStore) -> None:
    first = source(store.prepare(create(FIRST)))
    second = source(store.prepare(create(SECOND)))
    assert first != second
    assert (content(first)["app.conf"], content(second)["app.conf"]) == ("1", "2")


def test_files_of_an_earlier_revision_are_used_again(store: FileStore, state: Path) -> None:
    store.prepare(create(FIRST))
    later = FileStore(state)
    later.offer(contents(SECOND))
    assert content(source(later.prepare(create(FIRST))))["app.conf"] == "1"


def test_files_that_are_kept_nowhere_are_rejected_by_name(state: Path) -> None:
    with pytest.raises(Rejected, match=r"its files \(app.conf, d/run\) are not kept any more"):
        FileStore(state).prepare(create(FIRST))


def test_files_that_were_changed_on_the_disk_are_rejected(store: FileStore) -> None:
    directory = source(store.prepare(create(FIRST)))
    changes: list[Callable[[], object]] = [
        lambda: (directory / "app.conf").write_text("x"),
        lambda: (directory / "more").write_text("x"),
        lambda: (directory / "link").symlink_to("app.conf"),
        lambda: os.unlink(directory / "app.conf"),
        lambda: (directory / "app.conf").chmod(0o555),
    ]
    for change in changes:
        directory.chmod(0o755)
        change()
        with pytest.raises(Rejected, match="were changed after they were written"):
            store.prepare(create(FIRST))
        store.collect((), ())
        store.offer({})
        store.collect((), ())
        store.offer(contents(FIRST, SECOND))
        assert source(store.prepare(create(FIRST))) == directory


def test_what_a_kill_left_behind_is_written_again(store: FileStore, state: Path) -> None:
    left = state / "files" / f".new-{content_digest(FIRST)}"
    left.mkdir(parents=True)
    (left / "app.conf").write_text("half")
    left.chmod(0o555)
    assert content(source(store.prepare(create(FIRST))))["app.conf"] == "1"
    assert not left.exists()


def test_a_place_that_cannot_be_written_is_said_with_its_cause(store: FileStore, state: Path) -> None:
    (state / "files").write_text("in the way")
    with pytest.raises(Unreachable, match="cannot be stored in"):
        store.prepare(create(FIRST))


def test_what_nothing_needs_is_removed_and_all_else_stays(store: FileStore, state: Path) -> None:
    first, second = (source(store.prepare(create(files))) for files in (FIRST, SECOND))
    store.offer({})
    store.collect({first.name}, ())
    assert (first.exists(), second.exists()) == (True, False)
    store.offer(contents(FIRST))
    store.collect((), ())
    assert first.exists(), "the manifests in force have them"
    store.offer({})
    store.collect((), ())
    assert list((state / "files").iterdir()) == []
    assert not FileStore(state / "elsewhere").any()


# --- files that change while a container runs --------------------------------------------------------------------------

SIGNAL = OnFilesChange.SIGNAL
RUN = Generation("c1", 1)


def test_a_container_sees_other_files_at_once_in_the_same_mount(store: FileStore) -> None:
    directory = source(store.prepare(create(FIRST, SIGNAL)))
    assert directory.parent.name == NAME
    assert sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith("..")) == ["app.conf", "d"]
    assert ((directory / "app.conf").read_text(), (directory / "d/run").stat().st_mode & 0o777) == ("1", 0o555)
    inode = directory.stat().st_ino
    store.change(NAME, [("conf", content_digest(SECOND))])
    assert directory.stat().st_ino == inode
    assert sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith("..")) == [
        "app.conf",
        "more",
    ]
    assert (directory / "app.conf").read_text() == "2"
    for _ in range(3):
        store.change(NAME, [("conf", content_digest(FIRST))])
        store.change(NAME, [("conf", content_digest(SECOND))])
    assert len(list(directory.iterdir())) <= 5, "no more than the present and the former files are kept"


def test_readers_see_the_old_or_the_new_files_and_never_both_or_none(store: FileStore) -> None:
    files = [tuple(SetFile(f"f{index}", bytes([value])) for index in range(3)) for value in range(2)]
    store.offer(contents(*files))
    directory = source(store.prepare(create(files[0], SIGNAL)))
    stop, seen, errors = threading.Event(), set(), []

    def read() -> None:
        while not stop.is_set():
            try:
                held = os.open(directory / DATA, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    seen.add(tuple(Path(f"/proc/self/fd/{held}/f{index}").read_bytes() for index in range(3)))
                finally:
                    os.close(held)
            except OSError as error:
                errors.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(40):
        store.change(NAME, [("conf", content_digest(files[turn % 2]))])
    stop.set()
    reader.join()
    assert errors == []
    assert seen <= {(bytes([value]),) * 3 for value in range(2)}


def test_a_signal_or_a_later_start_lets_a_container_know_its_files(store: FileStore) -> None:
    first, second = content_digest(FIRST), content_digest(SECOND)
    store.prepare(create(FIRST, SIGNAL))
    later = Generation("c1", 2**62)
    assert store.shown(NAME, later) == {"conf": first}
    store.change(NAME, [("conf", second)])
    assert store.shown(NAME, RUN) == {"conf": ""}, "a kill here leads to the signal again"
    store.changed(NAME, RUN, [("conf", second)])
    assert store.shown(NAME, RUN) == {"conf": second}
    assert store.shown(NAME, Generation("c1", 2)) == {"conf": ""}, "another generation got no signal"
    assert store.shown(NAME, later) == {"conf": second}
    assert store.shown("demo-web-12345678-1", RUN) == {}
    assert list(store.changeable()) == [NAME]


def test_a_damaged_record_of_signals_leads_to_a_signal_again(store: FileStore, state: Path) -> None:
    store.prepare(create(FIRST, SIGNAL))
    for text in ("", "[]", "{", '{"conf": 7}'):
        (state / "files/live" / NAME / ".signalled.json").write_text(text)
        assert store.shown(NAME, RUN) == {"conf": ""}
    store.changed(NAME, RUN, [("conf", content_digest(FIRST))])
    assert store.shown(NAME, RUN) == {"conf": content_digest(FIRST)}


def test_the_directory_of_a_container_stays_until_it_is_gone(store: FileStore, state: Path) -> None:
    store.prepare(create(FIRST, SIGNAL))
    directory = state / "files/live" / NAME
    store.collect((), ())
    assert directory.exists(), "the container is about to be created"
    store.collect((), {NAME})
    assert directory.exists()
    store.collect((), ())
    assert not directory.exists()


def test_a_half_made_change_is_completed(store: FileStore) -> None:
    directory = source(store.prepare(create(FIRST, SIGNAL)))
    new = f"..{content_digest(SECOND)}"
    (directory / new).mkdir()
    (directory / "..new").mkdir()
    (directory / "..link-x").symlink_to("x")
    store.change(NAME, [("conf", content_digest(SECOND))])
    assert (directory / "app.conf").read_text() == "2"
    assert not (directory / "..new").exists()
    assert not (directory / "..link-x").is_symlink()


def test_a_directory_that_was_changed_on_the_disk_is_written_again(store: FileStore) -> None:
    action = create(FIRST, SIGNAL)
    directory = source(store.prepare(action))
    files = (directory / "..data").resolve()
    before = content(files)
    files.chmod(0o755)
    (files / "app.conf").chmod(0o644)
    (files / "app.conf").write_text("another")
    assert source(store.prepare(action)) == directory
    assert content((directory / "..data").resolve()) == before


def test_files_that_are_not_kept_leave_what_a_container_sees(store: FileStore, state: Path) -> None:
    directory = source(store.prepare(create(FIRST, SIGNAL)))
    other = FileStore(state)
    with pytest.raises(Rejected):
        other.change(NAME, [("conf", content_digest(SECOND))])
    assert (directory / "app.conf").read_text() == "1"
