"""What only a process of its own can show: imports, pipes, signals, the environment."""

import os
import subprocess
import sys

import pytest

MODULES = """
import sys
from reconciler.cli.app import run
code = run(sys.argv[1:])
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(code)
"""


def imported(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", MODULES, *words], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--version"], ["plan", "--version"], ["--help"]])
def test_the_version_and_help_import_nothing_heavy(words):
    assert not imported(*words) & {"pydantic", "asyncio", "rich", "docker", "boto3", "sqlite3", "ruamel", "dns"}


def test_validating_imports_no_provider_library(tree):
    manifest = tree / "all.yaml"
    manifest.write_text(manifest.read_text().replace("zonefile", "memory-dns"))
    assert not imported("validate", str(tree)) & {"docker", "boto3", "httpx", "dns"}


def test_a_plan_without_such_objects_imports_no_cloud_library(tree, home):
    assert not imported("plan", str(tree)) & {"docker", "boto3", "httpx"}


def program(*words: str, **environment: str) -> list[str]:
    return [sys.executable, "-m", "reconciler", *words]


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    many = "\n".join(f"---\napiVersion: reconciler/v1\nkind: Nothing{n}\nmetadata: {{name: x}}" for n in range(3000))
    (tmp_path / "many.yaml").write_text(many)
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            program("validate", str(tmp_path)), stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(write)
    assert done.returncode == 3
    assert done.stderr == ""


def test_a_terminal_that_knows_no_unicode_gets_question_marks_instead_of_a_traceback(tmp_path):
    (tmp_path / "a.yaml").write_text("apiVersion: reconciler/v1\nkind: Wörkload\nmetadata: {name: x}\n")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(
        program("validate", str(tmp_path)), capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 3
    assert "unknown-kind" in done.stdout
    assert "Traceback" not in done.stderr


def test_no_variable_of_the_environment_appears_in_any_output(tree, tmp_path):
    secret = "sentinel-of-the-environment"
    environment = {**os.environ, "API_TOKEN": secret, "XDG_STATE_HOME": str(tmp_path / "home")}
    for words in (["validate"], ["plan"], ["plan", "-o", "json"], ["plan", "-v"], ["status"]):
        done = subprocess.run(
            program(words[0], str(tree), *words[1:]),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
        )
        assert secret not in done.stdout + done.stderr
        assert "sentinel-of-the-manifest" not in done.stdout + done.stderr
