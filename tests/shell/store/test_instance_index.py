"""The index finds the instance of a path, however its state is kept; what is lost in it is found in another way."""

from dataclasses import replace
from pathlib import Path

import pytest

from manifests.load import read_sources
from manifests.problems import ManifestErrors
from reconciler import tree as trees
from reconciler.shell.store import instance_index, source_record
from reconciler.shell.store.archive import Archive, mark_removed
from reconciler.shell.store.instance_index import find, place_of, remember
from reconciler.shell.store.state_db import Store
from tests.manifests.trees import GOOD, INSTANCE, write
from tests.sim.clock import VirtualClock

CLOCK = VirtualClock()


class Host:
    """A user's directories: manifests, and where state is kept."""

    def __init__(self, base: Path) -> None:
        self.base, self.tree = base / "state", base / "tree"
        write(self.tree, GOOD)

    def ran(
        self, instance: str, tree: Path | None = None, local: Path | None = None, state: Path | None = None
    ) -> Path:
        """A run of an instance with valid manifests."""
        state = state or self.base / instance
        with Store.open(state, CLOCK) as store:
            sources = read_sources(tree or self.tree, local)
            Archive(state, self.base, instance, place_of(tree or self.tree, local), CLOCK, str).in_force(sources)
            store.put_decision({"instance": instance, "source": sources.tree.identity})
        return state

    def find(self, path: Path | None = None, local: Path | None = None) -> dict[Path, str]:
        path = path or self.tree
        found = find(self.base, place_of(path, local), read_sources(path).tree.identity, CLOCK)
        return {state: instance.instance for state, instance in found.items()}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_an_instance_is_found_by_its_path(host, tmp_path):
    state = host.ran("a")
    host.ran("b", write(tmp_path / "other", GOOD) and tmp_path / "other")
    assert host.find() == {state: "a"}
    assert host.find(tmp_path / "nowhere") == {}


def test_an_instance_is_found_by_the_path_as_given_and_without_links(host, tmp_path):
    link = tmp_path / "current"
    link.symlink_to(host.tree)
    state = host.ran("a", link)
    assert host.find(host.tree) == {state: "a"}
    link.unlink()
    link.symlink_to(tmp_path / "release-2")  # the link leads to a broken release now
    assert host.find(link) == {state: "a"}


def test_the_local_file_separates_instances_of_one_path(host, tmp_path):
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    for file in (one, two):
        file.write_text("# local\n")
    states = {name: host.ran(name, local=file) for name, file in (("a", one), ("b", two))}
    assert host.find(local=one) == {states["a"]: "a"}
    assert host.find(local=two) == {states["b"]: "b"}
    assert host.find() == {states["a"]: "a", states["b"]: "b"}
    assert host.find(local=tmp_path / "three.yaml") == {}


def test_a_state_directory_elsewhere_is_found_until_it_is_gone(host, tmp_path):
    state = host.ran("a", state=tmp_path / "elsewhere" / "s")
    assert host.find() == {state: "a"}
    pointers = list((host.base / instance_index.DIRECTORY).iterdir())
    assert len(pointers) == 1
    assert pointers[0].stat().st_mode & 0o777 == 0o600
    (state / "state.db").unlink()
    assert host.find() == {}


def test_lost_pointers_and_records_are_written_again(host, tmp_path):
    state = host.ran("a", state=tmp_path / "elsewhere")
    for pointer in (host.base / instance_index.DIRECTORY).iterdir():
        pointer.write_text("damaged")
    assert host.find() == {}
    host.ran("a", state=state)
    assert host.find() == {state: "a"}


def test_a_lost_record_is_made_up_for_by_the_last_decision(host):
    state = host.ran("a")
    (state / source_record.FILE).unlink()
    assert host.find() == {state: "a"}


def test_another_checkout_of_the_same_source_finds_it_by_its_identity(host, tmp_path):
    state = host.ran("a")
    record = source_record.load(state)
    assert record is not None
    assert find(host.base, place_of(tmp_path / "clone", None), record.in_force.source, CLOCK) == {
        state: instance_index.Found("a", record.used)
    }


def test_an_instance_that_was_destroyed_does_not_stand_beside_another(host, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(host.base.parent))
    host.base = trees.state_base()
    gone, here = host.ran("a"), host.ran("b")
    location, sources = trees.Location(host.tree), read_sources(host.tree)
    with pytest.raises(trees.AmbiguousInstance, match="a, b"):
        location.known_state(sources, ManifestErrors(()), CLOCK)
    assert location.known_state(sources, ManifestErrors(()), CLOCK, newest=True) in (gone, here)
    mark_removed(gone)
    assert location.known_state(sources, ManifestErrors(()), CLOCK) == here
    mark_removed(here)
    with pytest.raises(trees.AmbiguousInstance):
        location.known_state(sources, ManifestErrors(()), CLOCK)


def test_the_number_of_pointers_is_bounded(host, tmp_path):
    for number in range(instance_index.POINTERS + 5):
        state = tmp_path / "many" / str(number)
        state.mkdir(parents=True)
        remember(host.base, state)
    files = list((host.base / instance_index.DIRECTORY).iterdir())
    assert len(files) <= instance_index.POINTERS


def test_what_is_in_the_way_is_no_error(host):
    host.base.mkdir(parents=True)
    (host.base / "file").write_text("x")
    (host.base / "empty").mkdir()
    assert host.find() == {}


def test_local_documents_are_found_by_any_path_that_leads_to_them(host, tmp_path):
    local = write(tmp_path / "etc", {"host.yaml": INSTANCE})
    (tmp_path / "link").symlink_to("etc")
    state = host.ran("a", local=tmp_path / "link")
    assert host.find(local=local) == {state: "a"}
    assert host.find(local=tmp_path / "link" / "..") == {}
    assert host.find(local=tmp_path / "etc" / "host.yaml") == {}
    assert host.find() == {state: "a"}


def test_local_documents_of_an_earlier_record_are_found_without_links(host, tmp_path):
    local = write(tmp_path / "etc", {"host.yaml": INSTANCE})
    (tmp_path / "link").symlink_to("etc")
    state = host.ran("a", local=local)
    record = source_record.load(state)
    assert record is not None
    as_given = replace(record.places[0], instance_file=str(tmp_path / "link"))
    source_record.save(state, replace(record, places=(as_given,)))
    assert host.find(local=local) == {state: "a"}
