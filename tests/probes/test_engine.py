"""Both processes together: changed targets, a dead child, and stalls."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from providers.facts import ProbeValue
from reconciler.probes.engine import ProbeEngine
from reconciler.probes.messages import HTTP, INVALID
from tests.probes.helpers import MS, PATIENCE, Watch, steady, target
from tests.probes.servers import Server, answers, never_answers, refused_port

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(answers(OK))
    yield made
    made.close()


def exists(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def await_true(condition: Callable[[], bool], limit: float = PATIENCE) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_verdict_is_unknown_until_its_threshold_is_reached(watch: Watch) -> None:
    before = steady()
    port = refused_port()
    watch.engine.set_targets([target("once", port=port), target("often", port=port, period=20 * MS)])
    once = watch.of("once")
    assert (once.value, once.last, once.streak, once.threshold) == (ProbeValue.UNKNOWN, ProbeValue.FAIL, 1, 3)
    often = watch.until(lambda facts: "often" in facts and facts["often"].streak >= 3)["often"]
    assert often.value is ProbeValue.FAIL
    assert before < often.since <= often.last_at < steady()
    assert often.valid_for >= 3 * 20 * MS


def test_unchanged_targets_keep_their_streaks(watch: Watch, server: Server) -> None:
    wanted = target("a", port=server.port, period=20 * MS)
    watch.engine.set_targets([wanted])
    watch.of("a")
    watch.engine.set_targets([wanted._replace(started=wanted.started + 5)])
    fact = watch.until(lambda facts: facts["a"].streak >= 4)["a"]
    assert fact.streak >= 4


def test_a_changed_probe_is_a_new_target_with_a_new_streak(watch: Watch, server: Server) -> None:
    watch.engine.set_targets([target("a", port=server.port, period=20 * MS)])
    watch.until(lambda facts: "a" in facts and facts["a"].streak >= 3)
    watch.facts.clear()
    watch.engine.set_targets([target("a", port=server.port, period=5000 * MS, path="/other", success_threshold=9)])
    fact = watch.of("a")
    assert (fact.value, fact.streak, fact.threshold) == (ProbeValue.UNKNOWN, 1, 9)


def test_a_new_generation_starts_with_an_empty_streak(watch: Watch, server: Server) -> None:
    first = target("a", port=server.port, success_threshold=5)
    watch.engine.set_targets([first])
    watch.until(lambda facts: "a" in facts and facts["a"].streak >= 2)
    watch.facts.clear()
    watch.engine.set_targets([first._replace(generation=first.generation._replace(started_at=2))])
    assert watch.of("a").streak == 1


def test_results_of_a_removed_target_are_not_reported(watch: Watch, server: Server) -> None:
    watch.engine.set_targets(
        [target("a", port=server.port, period=5 * MS), target("b", port=server.port, period=5 * MS)]
    )
    watch.until(lambda facts: len(facts) == 2)
    watch.engine.set_targets([target("b", port=server.port, period=5 * MS)])
    watch.facts.clear()
    watch.until(lambda facts: "b" in facts and facts["b"].streak > 3)
    assert "a" not in watch.facts


def test_the_initial_delay_counts_from_the_start_of_the_generation(watch: Watch, server: Server) -> None:
    started = steady()
    watch.engine.set_targets([target("a", port=server.port, initial_delay=150 * MS)._replace(started=started)])
    assert watch.of("a").last_at >= started + 150 * MS


def test_thousands_of_targets_are_sent_in_pieces(watch: Watch, server: Server) -> None:
    watch.engine.set_targets([target(f"{n}", port=0) for n in range(3000)])
    facts = watch.until(lambda facts: len(facts) == 3000)
    assert {fact.value for fact in facts.values()} == {ProbeValue.CANNOT_RUN}


def test_a_probe_never_overlaps_itself_and_missed_instants_collapse() -> None:
    server = Server(never_answers)
    engine = ProbeEngine(phase=False)
    try:
        watch = Watch(engine)
        engine.set_targets([target("a", port=server.port, period=10 * MS, timeout=100 * MS, failure_threshold=2)])
        begun = watch.of("a").last_at
        fact = watch.until(lambda facts: facts["a"].streak == 3)["a"]
        assert fact.last_at - begun >= 2 * 100 * MS
    finally:
        engine.close()
        server.close()


def test_the_engine_sends_heartbeats_without_targets(engine: ProbeEngine) -> None:
    assert engine.silent() == ""
    deadline = time.monotonic() + PATIENCE
    while engine.stats is None:
        assert time.monotonic() < deadline
        select.select([engine], [], [], 0.1)
        engine.read()
    assert engine.silent() == ""


def test_results_and_durations_are_counted_by_kind(watch: Watch, server: Server) -> None:
    watch.engine.set_targets([target("a", port=server.port), target("b", port=0)])
    watch.until(lambda facts: len(facts) == 2)
    await_true(lambda: (watch.engine.read(), watch.engine.stats)[1] is not None and len(watch.engine.stats.kinds) == 2)
    assert watch.engine.stats is not None
    kinds = {kind: (results, durations, total) for kind, results, durations, total in watch.engine.stats.kinds}
    results, durations, total = kinds[HTTP]
    assert results[0] > 0
    assert results[1:] == (0, 0, 0)
    assert sum(durations) == sum(results)
    assert 0 < total < 60 * SECOND
    assert kinds[INVALID][0][3] > 0


def test_a_killed_child_is_noticed_and_can_be_replaced(watch: Watch, server: Server) -> None:
    engine = watch.engine
    engine.set_targets([target("a", port=server.port)])
    watch.of("a")
    os.kill(engine.pid, signal.SIGKILL)
    await_true(lambda: not engine.alive())
    assert engine.died == "the probe engine died: killed by SIGKILL"
    assert engine.silent() == engine.died
    assert engine.read() == {}
    engine.set_targets([target("b", port=server.port)])
    watch.facts.clear()
    engine.restart()
    assert watch.of("b").value is ProbeValue.PASS
    assert engine.alive()


def test_each_probe_opens_a_new_connection_despite_keep_alive() -> None:
    """The state of an earlier connection can never fail a later probe."""

    def keeps(conn: socket.socket, stop: threading.Event) -> None:
        while not stop.is_set() and conn.recv(65536):
            conn.sendall(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok")

    server = Server(keeps)
    engine = ProbeEngine(phase=False)
    try:
        engine.set_targets([target("a", port=server.port, period=100 * MS)])
        facts = Watch(engine).until(lambda facts: "a" in facts and facts["a"].streak >= 3)
        assert facts["a"].value is ProbeValue.PASS
        assert server.accepted >= 3
    finally:
        engine.close()
        server.close()


def test_a_stopped_child_makes_running_probes_void() -> None:
    """The probe that ran while the child was stopped is unknown: the server may have been able to answer."""
    server = Server(never_answers)
    engine = ProbeEngine(phase=False)
    try:
        watch = Watch(engine)
        watch.skip_void = False
        engine.set_targets([target("a", port=server.port, timeout=1500 * MS, failure_threshold=1)])
        await_true(lambda: server.accepted > 0)
        os.kill(engine.pid, signal.SIGSTOP)
        stopped = steady()
        await_true(lambda: steady() - stopped > 1700 * MS)
        os.kill(engine.pid, signal.SIGCONT)
        fact = watch.of("a")
        assert (fact.value, fact.streak) == (ProbeValue.UNKNOWN, 0)
        assert fact.detail.startswith("void: the probe engine stalled for ")
    finally:
        engine.close()
        server.close()


def test_closing_is_quick_even_when_the_child_is_stopped(engine: ProbeEngine) -> None:
    os.kill(engine.pid, signal.SIGSTOP)
    begun = time.monotonic()
    engine.close()
    assert time.monotonic() - begun < 10
    assert not exists(engine.pid)
    assert not engine.alive()
    engine.close()


def test_a_slow_parent_gets_only_the_newest_state_of_each_target(engine: ProbeEngine) -> None:
    """The child goes on probing and keeps no unread history."""
    engine.set_targets([target(f"{n}", port=0, period=2 * MS, timeout=200 * MS) for n in range(400)])
    watch = Watch(engine)
    watch.until(lambda facts: len(facts) == 400)
    await_true(lambda: steady() - watch.facts["0"].last_at > 200 * MS)
    size = resident(engine.pid)
    await_true(lambda: steady() - watch.facts["0"].last_at > 400 * MS)
    assert resident(engine.pid) - size < 2048
    unread = steady()
    watch.until(lambda facts: min(fact.last_at for fact in facts.values()) > unread)


def resident(pid: int) -> int:
    """Resident memory in KiB."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0])


def test_the_child_ends_when_its_parent_is_killed() -> None:
    code = "import time; from reconciler.probes.engine import ProbeEngine as E; e = E(); print(e.pid, flush=True); time.sleep(60)"
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert exists(child)
        parent.kill()
    await_true(lambda: not exists(child))


def test_the_child_survives_the_signals_of_a_terminal(engine: ProbeEngine) -> None:
    watch = Watch(engine)
    engine.set_targets([target("a", port=0)])
    watch.of("a")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(engine.pid, number)
    watch.facts.clear()
    engine.set_targets([target("b", port=0)])
    watch.of("b")
    assert engine.alive()


def test_the_child_loads_nothing_heavy() -> None:
    code = "import sys, reconciler.probes.child; print(*sys.modules)"
    root = str(Path(__file__).resolve().parents[2])
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True
    ).stdout.split()
    assert not {
        "pydantic",
        "asyncio",
        "click",
        "ssl",
        "subprocess",
        "ctypes",
        "providers.facts",
        "manifests.values.desired",
    } & set(loaded)
