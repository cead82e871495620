"""Secrets come from where a manifest says and are never printed."""

import copy
import os
import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from providers.errors import ProviderError
from providers.lib.secrets import MAX_BYTES, SecretRef, on_resolve

SENTINEL = "sentinel-5e21b0c4"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SENTINEL + "\n")
    path.chmod(0o600)
    return path


def refused(ref: SecretRef) -> str:
    with pytest.raises(ProviderError) as caught:
        ref.resolve("provider edge")
    assert str(caught.value).startswith("provider edge: ")
    assert SENTINEL not in str(caught.value) + repr(caught.value) + repr(caught.value.__cause__)
    return str(caught.value)


def test_a_secret_comes_from_the_environment_or_a_file_as_it_is_now(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_SECRET", SENTINEL)
    assert SecretRef(env="EDGE_SECRET").resolve("x").reveal() == SENTINEL
    ref = SecretRef(file=str(file))
    assert ref.resolve("x").reveal() == SENTINEL
    file.write_text("another")
    assert ref.resolve("x").reveal() == "another"


def test_a_link_to_a_secret_is_followed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    assert SecretRef(file=str(tmp_path / "link")).resolve("x").reveal() == SENTINEL


def test_a_secret_has_no_printed_form(file: Path) -> None:
    secret = SecretRef(file=str(file)).resolve("x")
    assert f"{secret} {secret!r} {[secret]}" == "*** *** [***]"
    for write in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be serialized"):
            write(secret)


@pytest.mark.parametrize(
    "settings", [{}, {"env": "A", "file": "/a"}, {"file": "relative"}, {"env": "A B"}, {"env": ""}]
)
def test_a_reference_names_one_place(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        SecretRef.model_validate(settings)


def test_what_is_not_there_is_said_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGE_SECRET", raising=False)
    assert "environment variable EDGE_SECRET is not set; set it" in refused(SecretRef(env="EDGE_SECRET"))
    assert "does not exist; create it with mode 0600" in refused(SecretRef(file=str(tmp_path / "none")))
    monkeypatch.setenv("EDGE_SECRET", "\n")
    assert "is empty" in refused(SecretRef(env="EDGE_SECRET"))


def test_a_file_that_all_users_may_read_is_refused(file: Path) -> None:
    file.chmod(0o644)
    assert f"chmod o-rwx {file}" in refused(SecretRef(file=str(file)))


def test_what_is_no_file_of_text_is_refused_without_waiting(file: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "is not a regular file" in refused(SecretRef(file=str(tmp_path / "pipe")))
    assert "is not a regular file" in refused(SecretRef(file=str(tmp_path)))
    file.write_bytes(SENTINEL.encode() + b"\xff")
    assert "is not UTF-8 text" in refused(SecretRef(file=str(file)))
    file.write_bytes(SENTINEL.encode() + b"\0x")
    assert "has a NUL character" in refused(SecretRef(file=str(file)))
    file.write_bytes(b"x" * (MAX_BYTES + 1))
    assert "more than 65536 bytes" in refused(SecretRef(file=str(file)))


def test_who_masks_secrets_hears_of_each_before_it_is_used(file: Path) -> None:
    heard: list[str] = []
    with on_resolve(heard.append):
        SecretRef(file=str(file)).resolve("x")
    SecretRef(file=str(file)).resolve("x")
    assert heard == [SENTINEL]
