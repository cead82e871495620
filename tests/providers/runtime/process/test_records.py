"""What is kept on the disk, what replicas are given, and what is refused."""

import json
import os
import socket
import stat

import pytest
from pydantic import ValidationError

from manifests.values.desired import Port
from providers.errors import Foreign, Rejected, Unreachable
from providers.facts import ContainerState
from providers.runtime.process.log import LIMIT, tail
from providers.runtime.process.runtime import ProcessSettings
from tests.providers.runtime.process.bench import python

ONE_PORT = (Port("http", 8080),)


def test_state_files_are_private(bench):
    bench.run()
    for path, directories, files in os.walk(bench.state):
        assert all(stat.S_IMODE(os.stat(f"{path}/{name}").st_mode) == 0o700 for name in directories)
        assert all(stat.S_IMODE(os.stat(f"{path}/{name}").st_mode) == 0o600 for name in files)


@pytest.mark.parametrize("name", ["container.json", "generation"])
@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"phase=running\n", b'{"format": 9}\n'])
def test_a_damaged_record_makes_the_node_unreadable_and_says_which_file(bench, name, damage):
    fact = bench.run()
    path = bench.directory(fact) / name
    kept = path.read_bytes()
    path.write_bytes(damage)
    with pytest.raises(Unreachable, match=str(path)):
        bench.runtime().observe()
    path.write_bytes(kept)
    assert bench.fact(fact.name) == fact


def test_a_directory_without_its_record_is_not_taken_for_absent(bench):
    fact = bench.create()
    (bench.directory(fact) / "container.json").unlink()
    with pytest.raises(Unreachable, match=fact.name):
        bench.runtime().observe([fact.name])


def test_what_a_crashed_create_or_remove_left_is_invisible_and_swept_by_the_next_create(bench):
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
    (seen,) = bench.runtime().observe([copy.name])
    assert (seen.mark, seen.foreign_mark) == (None, True)
    with pytest.raises(Foreign):
        bench.runtime().perform(bench.creation(ordinal=7))


def test_an_old_provider_object_sees_a_replica_that_another_one_made_anew(bench):
    runtime = bench.runtime()
    first = bench.create()
    assert runtime.observe() == (first,)
    bench.remove(first)
    second = bench.create()
    assert runtime.observe() == (second,)
    assert second.id != first.id


def test_every_replica_has_an_address_of_its_own_over_all_nodes(bench):
    settings = {"addressRange": "127.90.0.0/28"}
    addresses = []
    for node in ("local", "second"):
        bench.node = node
        for ordinal in range(7):
            action = bench.creation(ordinal=ordinal, ports=ONE_PORT)
            bench.runtime(**settings).perform(action)
        addresses += [fact.address for fact in bench.runtime().observe()]
    assert sorted(addresses, key=lambda text: int(text.split(".")[3])) == [f"127.90.0.{n}" for n in range(1, 15)]
    with pytest.raises(Rejected, match="larger addressRange"):
        bench.runtime(**settings).perform(bench.creation(ordinal=7, ports=ONE_PORT))


def test_an_address_whose_port_is_in_use_is_passed_over(bench):
    first = bench.create(ports=ONE_PORT)
    bench.remove(first)
    with socket.socket() as other:
        other.bind((first.address, 8080))
        other.listen()
        assert bench.create(ports=ONE_PORT).address != first.address


def test_a_port_in_use_on_all_addresses_is_named(bench):
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Unreachable, match=f"0.0.0.0:{port}"):
            bench.create(ports=(Port("http", port),))
    assert bench.runtime().observe() == ()


@pytest.mark.parametrize("value", ["10.0.0.0/8", "127.0.0.1/32", "127.0.0.0/7", "nonsense", "127.64.0.1/10"])
def test_an_address_range_that_cannot_work_is_refused(value):
    with pytest.raises(ValidationError):
        ProcessSettings.model_validate({"addressRange": value})


def test_an_unknown_setting_is_refused():
    with pytest.raises(ValidationError):
        ProcessSettings.model_validate({"adressRange": "127.64.0.0/10"})


@pytest.mark.parametrize("path", ["..", "/etc", "link", "missing", "file"])
def test_a_working_directory_outside_the_tree_is_refused(bench, path):
    (bench.root / "link").symlink_to("/etc")
    (bench.root / "file").touch()
    with pytest.raises(Rejected, match="working directory"):
        bench.create(working_dir=path)
    assert bench.runtime().observe() == ()


