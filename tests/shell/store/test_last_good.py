"""The last good manifests on the disk: exactly what was read, private, written only when it changes, whole after a kill."""

import json
import os
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from manifests.load import Sources, read_sources
from manifests.problems import Code, Problem
from manifests.values.desired import SECOND
from reconciler.shell.store import last_good, source_record
from reconciler.shell.store.archive import Archive, mark_removed
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.instance_index import place_of
from reconciler.shell.store.source_record import SourceRecord
from tests.manifests.trees import GOOD, write
from tests.sim.clock import VirtualClock

COMMIT = "0123456789abcdef"


class Kept:
    """An archive over a tree of manifests; every call makes a new one, as every process does."""

    def __init__(self, base: Path) -> None:
        self.base, self.tree, self.state = base / "base", base / "tree", base / "base" / "demo"
        write(self.tree, GOOD)
        self.state.mkdir(parents=True, mode=0o700)
        self.clock = VirtualClock()

    def archive(self, state: Path | None = None, instance: str = "demo") -> Archive:
        place = place_of(self.tree, None)
        return Archive(state or self.state, self.base, instance, place, self.clock, lambda: COMMIT)

    def sources(self) -> Sources:
        return read_sources(self.tree)

    def record(self) -> SourceRecord:
        record = source_record.load(self.state)
        assert record is not None
        return record


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def times(directory: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in directory.iterdir()}


def test_what_was_read_comes_back_unchanged(kept):
    (kept.tree / "odd.yaml").write_bytes("\ufeff# é\r\n".encode())
    sources = kept.sources()
    assert kept.archive().in_force(sources) == ""
    stored = last_good.load(kept.state)
    assert stored is not None
    assert stored.sources == sources
    assert (stored.instance, stored.commit, stored.revision) == ("demo", COMMIT, sources.revision)


def test_files_that_manifests_refer_to_are_a_part_of_it(kept):
    template = {"volumes": [{"files": {"from": "conf"}}], "containers": [{"envFile": ["a.env", "no.env"]}]}
    manifest = {"apiVersion": "reconciler/v1", "kind": "Workload", "spec": {"template": {"spec": template}}}
    write(kept.tree, {"w.json": json.dumps(manifest), "conf/é": b"\xff\x00", "conf/run": "x", "a.env": "A=1"})
    (kept.tree / "conf/run").chmod(0o755)
    sources = kept.sources()
    assert len(sources.tree.sets) == 3
    assert kept.archive().in_force(sources) == ""
    stored = last_good.load(kept.state)
    assert stored is not None
    assert stored.sources == sources
    assert stored.revision == sources.revision
    write(kept.tree, {"conf/run": "y"})
    assert kept.archive().in_force(kept.sources()) == ""
    assert last_good.load(kept.state).revision != sources.revision


def test_a_local_file_is_a_part_of_it(kept, tmp_path):
    local = tmp_path / "local.yaml"
    local.write_text("# a local file\n")
    sources = read_sources(kept.tree, local)
    kept.archive().in_force(sources)
    stored = last_good.load(kept.state)
    assert stored is not None
    assert stored.sources == sources
    assert stored.revision != read_sources(kept.tree).revision


def test_the_files_are_private(kept):
    kept.archive().in_force(kept.sources())
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in kept.state.iterdir()}
    assert modes == {last_good.FILE: 0o600, source_record.FILE: 0o600}


def test_equal_manifests_are_not_written_again_and_keep_their_time(kept):
    kept.archive().in_force(kept.sources())
    since = kept.record().in_force.since_wall
    before = times(kept.state)[last_good.FILE]
    kept.clock.advance(3600 * SECOND)
    archive = kept.archive()
    archive.in_force(kept.sources())
    assert not archive.changed
    assert kept.record().in_force.since_wall == since
    assert times(kept.state)[last_good.FILE] == before


def test_an_equal_problem_is_written_once_and_keeps_its_time(kept):
    archive = kept.archive()
    archive.in_force(kept.sources())
    problem = Problem("a.yaml", 3, 1, Code.YAML_SYNTAX, "", "wrong")
    first, _ = archive.attempted("r" * 64, (problem,))
    before = times(kept.state)
    kept.clock.advance(60 * SECOND)
    again, _ = kept.archive().attempted("r" * 64, (problem,))
    assert again.since_wall == first.since_wall
    assert times(kept.state) == before
    assert kept.record().attempted.problems[0]["line"] == 3
    kept.archive().settled()
    assert kept.record().attempted is None


def test_the_record_holds_a_bounded_number_of_problems_and_places(kept):
    archive = kept.archive()
    many = tuple(Problem("a.yaml", n + 1, 1, Code.BAD_VALUE, "", "x" * 5000) for n in range(500))
    archive.attempted("r" * 64, many)
    for number in range(50):
        moved = Archive(kept.state, kept.base, "demo", place_of(kept.tree / str(number), None), kept.clock, str)
        moved.in_force(kept.sources())
    assert len(kept.record().places) == source_record.PLACES
    archive.attempted("s" * 64, many)
    assert kept.record().attempted.count == 500
    assert (kept.state / source_record.FILE).stat().st_size < source_record.LARGEST


