"""The metrics listener of an Instance: where it listens, and when it needs a token."""

import pytest

from manifests.problems import Code
from manifests.values.desired import MetricsListener
from manifests.values.secret_sources import SecretSource
from tests.manifests.trees import INSTANCE, PROVIDERS, WORKLOAD, load_files, problems_of


def tree(metrics: str) -> dict[str, str]:
    instance = INSTANCE.replace("{id: demo}", f"{{id: demo, metrics: {metrics}}}")
    return {"i.yaml": instance, "p.yaml": PROVIDERS, "w.yaml": WORKLOAD}


def test_by_default_there_is_no_listener(tmp_path):
    files = {"i.yaml": INSTANCE, "p.yaml": PROVIDERS, "w.yaml": WORKLOAD}
    assert load_files(tmp_path, files).instance.metrics is None


@pytest.mark.parametrize(
    ("metrics", "listener"),
    [
        ("{listen: '127.0.0.1:9464'}", MetricsListener(("127.0.0.1", 9464))),
        ("{listen: '[::1]:9464'}", MetricsListener(("::1", 9464))),
        (
            "{listen: '0.0.0.0:9464', token: {env: TOKEN}}",
            MetricsListener(("0.0.0.0", 9464), SecretSource(env="TOKEN")),
        ),
        (
            "{listen: '10.0.0.1:9464', token: {file: /etc/token}}",
            MetricsListener(("10.0.0.1", 9464), SecretSource(file="/etc/token")),
        ),
    ],
)
def test_a_listener_is_on_loopback_or_has_a_token(metrics, listener, tmp_path):
    assert load_files(tmp_path, tree(metrics)).instance.metrics == listener


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "10.0.0.1:9464", "[::]:9464", "[2001:db8::1]:9464"])
def test_other_hosts_need_a_token(address, tmp_path):
    (problem,) = problems_of(tmp_path, tree(f"{{listen: '{address}'}}"))
    assert problem.code is Code.BAD_VALUE
    assert "metrics has no token" in problem.message
    assert "token: {file: /path}" in problem.hint


@pytest.mark.parametrize(
    "address", ["9464", "localhost:9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:9464"]
)
def test_an_address_that_is_none_is_refused(address, tmp_path):
    problems = problems_of(tmp_path, tree(f"{{listen: '{address}'}}"))
    assert {problem.code for problem in problems} == {Code.BAD_VALUE}
