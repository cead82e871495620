"""Exec probes: exits, time-outs, and no process left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from providers.facts import ProbeValue
from reconciler.probes import limits
from reconciler.probes.tree import MARK, mark_of
from tests.probes.helpers import MS, PATIENCE, Watch, command, target
from tests.probes.servers import answers, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def marked(word: str) -> list[int]:
    """Running processes whose environment contains this word."""
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if word.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    pids.append(int(name))
            except OSError:
                continue
    return pids


def gone(word: str, limit: float = PATIENCE) -> bool:
    """Whether no such process is left, after waiting for the kernel to remove them."""
    deadline = time.monotonic() + limit
    while marked(word):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.mark.parametrize(
    ("argv", "value", "detail"),
    [
        (("true",), ProbeValue.PASS, "exit 0"),
        (("false",), ProbeValue.FAIL, "exit 1"),
        (("sh", "-c", "echo first; echo second; exit 7"), ProbeValue.FAIL, "exit 7: first"),
        (("sh", "-c", "echo wrong >&2; exit 2"), ProbeValue.FAIL, "exit 2: wrong"),
        (("sh", "-c", "kill -9 $$"), ProbeValue.FAIL, "killed by SIGKILL"),
        (
            ("sh", "-c", "echo no engine; kill -USR2 $$"),
            ProbeValue.UNKNOWN,
            "the runtime did not run the command: no engine",
        ),
        (
            ("sh", "-c", "echo 'OCI runtime exec failed: no such file: unknown'; exit 127"),
            ProbeValue.CANNOT_RUN,
            "the runtime cannot start the command: OCI runtime exec failed: no such file: unknown",
        ),
        (("sh", "-c", "echo 'x: not found'; exit 127"), ProbeValue.FAIL, "exit 127: x: not found"),
        (("sh", "-c", "cat; echo $A; exit 1"), ProbeValue.FAIL, "exit 1: from the target"),
        (("sh", "-c", "pwd; exit 1"), ProbeValue.FAIL, "exit 1: /usr"),
        (("sh", "-c", "head -c 300000 /dev/zero"), ProbeValue.PASS, "exit 0"),
        (("no-such-program",), ProbeValue.CANNOT_RUN, "cannot run no-such-program: no such file or directory"),
        (("/etc/passwd",), ProbeValue.CANNOT_RUN, "cannot run /etc/passwd: permission denied"),
        (("/usr",), ProbeValue.CANNOT_RUN, "cannot run /usr: permission denied"),
    ],
)
def test_the_exit_of_a_command_is_its_result(
    watch: Watch, argv: tuple[str, ...], value: ProbeValue, detail: str
) -> None:
    watch.engine.set_targets(
        [command("a", *argv, env=(("A", "from the target"),), cwd="/usr", failure_threshold=1, timeout=30_000 * MS)]
    )
    fact = watch.of("a")
    assert (fact.value, fact.detail) == (value, detail)


def test_a_command_in_a_missing_directory_cannot_run(watch: Watch) -> None:
    watch.engine.set_targets([command("a", "true", cwd="/no/such/place")])
    assert watch.of("a").value is ProbeValue.CANNOT_RUN


def test_a_command_sees_only_the_environment_of_its_target(watch: Watch) -> None:
    watch.engine.set_targets(
        [
            command(
                "a",
                "sh",
                "-c",
                "env | grep -v -e ^PWD -e ^_ -e ^SHLVL -e ^OLDPWD | cut -d= -f1 | sort | tr '\\n' ' '; exit 1",
            )
        ]
    )
    assert watch.of("a").detail == f"exit 1: PATH {MARK}"


def test_a_time_out_fails_and_kills_the_whole_process_tree(watch: Watch, tmp_path: Path) -> None:
    """Including grandchildren in other sessions whose parents have ended."""
    word = f"tree-{os.getpid()}"
    script = (
        "setsid sh -c 'sleep 60 & sleep 60' & (setsid setsid sleep 60 &) ; sh -c 'sleep 60; true' & echo begun; wait"
    )
    # The next run comes long after this one, so that its processes are not taken for leftovers of this one.
    probe = {"period": 4000 * MS, "timeout": 1500 * MS, "failure_threshold": 1}
    watch.engine.set_targets([command("slow", "sh", "-c", script, env=(("WORD", word),), **probe)])
    fact = watch.of("slow")
    assert (fact.value, fact.detail) == (ProbeValue.FAIL, "timed out after 1.5s: begun")
    assert gone(word)


def test_processes_left_by_a_successful_command_are_killed(watch: Watch) -> None:
    word = f"left-{os.getpid()}"
    script = "setsid sleep 60 & sleep 60 & (setsid sh -c 'sleep 60; true' &); exit 0"
    watch.engine.set_targets([command("a", "sh", "-c", script, env=(("WORD", word),), period=4000 * MS)])
    assert watch.of("a").value is ProbeValue.PASS
    assert gone(word)


def test_a_command_of_a_removed_target_is_killed(watch: Watch) -> None:
    word = f"removed-{os.getpid()}"
    watch.engine.set_targets([command("a", "sleep", "60", env=(("WORD", word),), timeout=60_000 * MS)])
    deadline = time.monotonic() + PATIENCE
    while not marked(word):
        assert time.monotonic() < deadline
        watch.engine.read()
        time.sleep(0.005)
    watch.engine.set_targets([])
    assert gone(word)


def test_closing_the_engine_kills_running_commands(watch: Watch) -> None:
    word = f"closed-{os.getpid()}"
    watch.engine.set_targets(
        [command("a", "sh", "-c", "setsid sleep 60 & sleep 60", env=(("WORD", word),), timeout=60_000 * MS)]
    )
    deadline = time.monotonic() + PATIENCE
    while len(marked(word)) < 3:
        assert time.monotonic() < deadline
        watch.engine.read()
        time.sleep(0.005)
    watch.engine.close()
    assert gone(word)


def test_the_parent_kills_the_commands_of_a_killed_engine(watch: Watch) -> None:
    word = f"orphan-{os.getpid()}"
    watch.engine.set_targets([command("a", "sleep", "60", env=(("WORD", word),), timeout=60_000 * MS)])
    deadline = time.monotonic() + PATIENCE
    while not marked(word):
        assert time.monotonic() < deadline
        watch.engine.read()
        time.sleep(0.005)
    assert mark_of(marked(word)[0]).startswith(f"{watch.engine.pid}:")
    os.kill(watch.engine.pid, 9)
    while watch.engine.alive():
        time.sleep(0.005)
    assert gone(word)


def test_slow_commands_delay_no_network_probes_and_few_commands(watch: Watch) -> None:
    with serving(answers(OK)) as (server,):
        slow = [command(f"slow-{n}", "sleep", "600", timeout=1000 * MS, failure_threshold=1) for n in range(12)]
        quick = [target("web", port=server.port), command("after", "true")]
        watch.engine.set_targets([*slow, *quick])
        facts = dict(watch.until(lambda facts: "web" in facts))
        assert not any(name.startswith("slow") for name in facts), "the network probe waited for no command"
        facts = dict(watch.until(lambda facts: len(facts) == 14))
    assert all(facts[f"slow-{n}"].value is ProbeValue.FAIL for n in range(12))
    assert facts["after"].value is ProbeValue.PASS


def test_the_engine_keeps_no_zombies(watch: Watch) -> None:
    watch.engine.set_targets([command(f"{n}", "sh", "-c", "sleep 60 & exit 0") for n in range(10)])
    watch.until(lambda facts: len(facts) == 10)
    children = Path(f"/proc/{watch.engine.pid}/task/{watch.engine.pid}/children")
    deadline = time.monotonic() + PATIENCE
    while children.read_text().split():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_kernel_limits_a_command_and_what_it_starts(watch: Watch) -> None:
    """`ulimit` of a child of the command: core, processor time, private memory and file size in KiB or blocks, files."""
    script = "sh -c 'ulimit -c; ulimit -t; ulimit -d; ulimit -f; ulimit -Sn; ulimit -Hn' | tr '\\n' ' '; exit 1"
    watch.engine.set_targets([command("a", "sh", "-c", f"sleep 0.2; {script}", timeout=3000 * MS)])
    values = [int(word) for word in watch.of("a").detail.removeprefix("exit 1: ").split()]
    assert values == [
        0,
        3 * (os.cpu_count() or 1) + limits.CPU_RESERVE,
        limits.memory() // 1024,
        limits.FILE_OCTETS // 512,
        *limits.DESCRIPTORS,
    ]


def test_a_command_that_takes_all_memory_fails_and_not_the_host(watch: Watch) -> None:
    script = (
        "import os; os.write(1, b'begun\\n'); x = bytearray(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'))"
    )
    watch.engine.set_targets(
        [command("a", sys.executable, "-c", f"import time; time.sleep(0.2); {script}", failure_threshold=1)]
    )
    assert watch.of("a").value is ProbeValue.FAIL


def test_a_command_that_writes_without_end_is_stopped_at_the_limit(watch: Watch, tmp_path: Path) -> None:
    big = tmp_path / "big"
    script = f"sleep 0.2; dd if=/dev/zero of={big} bs=1 seek={limits.FILE_OCTETS} count=1 2>&1"
    watch.engine.set_targets([command("a", "sh", "-c", script, failure_threshold=1)])
    assert watch.of("a").value is ProbeValue.FAIL
    assert not big.exists() or big.stat().st_size <= limits.FILE_OCTETS


ELSEWHERE = "import sys; from reconciler.probes import tree; print(tree.kill_leftovers())"


def test_an_engine_in_another_time_namespace_leaves_others_commands_alone(watch: Watch) -> None:
    if os.geteuid() or subprocess.run(["unshare", "--time", "true"], check=False).returncode:
        pytest.skip("a time namespace of its own needs root")
    watch.engine.set_targets([command("slow", "sleep", "60", period=4000 * MS, timeout=3000 * MS, failure_threshold=1)])
    deadline = time.monotonic() + PATIENCE
    while not any(mark_of(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        assert time.monotonic() < deadline
    words = ["unshare", "--time", "--boottime=86400", "--fork", sys.executable, "-c", ELSEWHERE]
    subprocess.run(words, check=True, timeout=60, stdout=subprocess.DEVNULL)
    assert watch.of("slow").detail.startswith("timed out")