def test_a_lost_record_gets_its_revision_and_time_back_from_the_manifests(kept):
    kept.archive().in_force(kept.sources())
    since = kept.record().in_force.since_wall
    (kept.state / source_record.FILE).unlink()
    kept.clock.advance(60 * SECOND)
    archive = kept.archive()
    archive.in_force(kept.sources())
    assert not archive.changed
    assert kept.record().in_force.since_wall == since


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}\n{}\n",
        b"no json\n",
        b'{"format": 1, "sha256": "0"}\n{}\n',
        b'{"format": 2}\n{}\n',
        b"[]\n[]\n",
        b"\xff\n",
    ],
)
def test_a_damaged_file_is_named_and_replaced_by_the_next_good_manifests(kept, content):
    kept.archive().in_force(kept.sources())
    (kept.state / last_good.FILE).write_bytes(content)
    with pytest.raises(StoreError, match=r"manifests\.json"):
        last_good.load(kept.state)
    kept.archive().in_force(kept.sources())
    assert last_good.load(kept.state).sources == kept.sources()


def test_any_flipped_byte_is_noticed(kept):
    kept.archive().in_force(kept.sources())
    data = (kept.state / last_good.FILE).read_bytes()
    for at in range(0, len(data) - 1, max(1, len(data) // 60)):
        (kept.state / last_good.FILE).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(StoreError):
            last_good.load(kept.state)


def test_a_record_that_is_damaged_or_not_private_counts_as_lost(kept, tmp_path):
    kept.archive().in_force(kept.sources())
    record = kept.state / source_record.FILE
    good = record.read_text()
    for text in ("", "[]", "{}", good.replace('"format": 1', '"format": 9'), good[:-20], json.dumps({"format": 1})):
        record.write_text(text)
        assert source_record.load(kept.state) is None
    record.unlink()
    (tmp_path / "elsewhere").write_text(good)
    record.symlink_to(tmp_path / "elsewhere")
    assert source_record.load(kept.state) is None


def test_a_write_that_fails_is_a_message_and_is_done_later(kept):
    archive = kept.archive()
    blocked = kept.state / f"{last_good.FILE}.new"
    blocked.mkdir()
    message = archive.in_force(kept.sources())
    assert "cannot be stored" in message
    assert archive.unsaved
    blocked.rmdir()
    assert archive.flush() == ""
    assert not archive.unsaved
    assert last_good.load(kept.state).sources == kept.sources()


def test_a_half_written_file_leaves_the_one_before(kept):
    kept.archive().in_force(kept.sources())
    (kept.state / f"{last_good.FILE}.new").write_text("half")  # what a kill during the write leaves
    assert last_good.load(kept.state).sources == kept.sources()
    write(kept.tree, {"more.yaml": "# more\n"})
    kept.archive().in_force(kept.sources())
    assert last_good.load(kept.state).sources == kept.sources()


def test_removed_manifests_stay_removed_until_they_are_in_force_again(kept):
    kept.archive().in_force(kept.sources())
    mark_removed(kept.state)
    mark_removed(kept.state)
    assert last_good.load(kept.state).removed
    kept.archive().in_force(kept.sources())
    assert not last_good.load(kept.state).removed


def test_references_to_secrets_are_stored_and_their_values_are_not(kept, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "sentinel-of-the-test")
    kept.archive().in_force(kept.sources())
    assert b"sentinel" not in (kept.state / last_good.FILE).read_bytes()
    assert os.environ["TOKEN"]


def test_all_local_documents_come_back_with_the_tree(kept, tmp_path):
    local = write(tmp_path / "local", {"a.yaml": "# a\n", "sub/b.yaml": "# é\n"})
    sources = read_sources(kept.tree, local)
    assert kept.archive().in_force(sources) == ""
    stored = last_good.load(kept.state)
    assert stored is not None
    assert stored.confined
    assert stored.sources.local == sources.local
    assert stored.revision == sources.revision != read_sources(kept.tree).revision


def test_one_local_document_of_format_1_is_read_as_not_confining(kept):
    assert kept.archive().in_force(kept.sources()) == ""
    path = kept.state / "manifests.json"
    body = json.loads(path.read_text().partition("\n")[2])
    del body["confined"]
    body["local"] = ["/etc/instance.yaml", "# local\n"]
    text = json.dumps(body)
    path.write_text(f"{json.dumps({'format': 1, 'sha256': sha256(text.encode()).hexdigest()})}\n{text}\n")
    stored = last_good.load(kept.state)
    assert stored is not None
    assert stored.sources.local is not None
    assert (stored.confined, [file.name for file in stored.sources.local.files]) == (False, ["/etc/instance.yaml"])
