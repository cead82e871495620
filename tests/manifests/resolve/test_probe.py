"""The fields of probes: their values, and the messages for bad ones."""

import sys
from pathlib import Path

import pytest

from manifests.problems import Code
from manifests.values.desired import SECOND, Probe, ProbeKind, ProbeTLS
from manifests.values.secret_sources import SecretSource
from tests.manifests.trees import ENGINE_PROVIDERS, GOOD, GUARD, WORKLOAD, load_files, problems_of

LIVENESS = "httpGet: {path: /live, port: http}"
READINESS = "tcpSocket: {port: 8080}\n            periodSeconds: 0.5"
IMAGE = "- name: app\n          image: web\n          init: true"


def tree(liveness: str = LIVENESS, readiness: str = READINESS) -> dict[str, str | bytes]:
    text = WORKLOAD.replace(LIVENESS, liveness).replace(READINESS, readiness).replace("- name: app", IMAGE)
    return GOOD | {"providers.yaml": ENGINE_PROVIDERS, "web.yaml": text}


def liveness(root: Path, text: str) -> Probe | None:
    return load_files(root, tree(text)).workloads[0].template.container.liveness


def test_all_fields_of_a_probe_over_https_are_resolved(tmp_path: Path) -> None:
    text = """httpGet:
              port: http
              scheme: HTTPS
              host: app.example.com
              httpHeaders:
                - {name: X-A, value: "1"}
                - {name: Authorization, valueFrom: {secret: {file: /run/secrets/probe}}}
                - {name: X-A, value: ""}
              expectedStatuses: [204, 300-499]
              redirects: none
              maxBodyBytes: 0
              tls: {verify: true, caFile: pki/./ca.pem, serverName: web.internal}
            terminationGracePeriodSeconds: 5"""

    assert liveness(tmp_path, text) == Probe(
        ProbeKind.HTTP,
        8080,
        scheme="HTTPS",
        headers=(("X-A", "1"), ("Authorization", SecretSource(file="/run/secrets/probe")), ("X-A", "")),
        host="app.example.com",
        follow=False,
        expected=((204, 204), (300, 499)),
        max_body=0,
        tls=ProbeTLS(True, "pki/ca.pem", "web.internal"),
        grace=5 * SECOND,
    )


@pytest.mark.parametrize(
    ("fields", "follow"),
    [
        ("", True),
        (", expectedStatuses: [200]", True),
        (", expectedStatuses: [200, 302]", False),
        (', expectedStatuses: ["200-399"]', False),
        (', expectedStatuses: ["200-399"], redirects: same-host', True),
        (", redirects: none", False),
    ],
)
def test_redirects_are_followed_unless_a_redirect_is_expected(tmp_path: Path, fields: str, follow: bool) -> None:
    probe = liveness(tmp_path, f"httpGet: {{port: http{fields}}}")
    assert probe is not None
    assert probe.follow is follow


def test_grpc_and_the_runtimes_own_health_check_are_kinds_of_probes(tmp_path: Path) -> None:
    container = (
        load_files(tmp_path, tree("grpc: {port: http, service: shop, tls: {}}", "runtimeHealth: {}"))
        .workloads[0]
        .template.container
    )
    assert container.liveness == Probe(ProbeKind.GRPC, 8080, service="shop", tls=ProbeTLS())
    assert container.readiness == Probe(ProbeKind.RUNTIME)


