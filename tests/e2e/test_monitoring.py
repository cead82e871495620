"""The files in examples/monitoring against a real Prometheus, and the daemon under a service manager's socket."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.metrics.catalogue import METRICS
from tests.e2e.quickstart_world import PATIENCE, ROOT, World, ask, pid_of, until
from tests.free_ports import free_port

MONITORING = ROOT / "examples" / "monitoring"


@pytest.mark.server("promtool")
def test_every_alert_fires_where_it_should_and_only_there():
    done = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yaml"], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_does_not():
    alerts = set(re.findall(r"alert: (\w+)", (MONITORING / "alerts.yaml").read_text()))
    cases = re.findall(r"name: '(\w+) (fires|is silent)", (MONITORING / "alerts_test.yaml").read_text())
    assert {(alert, how) for alert in alerts for how in ("fires", "is silent")} == set(cases)


@pytest.mark.server("promtool")
@pytest.mark.parametrize(
    ("before", "after"), [("> 3600", "> 36000"), ("== 0", "== 5"), ("* 60 > 10", "* 60 > 5"), ("> 0.5", "> 0.4")]
)
def test_another_limit_fails_the_cases(before, after, tmp_path):
    for name in ("alerts.yaml", "alerts_test.yaml"):
        shutil.copy(MONITORING / name, tmp_path / name)
    text = (tmp_path / "alerts.yaml").read_text()
    assert before in text
    (tmp_path / "alerts.yaml").write_text(text.replace(before, after))
    done = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yaml"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 1


@pytest.mark.server("promtool")
def test_the_example_configuration_is_valid():
    done = subprocess.run(
        ["promtool", "check", "config", "prometheus.yaml"], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def queries() -> list[str]:
    """Every query of the dashboard, as Grafana would send it."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [target["expr"].replace("$job", "reconciler").replace("$__rate_interval", "1m") for target in targets]


def test_the_dashboard_asks_only_for_metrics_that_exist():
    names = {metric.name for metric in METRICS}
    asked = set(re.findall(r"reconciler_\w+", " ".join(queries())))
    assert {re.sub("_(bucket|count|sum)$", "", name) if name not in names else name for name in asked} <= names
    assert len(queries()) > 35


@contextmanager
def prometheus(target: str, directory: Path):
    """A Prometheus that scrapes the target every second. The value is its address."""
    port = free_port()
    (directory / "prometheus.yaml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{MONITORING / 'alerts.yaml'}']\n"
        f"scrape_configs: [{{job_name: reconciler, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    command = [
        "prometheus",
        f"--config.file={directory / 'prometheus.yaml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with (directory / "log").open("w") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(PATIENCE)


def get(url: str) -> dict:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return {} if error.code == 503 else json.load(error)  # it is starting
    except OSError:
        return {}


def asked(server: str, query: str) -> list[float]:
    """The values that a query answers with now, without those that are no number."""
    answer = get(f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}")
    assert answer.get("status") in (None, "success"), (query, answer)
    values = [float(row["value"][1]) for row in answer.get("data", {}).get("result", ())]
    return [value for value in values if value == value]


def scraped(world: World) -> int:
    """Give the Instance of a world a metrics listener. Returns its port."""
    port, file = free_port(), world.manifests / "instance.yaml"
    text = file.read_text().replace(
        f"  id: {world.id}\n", f"  id: {world.id}\n  metrics: {{listen: 127.0.0.1:{port}}}\n", 1
    )
    file.write_text(text)
    return port


def settled(world: World) -> bool:
    file = world.state / "pools" / "web.json"
    return file.exists() and list(world.pool().values()) == [100] * 3


@pytest.mark.server("prometheus")
def test_every_query_of_the_dashboard_answers_on_a_real_scrape(world, tmp_path):
    port = scraped(world)
    daemon = world.start("--watch")
    try:
        until(lambda: settled(world))
        with prometheus(f"127.0.0.1:{port}", tmp_path) as server:
            until(lambda: bool(asked(server, "reconciler_build_info")))
            # An incident, so that there are restarts, changed verdicts, exits and a hold.
            address_of = sorted(world.pool())[0]
            ask(address_of, "/break", "POST")
            until(lambda: bool(asked(server, "sum(reconciler_restarts_total) > 0")))
            until(lambda: settled(world))
            os.kill(pid_of(sorted(world.pool())[2]), signal.SIGKILL)
            until(lambda: bool(asked(server, "sum(reconciler_exits_total) > 0")))
            until(lambda: settled(world))
            assert world.run("suspend", "workload/web", "--reason", "a test")[0] == 0
            ask(sorted(world.pool())[1], "/break", "POST")
            until(lambda: bool(asked(server, 'reconciler_holds{rule="Suspended"} > 0')))
            left = set(queries())

            def answered() -> bool:
                left.difference_update([query for query in left if asked(server, query)])
                return not left

            try:
                until(answered)
            except AssertionError:
                raise AssertionError(f"no data for {sorted(left)}") from None
            # No alert of a healthy scrape is about the scrape itself.
            firing = asked(server, 'ALERTS{alertname=~"ReconcilerAbsent|ReconcilerNotTicking",alertstate="firing"}')
            assert firing == []
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=20) as answer:
            assert answer.read() == b"ok\n"
    finally:
        daemon.terminate()
        _, err = daemon.communicate(timeout=PATIENCE)
        assert "Traceback" not in err, err


def test_a_daemon_reports_to_its_service_manager(world, tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(PATIENCE)
        world.env["NOTIFY_SOCKET"] = path
        daemon = world.start("--watch")
        lines: list[str] = []
        try:
            while "READY=1" not in lines:
                lines += manager.recv(4096).decode().splitlines()
            assert "WATCHDOG=1" in lines
            until(lambda: settled(world))
            environments = [
                Path(f"/proc/{pid}/environ").read_bytes() for pid in world.processes() - {daemon.pid} if pid
            ]
            assert not any(b"NOTIFY_SOCKET" in environment for environment in environments)
        finally:
            daemon.terminate()
            daemon.communicate(timeout=PATIENCE)
    assert daemon.returncode == 143
