"""The reader of a source with a policy of signatures: which commits it reads while keys, commits and local documents change."""

import json
import shutil
from pathlib import Path

import pytest

from manifests.problems import Code
from manifests.source.git_url import parse
from reconciler.git.reader import GitReader
from reconciler.git.verify import SignatureCheck
from reconciler.shell.clock import SystemClock
from tests.git.signed_repository import SignedRepository, SshKey

pytestmark = [pytest.mark.server("ssh-keygen")]


class Host:
    """Local documents with a policy, and the reader of the source."""

    def __init__(self, place: Path) -> None:
        self.repository = SignedRepository(place)
        self.key = SshKey(place, "alice")
        self.local = place / "local"
        self.local.mkdir(mode=0o700)
        self.signers = self.repository.file("signers", self.key.public)
        self.url = f"git+file://{self.repository.bare}?ref=main"
        self.write(verify={"mode": "head", "keys": [{"ssh": self.signers}]})
        check = SignatureCheck(self.local, SystemClock())
        self.reader = GitReader(parse(self.url), self.local, place / "mirrors", (check,))

    def write(self, text: str = "", **source: object) -> None:
        """Local documents with this source, or this text."""
        spec = json.dumps({"id": "here", "source": {"url": self.url, **source}})
        made = text or f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: here}}\nspec: {spec}\n"
        path = self.local / "host.yaml"
        path.write_text(made)
        path.chmod(0o600)

    def commit(self, number: int, *, signed: bool) -> str:
        (self.repository.work / "all.yaml").write_text(f"# {number}\n")
        self.repository.git("add", "all.yaml")
        return self.repository.commit(f"{number}", self.key if signed else None)

    def read(self) -> tuple[str, list[Code]]:
        """The text of the manifests, and the codes of problems, after a poll."""
        self.reader.hurry()
        sources = self.reader.read()
        text = "".join(file.data.decode() for file in sources.tree.files)
        return text, [problem.code for problem in sources.problems]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


REFUSED = ("", [Code.SOURCE_UNVERIFIED])


def test_a_signed_commit_is_read_and_named_once(host):
    commit = host.commit(1, signed=True)
    assert host.read() == ("# 1\n", [])
    assert host.read() == ("# 1\n", [])
    (said,) = host.reader.news()
    assert commit[:12] in said
    assert host.key.fingerprint in said


def test_nothing_of_an_unsigned_commit_is_read(host):
    commit = host.commit(1, signed=False)
    assert host.read() == REFUSED
    assert host.reader.commit() == commit
    assert host.reader.seen == ("", "")


def test_a_policy_that_is_added_counts_for_the_commit_that_was_read(host):
    host.write()
    host.commit(1, signed=False)
    assert host.read() == ("# 1\n", [])
    host.write(verify={"mode": "head", "keys": [{"ssh": host.signers}]})
    assert host.read() == REFUSED
    host.write(verify={"mode": "none"})
    assert host.read() == ("# 1\n", [])


def test_local_documents_that_are_broken_for_a_while_open_no_way(host):
    host.commit(1, signed=True)
    assert host.read() == ("# 1\n", [])
    host.write("spec: [\n")
    host.commit(2, signed=False)
    host.read()
    host.write(verify={"mode": "head", "keys": [{"ssh": host.signers}]})
    assert host.read() == REFUSED
    host.commit(3, signed=True)
    assert host.read() == ("# 3\n", [])


def test_another_address_on_the_command_line_needs_the_signature_too(host, tmp_path):
    host.commit(1, signed=False)
    host.repository.git("push", "-q", "origin", "HEAD:other")
    other = parse(host.url.replace("main", "other"))
    reader = GitReader(other, host.local, tmp_path / "mirrors", (SignatureCheck(host.local, SystemClock()),))
    assert [problem.code for problem in reader.read().problems] == [Code.SOURCE_UNVERIFIED]


def test_each_refused_commit_is_another_problem(host):
    said = []
    for number in (1, 2):
        host.commit(number, signed=False)
        host.reader.hurry()
        said.append(host.reader.read().state)
    assert said[0] != said[1]


def test_a_source_without_a_policy_makes_no_directory_of_keys(host):
    host.write()
    host.commit(1, signed=True)
    assert host.read() == ("# 1\n", [])
    assert not list(host.reader.directory.glob("keys-*"))


def test_a_mirror_that_is_gone_is_made_again_for_the_check(host):
    host.commit(1, signed=True)
    assert host.read() == ("# 1\n", [])
    shutil.rmtree(host.reader.directory)
    assert host.read() == ("# 1\n", [])


def test_an_unsigned_rewritten_history_is_reported_once_by_its_signature(host):
    first = host.commit(1, signed=True)
    host.commit(2, signed=True)
    assert host.read() == ("# 2\n", [])
    host.reader.start_from(host.reader.commit())
    host.reader.news()
    host.repository.git("reset", "-q", "--hard", first)
    host.commit(3, signed=False)
    assert host.read() == REFUSED
    assert host.read() == REFUSED
    assert host.reader.news() == ()
    host.repository.git("reset", "-q", "--hard", first)
    host.commit(4, signed=True)
    assert host.read() == ("# 4\n", [])
    assert len([said for said in host.reader.news() if "force-push" in said]) == 1


def test_a_key_that_is_removed_refuses_the_commit_that_was_read(host, tmp_path):
    host.commit(1, signed=True)
    assert host.read() == ("# 1\n", [])
    host.repository.file("signers", SshKey(tmp_path, "bob").public)
    assert host.read() == REFUSED
    host.repository.file("signers", host.key.public)
    assert host.read() == ("# 1\n", [])
