"""A plan from a snapshot with the real program: the same as on the host, without any access to it, and nothing of a secret."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.test_untrusted import RUNS, STRANGE, Ci, Stranger, ci, stranger

__all__ = ["ci", "stranger"]


class Elsewhere:
    """A runner that has the tree, the local documents and the snapshot, and no state, server or secret of the host."""

    def __init__(self, ci: Ci) -> None:
        self.ci, self.key, self.file = ci, ci.base / "key", ci.base / "host.snapshot"
        make_key(self.key)
        self.env = {name: value for name, value in ci.env.items() if name != "CI_DEPLOY_TOKEN"}

    def take(self, *words: str) -> None:
        self.ci.run(
            *("snapshot", self.ci.tree, "--instance", self.ci.local, "--out", self.file, "--key", self.key, *words)
        )

    def plan(self, *words: str | Path, code: int = 0, key: bool = True) -> str:
        ci, kept = self.ci, self.ci.env
        ci.env = {**self.env, "XDG_STATE_HOME": str(ci.base / "no-state")}
        keys = ("--observed-key", f"{self.key}.pub") if key else ()
        try:
            return ci.plan("--observed", str(self.file), *keys, *map(str, words), code=code)
        finally:
            ci.env = kept


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=60)


@pytest.fixture
def elsewhere(ci: Ci) -> Elsewhere:
    return Elsewhere(ci)


def document(out: str) -> dict:
    return json.loads(out[out.index("{") : out.rindex("}") + 1])


def compared(out: str) -> dict:
    """The plan without what belongs to the run."""
    plan = document(out)
    return {name: plan[name] for name in ("steps", "changed", "privileges", "waits", "exit_code", "unknown")}


def test_a_plan_from_a_snapshot_is_the_plan_of_the_host(elsewhere: Elsewhere, stranger: Stranger) -> None:
    ci = elsewhere.ci
    elsewhere.take()
    assert compared(elsewhere.plan("-o", "json")) == compared(ci.plan("-o", "json"))
    assert document(elsewhere.plan("-o", "json"))["steps"] == []
    ci.write(RUNS.replace("exec sleep 86398", "exec sleep 86397"))
    there, here = elsewhere.plan("-o", "json"), ci.plan("-o", "json")
    assert compared(there) == compared(here)
    assert len(document(there)["steps"]) > 4
    assert document(there)["observed"]["verified"] is True
    assert "its signature is valid" in elsewhere.plan()


def test_a_plan_from_a_snapshot_reaches_nothing(elsewhere: Elsewhere, stranger: Stranger) -> None:
    elsewhere.take()
    elsewhere.ci.write(STRANGE)
    before = len(stranger.got)
    elsewhere.plan()
    elsewhere.plan("--untrusted")
    assert stranger.got[before:] == []
    assert not (elsewhere.ci.base / "ran").exists()
    assert not (elsewhere.ci.base / "no-state").exists()


def test_a_snapshot_has_no_secret_and_nothing_of_local_documents(elsewhere: Elsewhere) -> None:
    elsewhere.ci.write(STRANGE)
    elsewhere.take()
    text = elsewhere.file.read_text()
    assert elsewhere.file.stat().st_mode & 0o777 == 0o600
    assert "s3cr3t" not in text
    assert "allowProcess" not in text
    assert "CI_DEPLOY_TOKEN" not in text
    assert elsewhere.ci.id in text


def test_an_old_foreign_changed_or_wrongly_signed_snapshot_is_refused(elsewhere: Elsewhere) -> None:
    ci = elsewhere.ci
    elsewhere.take("--expires", "1ms")
    assert "too old" in elsewhere.plan(code=8)
    elsewhere.take()
    good = elsewhere.file.read_bytes()
    elsewhere.file.write_bytes(good.replace(b'"state":"running"', b'"state":"exited"'))
    assert elsewhere.file.read_bytes() != good
    assert "changed after it was signed" in elsewhere.plan(code=8)
    elsewhere.file.write_bytes(good[: len(good) // 2])
    elsewhere.plan(code=8)
    elsewhere.file.write_bytes(b'{"signature": ""}\n' + good.partition(b"\n")[2])
    assert "not signed" in elsewhere.plan(code=8)
    assert "was not checked" in elsewhere.plan(key=False)
    elsewhere.file.write_bytes(good)
    other = ci.base / "other"
    make_key(other)
    shutil.copy(f"{other}.pub", f"{elsewhere.key}.pub")
    assert "signature" in elsewhere.plan(code=8)
    local = ci.local / "host.yaml"
    local.write_text(local.read_text().replace(f'id: "{ci.id}"', 'id: "another"'))
    try:
        assert f"it is of instance '{ci.id}'" in elsewhere.plan(key=False, code=8)
    finally:
        local.write_text(local.read_text().replace('id: "another"', f'id: "{ci.id}"'))
    elsewhere.file.unlink()
    assert "cannot be read" in elsewhere.plan(code=8)


def test_what_a_snapshot_does_not_have_is_unknown_and_never_absent(elsewhere: Elsewhere) -> None:
    elsewhere.take()
    local = elsewhere.ci.local / "more.yaml"
    local.write_text("apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: later}\nspec: {type: file}\n")
    service = RUNS.replace("pool: w}]", "pool: w}, {provider: later, pool: w}]")
    elsewhere.ci.write(service)
    try:
        out = elsewhere.plan("--detailed-exitcode", code=6)
    finally:
        local.unlink()
    assert re.search("later.*cannot be read", out)


def test_a_snapshot_needs_a_key_that_can_sign(elsewhere: Elsewhere) -> None:
    ci = elsewhere.ci
    bad = ci.base / "bad"
    bad.write_text("no key\n")
    out = ci.run("snapshot", ci.tree, "--instance", ci.local, "--out", elsewhere.file, "--key", bad, code=1)
    assert "next step: name a private SSH key" in out


def test_a_snapshot_that_could_not_be_used_is_not_taken(elsewhere: Elsewhere) -> None:
    ci = elsewhere.ci
    out = ci.run("snapshot", ci.tree, "--instance", ci.local, "--out", elsewhere.file, "--expires", "0s", code=64)
    assert "--expires 1h" in out
    out = ci.run("snapshot", ci.tree, "--instance", ci.local, "--out", ci.base / "no" / "file", code=64)
    assert "there is no directory" in out
    assert not elsewhere.file.exists()
    assert not elsewhere.file.exists()
