"""Deployments with the real program: a request becomes a commit, and the commit comes into force without waiting for the poll."""

import json
import os
import signal
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.e2e.test_git_source import HOST, PATIENCE, Host
from tests.free_ports import free_port

ENGINE = """\
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: engine}
spec: {type: docker, settings: {socket: /nonexistent/docker.sock}}
"""
SHOP = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: shop}
spec:
  nodes: [engine]
  suspend: true
  template:
    spec:
      containers:
        - name: shop
          image: registry.test:5000/shop:1.4
"""
TOKEN = "sentinel-deploys-4f1c90"


def post(port: int, image: str) -> tuple[int, dict]:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": "build-1"}
    connection.request("POST", "/v1/deployments", json.dumps({"image": image, "reason": "build 1"}), headers)
    reply = connection.getresponse()
    answer = json.loads(reply.read())
    connection.close()
    return reply.status, answer


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    for pid in made.pids():  # the engine of its manifests does not exist, so `destroy` would not end
        os.kill(pid, signal.SIGKILL)


def test_a_deployment_is_a_commit_that_comes_into_force_at_once(host: Host):
    port = free_port()
    host.upstream.commit({"set/shop.yaml": SHOP})
    token = host.local.parent / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    # The next poll by itself would be an hour away.
    spec = (
        f"id: {host.id}, allowProcess: [web], source: {{url: '{host.upstream.url}//set?ref=main', interval: 1h, "
        f"writeBack: {{mode: commit}}}}, push: {{socket: false, tcp: {{listen: '127.0.0.1:{port}'}}}}, "
        f"deployments: [{{workload: shop, token: {{file: '{token}'}}}}]"
    )
    instance = f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: this}}\nspec: {{{spec}}}\n"
    (host.local / "host.yaml").write_text(f"{instance}---\n{HOST}{ENGINE}")
    with host.daemon() as process:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                status, answer = post(port, "registry.test:5000/shop:1.5")
                if status != 401:
                    break
            except OSError:
                assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert (status, answer["state"], answer["outcome"]) == (202, "written", "commit"), answer
        while host.status()["manifests"].get("in_force", {}).get("commit") != answer["commit"]:
            assert time.monotonic() < deadline, host.status()["manifests"]
            time.sleep(0.1)
        assert post(port, "registry.test:5000/shop:1.5")[1]["id"] == answer["id"]
    code, out = host.here("events", "-o", "json")
    assert code == 0
    assert out.count('"actor": "token of workload/shop"') == 2, out
    assert TOKEN not in out
