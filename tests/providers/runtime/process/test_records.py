"""Records on the disk: private, complete, and unreadable rather than absent."""

import os
import stat

import pytest

from providers.errors import Foreign, Unreachable
from providers.facts import ContainerState


def test_state_files_are_private(bench):
    bench.run()
    for path, directories, files in os.walk(bench.state):
        assert all(stat.S_IMODE(os.stat(f"{path}/{name}").st_mode) == 0o700 for name in directories)
        assert all(stat.S_IMODE(os.stat(f"{path}/{name}").st_mode) == 0o600 for name in files)


@pytest.mark.parametrize("name", ["container.json", "generation"])
@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"phase=running\n", b'{"format": 9}\n'])
def test_a_damaged_record_makes_the_node_unreadable_and_is_named(bench, name, damage):
    fact = bench.run()
    path = bench.directory(fact) / name
    kept = path.read_bytes()
    path.write_bytes(damage)
    with pytest.raises(Unreachable, match=str(path)):
        bench.runtime().observe()
    path.write_bytes(kept)
    assert bench.fact(fact.name) == fact


def test_a_directory_without_its_record_is_unreadable_not_absent(bench):
    fact = bench.create()
    (bench.directory(fact) / "container.json").unlink()
    with pytest.raises(Unreachable, match=fact.name):
        bench.runtime().observe([fact.name])


def test_leftovers_of_crashes_are_ignored_and_removed_by_the_next_create(bench):
    home = bench.state / "process" / "local"
    first = bench.create()
    for name in (".new-1", ".gone-1"):
        (home / name).mkdir()
        (home / name / "container.json").write_text("{")
    assert bench.runtime().observe() == (first,)
    second = bench.create(ordinal=1)
    assert sorted(os.listdir(home)) == [first.name, second.name]


def test_a_record_copied_under_another_name_is_foreign(bench):
    fact = bench.create()
    copy = bench.directory(fact).with_name(bench.name(7))
    copy.mkdir()
    (copy / "container.json").write_bytes((bench.directory(fact) / "container.json").read_bytes())
    (fact_of_copy,) = bench.runtime().observe([copy.name])
    assert (fact_of_copy.mark, fact_of_copy.foreign_mark) == (None, True)
    with pytest.raises(Foreign):
        bench.runtime().perform(bench.creation(ordinal=7))


def test_a_replica_recreated_by_another_provider_object_is_observed(bench):
    runtime = bench.runtime()
    first = bench.create()
    assert runtime.observe() == (first,)
    bench.remove(first)
    second = bench.create()
    assert runtime.observe() == (second,)
    assert second.id != first.id


@pytest.mark.parametrize("name", ["../escape", ".hidden", "a/b", ""])
def test_a_name_that_is_no_file_name_reads_nothing(bench, name):
    assert bench.runtime().observe([name]) == ()
    assert bench.runtime().logs(name, 5) == ()


def test_a_removed_replica_frees_its_address(bench):
    fact = bench.stop(bench.run())
    assert fact.state is ContainerState.EXITED
    bench.remove(fact)
    assert bench.create().address == fact.address