@pytest.mark.parametrize(
    ("liveness", "readiness", "path", "message"),
    [
        ("httpGet: {port: http, tls: {}}", READINESS, "httpGet.tls", "does nothing over plain HTTP"),
        (
            "httpGet: {port: http, scheme: HTTPS, tls: {caFile: ca.pem}}",
            READINESS,
            "httpGet.tls.caFile",
            "does nothing without verify: true",
        ),
        (
            "httpGet: {port: http, scheme: HTTPS, tls: {verify: true, caFile: /etc/passwd}}",
            READINESS,
            "httpGet.tls.caFile",
            "is not a path inside the tree",
        ),
        ("httpGet: {port: http, host: '*.example.com'}", READINESS, "httpGet.host", "is a wildcard"),
        ("httpGet: {port: http, expectedStatuses: []}", READINESS, "httpGet.expectedStatuses", "at least 1"),
        ("httpGet: {port: http, expectedStatuses: [100]}", READINESS, "expectedStatuses[0]", "between 200 and 599"),
        (
            "httpGet: {port: http, expectedStatuses: [299-200]}",
            READINESS,
            "expectedStatuses[0]",
            "start with the lower status",
        ),
        ("httpGet: {port: http, expectedStatuses: [2xx]}", READINESS, "expectedStatuses[0]", "not a status"),
        ("httpGet: {port: http, maxBodyBytes: 100000}", READINESS, "httpGet.maxBodyBytes", "at most 65536"),
        (
            "httpGet: {port: http, httpHeaders: [{name: A, value: b, valueFrom: {secret: {env: C}}}]}",
            READINESS,
            "httpHeaders[0]",
            "exactly one of value and valueFrom",
        ),
        ("exec: {command: [x]}\n            periodSeconds: 0.5", READINESS, "periodSeconds", "at least 1 for exec"),
        (
            "runtimeHealth: {}\n            failureThreshold: 2",
            READINESS,
            "livenessProbe.failureThreshold",
            "has its own timing and thresholds",
        ),
        ("grpc: {port: 9}", READINESS, "grpc.port", "declares no port 9"),
        (
            LIVENESS,
            "tcpSocket: {port: 8080}\n            terminationGracePeriodSeconds: 5",
            "readinessProbe.terminationGracePeriodSeconds",
            "restarts nothing",
        ),
        (
            LIVENESS + "\n            terminationGracePeriodSeconds: 0",
            READINESS,
            "livenessProbe.terminationGracePeriodSeconds",
            "at least 1",
        ),
        ("tcpSocket: {port: http, host: db}", READINESS, "tcpSocket.host", "cannot have a field 'host'"),
    ],
)
def test_a_bad_field_of_a_probe_is_refused_with_its_cause(
    tmp_path: Path, liveness: str, readiness: str, path: str, message: str
) -> None:
    (problem,) = problems_of(tmp_path, tree(liveness, readiness))
    assert path in problem.path
    assert message in problem.message


def test_a_runtime_without_health_checks_refuses_runtime_health(tmp_path: Path) -> None:
    files = GOOD | {"web.yaml": WORKLOAD.replace(LIVENESS, "runtimeHealth: {}")}
    (problem,) = problems_of(tmp_path, files)
    assert problem.code is Code.UNSUPPORTED_FIELD


def test_grpc_without_its_library_is_refused_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h2", None)
    (problem,) = problems_of(tmp_path, tree("grpc: {port: http}"))
    assert problem.code is Code.NOT_INSTALLED
    assert "reconciler-gitops[grpc]" in problem.hint


@pytest.mark.parametrize(
    ("allowed", "codes"),
    [
        ("[[pg_isready]]", []),
        ("[[other], [pg_isready, -q]]", []),
        ("[[pg_isready, -q, -h, x]]", [Code.NOT_ALLOWED]),
        ("[[pg_is]]", [Code.NOT_ALLOWED]),
        ("[]", [Code.NOT_ALLOWED]),
    ],
)
def test_the_guard_allows_commands_by_how_they_begin(tmp_path: Path, allowed: str, codes: list[Code]) -> None:
    guard = GUARD.replace("{deny: [workload/web]}", f"{{execCommands: {allowed}}}")
    files = tree("exec: {command: [pg_isready, -q, -h, db]}") | {"guard.yaml": guard}
    assert [problem.code for problem in problems_of(tmp_path, files)] == codes


def test_only_reading_the_runtimes_own_health_check_needs_a_new_container(tmp_path: Path) -> None:
    def revision(name: str, text: str) -> str:
        return load_files(tmp_path / name, tree(text)).workloads[0].template.revision

    before = revision("before", LIVENESS)
    assert revision("other", "tcpSocket: {port: 8080}") == before
    assert revision("runtime", "runtimeHealth: {}") != before


def test_a_shell_command_line_is_refused_with_the_list_form(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, tree("exec: {command: curl -f localhost}", READINESS))
    assert problem.path.endswith("livenessProbe.exec.command")
    assert "no shell" in problem.hint