def test_a_working_directory_that_becomes_a_way_out_is_refused_at_start(bench):
    (bench.root / "sub").mkdir()
    created = bench.create(working_dir="sub")
    (bench.root / "sub").rmdir()
    (bench.root / "sub").symlink_to("/etc")
    with pytest.raises(Rejected, match="leads out of"):
        bench.start(created)


@pytest.mark.parametrize("name", ["../escape", ".hidden", "a/b", ""])
def test_a_name_that_is_no_file_name_touches_nothing(bench, name):
    assert bench.runtime().observe([name]) == ()
    assert bench.runtime().logs(name, 5) == ()


def test_a_replica_gets_its_own_environment_and_nothing_of_ours(bench, monkeypatch):
    monkeypatch.setenv("RECONCILER_TEST_SECRET", "sentinel")
    monkeypatch.setenv("PYTHONPATH", "/sentinel")
    (bench.root / "sub").mkdir()
    code = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
    env = (("COLOUR", "green"), ("PORT", "1"), ("EMPTY", ""), ("TEXT", "a=b\nc"))
    fact = bench.ended(bench.run(*python(code), env=env, working_dir="sub"))
    (line,) = bench.runtime().logs(fact.name, 10)
    seen, cwd = json.loads(line)
    assert "sentinel" not in line
    assert set(seen) - {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "USER"} == {
        "ADDRESS",
        "COLOUR",
        "EMPTY",
        "PORT",
        "PORT_ADMIN_API",
        "PORT_HTTP",
        "RECONCILER_CONTAINER_ID",
        "TEXT",
    }
    assert (seen["ADDRESS"], seen["PORT"], seen["PORT_ADMIN_API"]) == (fact.address, "8080", "9090")
    assert (seen["TEXT"], seen["EMPTY"], cwd) == ("a=b\nc", "", str(bench.root / "sub"))


def test_a_shim_shows_nothing_of_our_environment_either(bench, monkeypatch):
    monkeypatch.setenv("RECONCILER_TEST_SECRET", "sentinel")
    fact = bench.run(env=(("TOKEN", "sentinel"),))
    for name in ("environ", "cmdline"):
        with open(f"/proc/{bench.shim(fact)}/{name}", "rb") as file:
            assert b"sentinel" not in file.read()


def test_signals_that_we_ignore_are_back_to_normal_in_the_replica(bench):
    fact = bench.ended(bench.run("/bin/grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"))
    # Signals 32 and 33 belong to the C library, which lets no program change whether they are blocked.
    masks = [int(line.split()[1], 16) & ~(0b11 << 31) for line in bench.runtime().logs(fact.name, 2)]
    assert masks == [0, 0]


def test_the_log_keeps_the_newest_part_within_its_limit_and_never_blocks(bench):
    code = "import sys\nfor n in range(60000): sys.stdout.write(f'line {n:06} ' + 'x' * 40 + '\\n')"
    argv = list(python(code))
    argv.remove("-u")
    fact = bench.ended(bench.run(*argv))
    files = [bench.directory(fact) / name for name in ("log", "log.1")]
    assert LIMIT // 2 < sum(path.stat().st_size for path in files) <= LIMIT
    lines = bench.runtime().logs(fact.name, 3)
    assert [line[:11] for line in lines] == ["line 059997", "line 059998", "line 059999"]
    assert fact.exit_code == 0


def test_log_lines_come_from_both_files_oldest_first(tmp_path):
    (tmp_path / "log.1").write_bytes(b"one\ntwo\n")
    (tmp_path / "log").write_bytes(b"three\nfour \xff\n")
    assert tail(str(tmp_path), 3) == ("two", "three", "four \ufffd")
    assert tail(str(tmp_path), 9) == ("one", "two", "three", "four \ufffd")
    assert tail(str(tmp_path), 1) == ("four \ufffd",)
    assert tail(str(tmp_path), 0) == ()


def test_removing_the_state_of_a_stopped_node_frees_everything(bench):
    fact = bench.stop(bench.run())
    assert fact.state is ContainerState.EXITED
    bench.remove(fact)
    assert bench.create().address == fact.address
