"""The quickstart as a user runs it: real command, real processes, real files, in a state directory of its own."""

import json
import os
import signal

from tests.e2e.quickstart_world import PATIENCE, ask, pid_of, until


def test_the_quickstart_converges_heals_and_is_destroyed(world):
    code, out = world.run("--once")
    assert code == 0, out
    assert out.splitlines()[-1] == "result: converged (exit 0)"
    before = world.replicas()
    addresses = {replica["address"] for replica in before.values()}
    assert len(addresses) == 3
    assert world.pool() == dict.fromkeys(addresses, 100)
    assert world.records() == addresses
    pids = {name: pid_of(replica["address"]) for name, replica in before.items()}

    # Again: nothing to do, and nothing was done.
    code, out = world.run("--once")
    assert (code, out.splitlines()[0]) == (0, "nothing to do")
    assert {name: pid_of(replica["address"]) for name, replica in before.items()} == pids
    code, out = world.run("plan", "--detailed-exitcode")
    assert code == 0, out

    # One replica breaks, another is killed from outside.
    broken, killed, untouched = "workload/web/0", "workload/web/1", "workload/web/2"
    ask(before[broken]["address"], "/break", "POST")
    os.kill(pids[killed], signal.SIGKILL)
    code, out = world.run("--once", "--timeout", "40s")
    assert code == 0, out
    after = world.replicas()
    assert {name: one["state"] for name, one in after.items()} == dict.fromkeys(before, "Ready")
    assert pid_of(after[broken]["address"]) != pids[broken]
    assert pid_of(after[killed]["address"]) != pids[killed]
    assert pid_of(after[untouched]["address"]) == pids[untouched]
    assert world.pool() == {replica["address"]: 100 for replica in after.values()}
    assert world.records() == {replica["address"] for replica in after.values()}
    stop = out.index(f": stop {before[broken]['container']}")
    assert out.index(f"weight 100 -> 0 {before[broken]['address']}") < stop
    assert out.count(f": stop {before[broken]['container']}") == 1
    assert f": stop {before[killed]['container']}" not in out

    code, out = world.run("destroy", "--yes", "-o", "json")
    assert (code, json.loads(out)["exit_code"]) == (0, 0)
    assert {step["outcome"] for step in json.loads(out)["done"]} == {"done"}
    assert world.pool() == {}
    assert world.records() == set()
    assert world.processes() == set()
    code, out = world.run("status", "-o", "json")
    assert (code, json.loads(out)["status"]["workloads"]) == (0, []), out


def test_a_daemon_heals_obeys_commands_and_leaves_everything_running(world):
    daemon = world.start("--watch")
    try:
        until(lambda: (world.state / "pools" / "web.json").exists() and list(world.pool().values()) == [100] * 3)
        first = world.replicas()
        victim = first["workload/web/1"]["address"]
        old = pid_of(victim)

        second = world.start("--once")  # it waits for the lock for a while
        os.kill(old, signal.SIGKILL)

        def healed() -> bool:
            try:
                return pid_of(victim) != old and world.pool()[victim] == 100
            except OSError:
                return False

        until(healed)

        code, out = world.run("suspend", "workload/web", "--reason", "looking into it", "-o", "json")
        assert (code, json.loads(out)["exit_code"]) == (0, 0)
        until(lambda: world.status()["workloads"][0]["condition"] == "Suspended")

        _, err = second.communicate(timeout=PATIENCE)
        assert second.returncode == 5, err
        assert "reconcile --watch" in err

        daemon.send_signal(signal.SIGTERM)
        _, err = daemon.communicate(timeout=PATIENCE)
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.communicate()
    assert daemon.returncode == 143
    assert "result: terminated (exit 143)" in err
    assert pid_of(victim) != old

    code, out = world.run("destroy", "--yes")
    assert code == 0, out
    assert world.processes() == set()


def test_a_plan_beside_a_daemon_shows_its_holds_and_what_changes(world):
    daemon = world.start("--watch")
    try:
        until(lambda: (world.state / "pools" / "web.json").exists() and list(world.pool().values()) == [100] * 3)
        code, out = world.run("suspend", "workload/web", "--reason", "looking into it")
        assert code == 0, out
        ask(world.replicas()["workload/web/0"]["address"], "/break", "POST")

        def planned() -> dict:
            code, out = world.run("plan", "-o", "json")
            assert code == 0, out
            return json.loads(out)

        def restarts(plan: dict) -> list[str]:
            return [hold["rule"] for hold in plan["holds"] if hold["action"].startswith("restart ")]

        until(lambda: restarts(planned()) == ["Suspended"])
        plan = planned()
        assert plan["beside"]["verdicts"] >= 3
        assert plan["beside"]["age_seconds"] < PATIENCE

        # The verdicts count for another tree as well, and the plan names what differs in it.
        for file in world.manifests.glob("*.yaml"):
            file.write_text(file.read_text().replace("[python3, service.py]", "[python3, -u, service.py]"))
        until(lambda: planned()["changed"])
        plan = planned()
        assert [field["field"] for field in plan["changed"][0]["fields"]] == ["containers[web].command"]
        assert plan["beside"]["verdicts"] >= 3

        # A daemon that does not answer changes nothing: the plan looks by itself.
        daemon.send_signal(signal.SIGSTOP)
        assert planned()["beside"] is None
    finally:
        daemon.send_signal(signal.SIGCONT)
        daemon.terminate()
        daemon.communicate(timeout=PATIENCE)
    code, out = world.run("destroy", "--yes")
    assert code == 0, out
