"""Environment, working directory and program of a replica and of its exec probes."""

import json
import shutil
import subprocess

import pytest

from providers.errors import Gone, Rejected
from providers.facts import ContainerState
from tests.providers.runtime.process.bench import python


@pytest.mark.parametrize("path", ["..", "/etc", "link", "missing", "file"])
def test_a_working_directory_outside_the_tree_is_refused(bench, path):
    (bench.root / "link").symlink_to("/etc")
    (bench.root / "file").touch()
    with pytest.raises(Rejected, match="working directory"):
        bench.create(working_dir=path)
    assert bench.runtime().observe() == ()


def test_a_working_directory_that_leads_out_later_is_refused_at_start(bench):
    (bench.root / "sub").mkdir()
    created = bench.create(working_dir="sub")
    (bench.root / "sub").rmdir()
    (bench.root / "sub").symlink_to("/etc")
    with pytest.raises(Rejected, match="is outside"):
        bench.start(created)


def test_a_replica_without_a_directory_starts_while_the_tree_is_missing(bench):
    shutil.rmtree(bench.root)
    fact = bench.ended(bench.run(*python("import os; print(os.getcwd(), os.listdir('.'))")))
    (line,) = bench.runtime().logs(fact.name, 10)
    assert line.endswith("/process/.workdir []")


def test_a_declared_directory_of_a_missing_tree_is_refused(bench):
    (bench.root / "sub").mkdir()
    created = bench.create(working_dir="sub")
    shutil.rmtree(bench.root)
    with pytest.raises(Rejected, match="cannot be used"):
        bench.start(created)


def test_a_replica_gets_its_own_environment_and_not_ours(bench, monkeypatch):
    monkeypatch.setenv("RECONCILER_TEST_SECRET", "sentinel")
    monkeypatch.setenv("PYTHONPATH", "/sentinel")
    (bench.root / "sub").mkdir()
    code = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
    env = (("COLOUR", "green"), ("PORT", "1"), ("EMPTY", ""), ("TEXT", "a=b\nc"))
    fact = bench.ended(bench.run(*python(code), env=env, working_dir="sub"))
    (line,) = bench.runtime().logs(fact.name, 10)
    variables, cwd = json.loads(line)
    assert "sentinel" not in line
    assert set(variables) - {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "USER"} == {
        "ADDRESS",
        "COLOUR",
        "EMPTY",
        "PORT",
        "PORT_ADMIN_API",
        "PORT_HTTP",
        "RECONCILER_CONTAINER_ID",
        "TEXT",
    }
    assert (variables["ADDRESS"], variables["PORT"], variables["PORT_ADMIN_API"]) == (fact.address, "8080", "9090")
    assert (variables["TEXT"], variables["EMPTY"], cwd) == ("a=b\nc", "", str(bench.root / "sub"))


def test_a_shim_has_nothing_of_our_environment(bench, monkeypatch):
    monkeypatch.setenv("RECONCILER_TEST_SECRET", "sentinel")
    fact = bench.run(env=(("TOKEN", "sentinel"),))
    for name in ("environ", "cmdline"):
        with open(f"/proc/{bench.shim(fact)}/{name}", "rb") as file:
            assert b"sentinel" not in file.read()


def test_signals_that_we_ignore_have_their_default_in_the_replica(bench):
    fact = bench.ended(bench.run("/bin/grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"))
    # Signals 32 and 33 belong to the C library, which lets no program change whether they are blocked.
    masks = [int(line.split()[1], 16) & ~(0b11 << 31) for line in bench.runtime().logs(fact.name, 2)]
    assert masks == [0, 0]


def test_an_exec_probe_has_the_replicas_environment_and_directory(bench):
    running = bench.run(env=(("COLOUR", "green"),))
    target = bench.runtime().exec_target(running.name, ("sh", "-c", "echo $COLOUR $PORT; pwd"))
    done = subprocess.run(target.argv, env=dict(target.env), cwd=target.cwd, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["green", "8080", str(bench.root)]
    with pytest.raises(Rejected):
        bench.runtime().exec_target(running.name, ())
    with pytest.raises(Gone):
        bench.runtime().exec_target(bench.name(9), ("true",))


def test_a_missing_program_is_refused_by_name(bench):
    created = bench.create(("no-such-program", "x"))
    with pytest.raises(Rejected, match="no executable 'no-such-program' on PATH"):
        bench.start(created)
    assert bench.fact(created.name) == created


def test_a_program_that_cannot_be_executed_is_refused_with_the_output(bench):
    program = bench.root / "serve"
    program.write_text("#!/bin/sh\necho first run\n")
    program.chmod(0o755)
    ended = bench.ended(bench.run("./serve"))
    program.write_bytes(b"\x7fELF but not really")
    with pytest.raises(Rejected, match="Exec format error; last output: first run"):
        bench.start(ended)
    assert bench.fact(ended.name) == ended


def test_a_program_without_its_interpreter_leaves_no_generation(bench):
    program = bench.root / "serve"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    created = bench.create(("./serve",))
    with pytest.raises(Rejected, match="exec: No such file or directory"):
        bench.start(created)
    assert bench.fact(created.name) == created
    program.write_text("#!/bin/sh\nexec /bin/sleep 1000\n")
    assert bench.start(created).state is ContainerState.RUNNING


@pytest.mark.parametrize("argv", [(), ("",), ("a", "b\0c")])
def test_a_command_that_no_kernel_accepts_is_refused_at_create(bench, argv):
    with pytest.raises(Rejected):
        bench.runtime().perform(bench.creation(argv))
    assert bench.runtime().observe() == ()
