"""The distribution as users get it: what the sdist and the wheel hold, and that the installed wheel works."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAME = "reconciler-gitops"
PACKAGES = ("manifests", "providers", "reconciler")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this source, and the wheel that was built from the sdist, as an installer would build it."""
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, "sdist", out)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(out / "unpacked", filter="data")
    (source,) = (out / "unpacked").iterdir()
    build(source, "wheel", out)
    return out


def build(source: Path, kind: str, out: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_distribution_has_a_name_of_its_own_everywhere():
    """`reconciler` on the Python index is another project: an installation by that name would get it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == NAME
    wrong = re.compile(
        r"""install '?reconciler['\s]|'reconciler\[|dependencies = \["reconciler"\]|version\("reconciler"\)"""
    )
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    texts = [name for name in tracked.stdout.splitlines() if Path(name).suffix in {".py", ".md", ".toml"}]
    assert len(texts) > 100
    assert [name for name in texts if wrong.search((ROOT / name).read_text())] == []


def test_the_sdist_has_all_that_the_wheel_is_built_from(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= files
    assert not {name for name in files if name.startswith(("tests/", ".venv"))}


def test_the_wheel_has_the_packages_their_types_and_the_licence(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
        (metadata_file,) = (name for name in files if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(metadata_file).decode())
        (licence,) = (name for name in files if name.endswith("licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert {f"{package}/py.typed" for package in PACKAGES} <= files
    sources = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert {name for name in files if name.endswith(".py")} == sources
    assert {name.partition("/")[0] for name in files} == {*PACKAGES, metadata_file.partition("/")[0]}
    assert (metadata["Name"], metadata["License-Expression"]) == (NAME, "Apache-2.0")
    assert set(metadata.get_all("Provides-Extra", [])) >= {"grpc", "serve"}


def test_the_licence_is_the_whole_text():
    text = (ROOT / "LICENSE").read_text()
    for part in (
        "Version 2.0, January 2004",
        "9. Accepting Warranty or Additional Liability",
        "END OF TERMS AND CONDITIONS",
    ):
        assert part in text


def test_the_installed_wheel_works_beside_a_directory_called_manifests(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run(
        [*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)],
        check=True,
        timeout=120,
        capture_output=True,
    )
    # Its dependencies are those of this environment, so that the test needs no index. A directory in a `.pth` file is only
    # searched: the link from this environment to the source is not followed.
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    here = tmp_path / "here"
    shutil.copytree(ROOT / "examples" / "quickstart", here / "manifests")
    for directory in (here / "manifests", here / "providers"):
        directory.mkdir(exist_ok=True)
        (directory / "__init__.py").write_text("raise SystemExit('the wrong module')\n")
    variables = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(tmp_path / "state")}

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=here, env=variables, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    command = str(environment / "bin" / "reconcile")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(command, "--version") == f"reconcile {version}\n"
    place = run(str(python), "-P", "-c", "import manifests; print(manifests.__file__)").strip()
    assert Path(place).is_relative_to(environment)
    for start in ([command], [str(python), "-m", "reconciler"]):
        assert run(*start, "validate", "manifests").startswith("valid: ")
        assert "create " in run(*start, "plan", "manifests")
