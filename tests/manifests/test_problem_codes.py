"""One broken tree for each code: the tree differs from a valid one only in the mistake of its code."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from manifests.problems import MEANINGS, WARNINGS, Code, ManifestErrors, Problem
from tests.manifests.trees import (
    ENGINE_PROVIDERS,
    GOOD,
    GUARD,
    INSTANCE,
    POLICY,
    PROVIDERS,
    RECORD,
    SERVICE,
    WORKLOAD,
    problems_at,
    write,
)

Break = Callable[[Path], None]


def env_file(name: str, content: str | None) -> Break:
    """Let the workload refer to a file of variables, and write that file."""

    def make(root: Path) -> None:
        text = WORKLOAD.replace("          ports:\n", f"          envFile: {name}\n          ports:\n", 1)
        write(root, {"web.yaml": text, **({} if content is None else {name: content})})

    return make


def put(name: str, content: str | bytes) -> Break:
    """Write one more file, or another content of one."""
    return lambda root: write(root, {name: content}) and None


def swap(name: str, text: str, old: str, new: str) -> Break:
    assert old in text, "the valid tree has changed"
    return put(name, text.replace(old, new, 1))


def push_without_a_probe(root: Path) -> None:
    listens = INSTANCE.replace("{id: demo}", "{id: demo, push: {}}")
    write(root, {"instance.yaml": listens, "web.yaml": UNASKED})


def leave_by_link(root: Path) -> None:
    outside = root.parent / "outside.yaml"
    outside.write_text(INSTANCE)
    (root / "link.yaml").symlink_to(outside)


def nest_directories(root: Path) -> None:
    (root / "/".join(["d"] * 66)).mkdir(parents=True)


EXEC = WORKLOAD.replace("tcpSocket: {port: 8080}\n            periodSeconds: 0.5", "exec: {command: [check]}")


def run_commands_in_an_image(root: Path) -> None:
    write(
        root,
        {
            "providers.yaml": ENGINE_PROVIDERS,
            "web.yaml": EXEC.replace("- name: app", "- name: app\n          image: web"),
        },
    )


def allow_no_commands(root: Path) -> None:
    write(root, {"guard.yaml": GUARD.replace("{deny: [workload/web]}", "{execCommands: [[other]]}"), "web.yaml": EXEC})


def forbid_the_image(root: Path) -> None:
    write(
        root,
        {
            "providers.yaml": ENGINE_PROVIDERS,
            "guard.yaml": GUARD.replace("{deny: [workload/web]}", "{policy: {images: {forbidTags: [latest]}}}"),
            "web.yaml": WORKLOAD.replace("- name: app", "- name: app\n          image: web"),
        },
    )


LONG_ID = INSTANCE.replace("id: demo", "id: demo-demo-demo-demo")

UNASKED = WORKLOAD[: WORKLOAD.index("          readinessProbe:")].replace("spec:\n", "spec:\n  push: {}\n", 1)

LOOP = "---\n".join(
    RECORD.replace("name: mail", f"name: {name}")
    .replace("host: example.com", f"host: {name}.example.com")
    .replace("MX", "CNAME")
    .replace("10 mail", other)
    for name, other in (("here", "there"), ("there", "here"))
)

CASES: dict[Code, tuple[Break, str]] = {
    Code.UNREADABLE_FILE: (lambda root: os.mkfifo(root / "pipe.yaml"), "pipe.yaml"),
    Code.FILE_TOO_LARGE: (put("big.yaml", b"# " + b"x" * (4 * 1024 * 1024)), "big.yaml"),
    Code.TOO_MANY_FILES: (nest_directories, "d/d/d"),
    Code.LINK_LEAVES_TREE: (leave_by_link, "link.yaml"),
    Code.WRONG_ENVIRONMENT: (put("environments/prod.yaml", RECORD), "environments/prod.yaml"),
    Code.ENCODING: (put("latin.yaml", b"# caf\xe9"), "latin.yaml:1:6"),
    Code.YAML_SYNTAX: (put("open.yaml", "a: [1, 2"), "open.yaml:1:"),
    Code.YAML_VERSION: (put("old.yaml", "%YAML 1.1\n---\n" + GUARD), "old.yaml:1:1"),
    Code.YAML_TAG: (swap("web.yaml", WORKLOAD, "replicas: 3", "replicas: !n 3"), "web.yaml:6:13"),
    Code.YAML_AMBIGUOUS: (swap("web.yaml", WORKLOAD, "value: production", "value: off"), "web.yaml:16:35"),
    Code.DUPLICATE_KEY: (swap("web.yaml", WORKLOAD, "  replicas: 3", "  replicas: 3\n  replicas: 4"), "web.yaml:7:3"),
    Code.BAD_KEY: (swap("web.yaml", WORKLOAD, "{app: web}", "{app: web, 80: x}"), "web.yaml:9:26"),
    Code.BAD_NUMBER: (swap("web.yaml", WORKLOAD, "replicas: 3", "replicas: .inf"), "web.yaml:6:13"),
    Code.BAD_ALIAS: (swap("web.yaml", WORKLOAD, "replicas: 3", "replicas: *three"), "web.yaml:6:13"),
    Code.ALIAS_BUDGET: (
        put(
            "bomb.yaml",
            "a: &a [x]\n"
            + "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]\n" for n in range(9)),
        ),
        "bomb.yaml:",
    ),
    Code.TOO_DEEP: (put("deep.yaml", "[" * 101 + "]" * 101), "deep.yaml:1:101"),
    Code.TOO_MANY_DOCUMENTS: (put("many.yaml", "---\n" * 10_001), "many.yaml:10001:1"),
    Code.NOT_A_MANIFEST: (put("docker-compose.yaml", "services: {web: {}}"), "docker-compose.yaml:1:1"),
    Code.UNKNOWN_VERSION: (put("apps.yaml", "apiVersion: apps/v1\nkind: Deployment\n"), "apps.yaml:1:13"),
    Code.UNKNOWN_KIND: (swap("web.yaml", WORKLOAD, "Workload", "Worklod"), "web.yaml:2:7"),
    Code.UNKNOWN_FIELD: (swap("web.yaml", WORKLOAD, "replicas", "replica"), "web.yaml:6:3"),
    Code.MISSING_FIELD: (swap("web.yaml", WORKLOAD, "          command: [python3, server.py]\n", ""), "web.yaml:12:11"),
    Code.WRONG_TYPE: (swap("web.yaml", WORKLOAD, "replicas: 3", "replicas: '3'"), "web.yaml:6:13"),
    Code.OUT_OF_RANGE: (swap("web.yaml", WORKLOAD, "replicas: 3", "replicas: 1001"), "web.yaml:6:13"),
    Code.BAD_VALUE: (swap("dns.yaml", POLICY, "app.example.com", "app_1.example.com"), "dns.yaml:5:9"),
    Code.DUPLICATE_OBJECT: (put("again.yaml", WORKLOAD), "web.yaml:4:9"),
    Code.NO_INSTANCE: (lambda root: (root / "instance.yaml").unlink(), "."),
    Code.UNKNOWN_REFERENCE: (swap("service.yml", SERVICE, "edge", "egde"), "service.yml:8:18"),
    Code.UNKNOWN_TYPE: (swap("providers.yaml", PROVIDERS, "type: process", "type: proces"), "providers.yaml:4:14"),
    Code.UNKNOWN_PORT: (swap("service.yml", SERVICE, "port: http", "port: https"), "service.yml:6:9"),
    Code.UNSUPPORTED_FIELD: (
        swap("web.yaml", WORKLOAD, "        - name: app\n", "        - name: app\n          image: nginx\n"),
        "web.yaml:13:18",
    ),
    Code.WRONG_ROLE: (swap("service.yml", SERVICE, "provider: edge", "provider: here"), "service.yml:8:18"),
    Code.NO_DEFAULT: (put("second.yaml", PROVIDERS.partition("---")[0].replace("here", "there")), "web.yaml:6:3"),
    Code.SELECTS_NOTHING: (swap("service.yml", SERVICE, "{app: web}", "{app: wep}"), "service.yml:5:13"),
    Code.NOTHING_TO_PUBLISH: (
        lambda root: (
            write(
                root,
                {
                    "service.yml": SERVICE.replace(", addresses: [203.0.113.10]", ""),
                    "dns.yaml": POLICY.replace("{name: web}", "{name: web, publish: balancer}"),
                },
            )
            and None
        ),
        "dns.yaml:8:50",
    ),
    Code.OUTSIDE_ZONE: (swap("dns.yaml", POLICY, "zone: example.com", "zone: example.org"), "dns.yaml:5:9"),
    Code.CONFLICT: (put("dns2.yaml", POLICY.replace("{name: app}", "{name: bpp}")), "dns2.yaml:5:9"),
    Code.NAME_TOO_LONG: (
        lambda root: (
            write(root, {"instance.yaml": LONG_ID, "web.yaml": WORKLOAD.replace("name: web", f"name: {'w' * 40}", 1)})
            and None
        ),
        "web.yaml:4:9",
    ),
    Code.NOT_ALLOWED: (allow_no_commands, "web.yaml:22:29"),
    Code.POLICY_VIOLATION: (forbid_the_image, "web.yaml:13:18"),
    Code.COSTLY_PROBE: (
        put("web.yaml", EXEC.replace("[check]}", "[check]}\n            periodSeconds: 2")),
        "web.yaml:22:19",
    ),
    Code.NO_INIT: (run_commands_in_an_image, "web.yaml:23:19"),
    Code.CNAME_LOOP: (put("loop.yaml", LOOP), "loop.yaml:5:9"),
    Code.FAILS_CLOSED: (
        swap("dns.yaml", POLICY, "  targets:", "  whenAllUnhealthy: closed\n  targets:"),
        "dns.yaml:7:21",
    ),
    Code.UNSUPPORTED_TYPE: (
        lambda root: (
            write(root, {"providers.yaml": PROVIDERS.replace("type: zonefile", "type: cloud"), "mail.yaml": RECORD})
            and None
        ),
        "mail.yaml:7:3",
    ),
    Code.SUSPICIOUS_NAME: (put("mail.yaml", RECORD.replace("mail.example.com", "192.0.2.1")), "mail.yaml:8:12"),
    Code.LARGE_SET: (
        put(
            "mail.yaml",
            RECORD.replace("MX", "A").replace(
                "[10 mail.example.com]", str([f"192.0.{n // 250}.{n % 250}" for n in range(4200)])
            ),
        ),
        "mail.yaml:7:9",
    ),
    Code.CIPHERTEXT: (
        swap("web.yaml", WORKLOAD, "value: production", "value: 'ENC[AES256_GCM,data:eA==,type:str]'"),
        "web.yaml:16:35",
    ),
    Code.EARLY_TRAFFIC: (push_without_a_probe, "web.yaml:6:9"),
    Code.UNUSABLE_FILES: (env_file("missing.env", None), "web.yaml:17:20"),
    Code.ENV_FILE_SYNTAX: (env_file("app.env", "A=1\nB C=2\n"), "app.env:2:1"),
    Code.REPEATED_VARIABLE: (env_file("app.env", "A=1\nA=2\n"), "app.env:2:1"),
    Code.PLAIN_SECRET: (env_file("app.env", "API_TOKEN=x\n"), "app.env:1:1"),
}


@pytest.mark.parametrize("code", CASES, ids=str)
def test_each_mistake_is_reported_alone_with_its_code_and_place(code: Code, tmp_path: Path) -> None:
    root = write(tmp_path / "tree", GOOD)
    make, place = CASES[code]
    make(root)

    problems = problems_at(root)

    assert [problem.code for problem in problems] == [code]
    assert problems[0].render().startswith(place)
    assert problems[0].message
    assert problems[0].is_warning == (code in WARNINGS)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    problems = problems_at(tmp_path / "nowhere")

    assert [problem.code for problem in problems] == [Code.PATH_NOT_FOUND]
    assert "nowhere" in problems[0].file


@pytest.mark.parametrize("content", [None, "", "# nothing yet\n---\n# nor here\n"])
def test_a_tree_without_manifests_has_its_own_code(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        write(tmp_path, {"empty.yaml": content})

    problems = problems_at(tmp_path)

    assert [problem.code for problem in problems] == [Code.EMPTY_TREE]
    assert ManifestErrors(problems).empty_tree


def test_every_code_has_a_test_and_a_meaning() -> None:
    elsewhere = {Code.PATH_NOT_FOUND, Code.EMPTY_TREE, Code.NOT_INSTALLED, Code.INTERNAL_ERROR}
    # These need local documents: `source/test_local.py` and `resolve/test_local.py`.
    # Encrypted files: `resolve/test_secret_files.py`.
    elsewhere |= {
        Code.BAD_SECRET_FILE,
        Code.UNSAFE_LOCAL,
        Code.LOCAL_ONLY,
        Code.SECRET_NOT_ALLOWED,
        Code.PROCESS_NOT_ALLOWED,
    }
    elsewhere |= {Code.NOTHING_TO_REMOVE}  # needs an environment: `overlay/test_merge.py`
    elsewhere |= {Code.SOURCE_UNREADABLE, Code.SOURCE_UNVERIFIED}  # need a repository: `tests/git/`
    assert set(CASES) | elsewhere == set(Code)
    assert list(MEANINGS) == list(Code)


def test_a_problem_is_a_flat_json_object() -> None:
    problem = Problem("a.yaml", 2, 3, Code.WRONG_TYPE, "spec.replicas", "workload/a: expected a number", "write 3")

    assert problem.to_dict() == {
        "severity": "error",
        "code": "wrong-type",
        "file": "a.yaml",
        "line": 2,
        "column": 3,
        "path": "spec.replicas",
        "message": "workload/a: expected a number",
        "hint": "write 3",
    }


def test_problems_are_sorted_by_place_and_never_repeated() -> None:
    late = Problem("b.yaml", 1, 1, Code.BAD_VALUE, "", "late")
    early = Problem("a.yaml", 10, 1, Code.BAD_VALUE, "", "early")
    earlier = Problem("a.yaml", 9, 1, Code.BAD_VALUE, "", "earlier")

    assert ManifestErrors([late, early, earlier, late]).problems == (earlier, early, late)
