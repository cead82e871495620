"""Commits and tags with signatures of real keys, checked by real git, gpg and ssh-keygen, in every way in which they may be wrong.

The reports behind these tests: a refusal that does not say why (argo-cd#15118), and keys in the place of the user.
"""

import os
import stat
import time
from pathlib import Path

import pytest

from manifests.values.verify import SignaturePolicy, VerifyMode
from reconciler.git.mirror import Head
from tests.git.signed_repository import ALICE, NOW, PgpHome, SignedRepository, SshKey, by_pgp, by_ssh, run

pytestmark = [pytest.mark.server("gpg"), pytest.mark.server("ssh-keygen")]


@pytest.fixture
def repository(tmp_path: Path) -> SignedRepository:
    return SignedRepository(tmp_path)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = PgpHome(tmp_path_factory.mktemp("gpg", numbered=True) / "home")
    yield made
    made.close()


@pytest.fixture(scope="module")
def alice(tmp_path_factory) -> SshKey:
    return SshKey(tmp_path_factory.mktemp("alice"), "alice")


@pytest.fixture(scope="module")
def mallory(tmp_path_factory) -> SshKey:
    return SshKey(tmp_path_factory.mktemp("mallory"), "mallory")


# --- the commit itself --------------------------------------------------------------------------------------------------


def test_a_commit_of_a_trusted_ssh_key_is_accepted(repository, alice):
    commit = repository.commit("one", alice)
    verdict = repository.judge(by_ssh(repository.file("signers", f"alice@example.com {alice.line}\n")))
    assert verdict.accepted
    assert (verdict.commit, verdict.author) == (commit, ALICE)
    assert verdict.signer == f"SSH key {alice.fingerprint} of alice@example.com"


def test_the_line_of_a_public_key_file_is_enough(repository, alice):
    repository.commit("one", alice)
    verdict = repository.judge(by_ssh(repository.file("alice.pub", f"# ours\n\n{alice.public}\n")))
    assert verdict.accepted
    assert verdict.signer.endswith("of alice@example.com")


def test_a_commit_of_a_trusted_pgp_key_is_accepted(repository, home):
    carol = home.key("Carol")
    commit = repository.commit("one", carol, home)
    verdict = repository.judge(by_pgp(str(home.public(carol, repository.keys / "carol.asc"))))
    assert verdict.accepted, verdict
    assert verdict.commit == commit
    assert verdict.signer == f"PGP key {carol} of Carol <carol@example.com>"


def test_an_unsigned_commit_is_refused_with_commit_author_and_rule(repository, alice):
    commit = repository.commit("one")
    verdict = repository.judge(by_ssh(repository.file("signers", alice.public)))
    assert not verdict.accepted
    assert verdict.message == (
        f"commit {commit[:12]} by {ALICE} (unsigned) is refused by source.verify.mode: head: the commit has no signature"
    )
    assert verdict.hint == "sign with a key of source.verify.keys, and push again"


def test_an_unknown_ssh_key_is_refused_with_its_fingerprint(repository, alice, mallory):
    repository.commit("one", mallory)
    verdict = repository.judge(by_ssh(repository.file("signers", alice.public)))
    assert not verdict.accepted
    assert mallory.fingerprint in verdict.signer
    assert verdict.cause == "the key is not in source.verify.keys"


def test_an_unknown_pgp_key_is_refused_with_its_id(repository, home):
    carol, mallet = home.key("Carola"), home.key("Mallet")
    repository.commit("one", mallet, home)
    verdict = repository.judge(by_pgp(str(home.public(carol, repository.keys / "carol.asc"))))
    assert not verdict.accepted
    assert mallet[-16:] in verdict.signer
    assert verdict.cause == "the key is not in source.verify.keys"


def test_a_key_of_the_other_format_is_refused(repository, alice, home):
    carol = home.key("Caroline")
    repository.commit("one", alice)
    verdict = repository.judge(by_pgp(str(home.public(carol, repository.keys / "carol.asc"))))
    assert not verdict.accepted
    assert verdict.cause == "the commit has an SSH signature, and source.verify.keys has no SSH key"


def test_keys_of_both_formats_count_together(repository, alice, home):
    carol = home.key("Caroll")
    both = SignaturePolicy(VerifyMode.HEAD, (repository.file("a.pub", alice.public),), (str(home.public(carol, repository.keys / "c.asc")),))  # fmt: skip
    repository.commit("one", alice)
    assert repository.judge(both).accepted
    repository.commit("two", carol, home)
    assert repository.judge(both).accepted
    repository.commit("three")
    assert not repository.judge(both).accepted


def test_a_key_that_is_expired_now_is_refused_also_for_old_commits(repository, alice):
    repository.commit("one", alice)
    end = NOW + 100
    stamp = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(end))
    policy = by_ssh(repository.file("signers", f'alice@example.com valid-before="{stamp}" {alice.line}\n'))
    assert repository.judge(policy).accepted
    verdict = repository.judge(policy, now=end)
    assert not verdict.accepted
    assert verdict.cause == f"the key expired on {time.strftime('%Y-%m-%d %H:%M', time.gmtime(end))}Z"
    assert verdict.signer == f"SSH key {alice.fingerprint} of alice@example.com"


def test_a_key_that_is_not_valid_yet_is_refused(repository, alice):
    repository.commit("one", alice)
    verdict = repository.judge(by_ssh(repository.file("signers", f'alice valid-after="20990101" {alice.line}\n')))
    assert not verdict.accepted
    assert verdict.cause.startswith("the key is valid only from 20")


def test_a_commit_dated_outside_the_time_of_its_key_is_refused(repository, alice):
    repository.commit("one", alice, GIT_COMMITTER_DATE="1000000000 +0000")
    verdict = repository.judge(by_ssh(repository.file("signers", f'alice valid-after="20200101" {alice.line}\n')))
    assert not verdict.accepted
    assert "git refuses the signature" in verdict.cause


def test_a_key_for_other_things_than_git_is_refused(repository, alice):
    repository.commit("one", alice)
    verdict = repository.judge(by_ssh(repository.file("signers", f'alice namespaces="file" {alice.line}\n')))
    assert not verdict.accepted


def test_a_revoked_ssh_key_is_refused(repository, alice):
    repository.commit("one", alice)
    revoked = repository.file("revoked", f"{alice.public}\n")
    verdict = repository.judge(by_ssh(repository.file("signers", alice.public), revoked=revoked))
    assert not verdict.accepted
    assert verdict.cause == "the key is in source.verify.revoked"


def test_a_list_without_the_key_revokes_nothing(repository, alice, mallory):
    repository.commit("one", alice)
    revoked = repository.file("revoked", f"{mallory.public}\n")
    assert repository.judge(by_ssh(repository.file("signers", alice.public), revoked=revoked)).accepted


def test_a_revoked_pgp_key_is_refused(repository, home):
    dora = home.key("Dora")
    repository.commit("one", dora, home)
    file = home.public(dora, repository.keys / "dora.asc")
    assert repository.judge(by_pgp(str(file))).accepted
    home.revoke(dora)
    home.public(dora, file)
    verdict = repository.judge(by_pgp(str(file)))
    assert not verdict.accepted
    assert verdict.cause == "the key is revoked"
    assert dora in verdict.signer


def test_an_expired_pgp_key_is_refused(repository, home):
    # Made in the past, so that it is expired by the clock of gpg; the commit was signed while it was valid.
    emil = home.key("Emil", expires="seconds=3600", at="20200101T000000")
    fake = repository.place / "gpg-of-2020"
    fake.write_text('#!/bin/sh\nexec gpg --faked-system-time 20200101T001000 "$@"\n')
    fake.chmod(0o700)
    repository.git("config", "gpg.program", str(fake))
    repository.commit("one", emil, home)
    verdict = repository.judge(by_pgp(str(home.public(emil, repository.keys / "emil.asc"))))
    assert not verdict.accepted
    assert verdict.cause == "the key expired on 2020-01-01 01:00Z"
    assert emil in verdict.signer


def test_a_certificate_of_a_trusted_authority_is_accepted(repository, tmp_path, alice, mallory):
    signer = SshKey(tmp_path, "bob")
    authority = SshKey(tmp_path, "authority")
    run("ssh-keygen", "-q", "-s", str(authority.file), "-I", "bob", "-n", "bob@example.com", f"{signer.file}.pub", cwd=tmp_path)  # fmt: skip
    certified = f"{signer.file}-cert.pub"
    (repository.work / "file").write_text("one")
    repository.git("add", "file")
    repository.git("-c", "gpg.format=ssh", "-c", f"user.signingkey={certified}", "commit", "-qS", "-m", "one")
    repository.git("push", "-q", "origin", "HEAD:main")
    line = f"*@example.com cert-authority {authority.line}\n"
    verdict = repository.judge(by_ssh(repository.file("signers", line)))
    assert verdict.accepted, verdict
    assert "SSH certificate" in verdict.signer
    assert not repository.judge(
        by_ssh(repository.file("others", f"*@example.com cert-authority {alice.line}\n"))
    ).accepted
    assert not repository.judge(by_ssh(repository.file("plain", f"*@example.com {authority.line}\n"))).accepted


# --- objects that were changed ------------------------------------------------------------------------------------------


def rewritten(repository: SignedRepository, change) -> Head:
    """HEAD with changed bytes, as a server may offer it."""
    raw = repository.git("cat-file", "commit", "HEAD") + "\n"
    oid = repository.git("hash-object", "-w", "-t", "commit", "--stdin", data=change(raw))
    repository.git("push", "-q", "--force", "origin", f"{oid}:refs/heads/main")
    return Head("refs/heads/main", oid)


@pytest.mark.parametrize("how", ["author", "message", "tree", "parent"])
@pytest.mark.parametrize("kind", ["ssh", "pgp"])
def test_a_commit_that_was_changed_after_it_was_signed_is_refused(repository, alice, home, kind, how):
    key = alice if kind == "ssh" else home.key(f"Fred{how}")
    first = repository.commit("zero")
    repository.commit("one", key, home if kind == "pgp" else None)
    tree = repository.git("rev-parse", "HEAD~1^{tree}")
    changes = {
        "author": lambda raw: raw.replace("author Alice", "author Carol"),
        "message": lambda raw: raw + "and more\n",
        "tree": lambda raw: f"tree {tree}\n" + raw.partition("\n")[2],
        "parent": lambda raw: raw.replace(f"parent {first}\n", ""),
    }
    head = rewritten(repository, changes[how])
    policy = (
        by_ssh(repository.file("a.pub", alice.public))
        if kind == "ssh"
        else by_pgp(str(home.public(key, repository.keys / "f.asc")))
    )
    verdict = repository.judge(policy, head=head)
    assert not verdict.accepted
    assert verdict.commit == head.commit
    if kind == "pgp":
        assert verdict.cause == "the signature does not match: what it signs was changed"


@pytest.mark.parametrize(
    "signature",
    [
        "-----BEGIN SSH SIGNATURE-----\n U1NIU0lH\n -----END SSH SIGNATURE-----",
        "-----BEGIN SSH SIGNATURE-----\n !!!\n -----END SSH SIGNATURE-----",
        "-----BEGIN PGP SIGNATURE-----\n \n iHUE\n -----END PGP SIGNATURE-----",
        "-----BEGIN SIGNED MESSAGE-----\n MII=\n -----END SIGNED MESSAGE-----",
        "trust me",
        "[GNUPG:] VALIDSIG 0 0 0 0 0 0 0 0 0 0",
    ],
)
def test_a_signature_that_is_none_is_refused(repository, alice, home, signature):
    carol = home.key(f"Gus{abs(hash(signature)) % 10_000}")
    repository.commit("one")
    head = rewritten(repository, lambda raw: raw.replace("\n\n", f"\ngpgsig {signature}\n\n", 1))
    files = (repository.file("a.pub", alice.public),), (str(home.public(carol, repository.keys / "c.asc")),)
    verdict = repository.judge(SignaturePolicy(VerifyMode.HEAD, *files), head=head)
    assert not verdict.accepted
    assert verdict.cause


def test_names_of_authors_are_escaped(repository, alice):
    repository.commit("one", GIT_AUTHOR_NAME="Eve\x1b[31m ::error:: \u202e")
    verdict = repository.judge(by_ssh(repository.file("a.pub", alice.public)))
    assert "\x1b" not in verdict.message
    assert "\u202e" not in verdict.message


# --- tags ---------------------------------------------------------------------------------------------------------------


def tag_policy(repository: SignedRepository, alice: SshKey) -> SignaturePolicy:
    return by_ssh(repository.file("a.pub", alice.public), mode=VerifyMode.TAG)


def test_a_signed_tag_is_accepted_with_any_author_of_the_commit(repository, alice):
    commit = repository.commit("one")
    repository.tag("v1", alice)
    verdict = repository.judge(tag_policy(repository, alice), "v1")
    assert verdict.accepted, verdict
    assert (verdict.commit, verdict.tag) == (commit, "v1")


def test_a_signed_commit_does_not_stand_for_a_signed_tag(repository, alice):
    repository.commit("one", alice)
    repository.tag("v1")
    verdict = repository.judge(tag_policy(repository, alice), "v1")
    assert not verdict.accepted
    assert verdict.cause == "the tag has no signature"
    assert "tag v1" in verdict.message


def test_a_light_tag_is_refused(repository, alice):
    repository.commit("one", alice)
    repository.git("tag", "light")
    repository.git("push", "-q", "origin", "light")
    verdict = repository.judge(tag_policy(repository, alice), "light")
    assert not verdict.accepted
    assert verdict.cause == "the tag is a light one, which has no signature"


def test_a_tag_of_an_unknown_key_is_refused(repository, alice, mallory):
    repository.commit("one")
    repository.tag("v1", mallory)
    verdict = repository.judge(tag_policy(repository, alice), "v1")
    assert not verdict.accepted
    assert mallory.fingerprint in verdict.message


def test_a_branch_needs_a_signed_tag_at_its_commit(repository, alice, mallory):
    policy = tag_policy(repository, alice)
    repository.commit("one", alice)
    assert not repository.judge(policy).accepted
    repository.tag("unsigned")
    repository.tag("v1", mallory)
    assert not repository.judge(policy).accepted
    repository.tag("v2", alice)
    verdict = repository.judge(policy)
    assert verdict.accepted, verdict
    assert verdict.tag == "v2"
    repository.commit("two", alice)
    verdict = repository.judge(policy)
    assert not verdict.accepted
    assert verdict.cause == "no annotated tag names it"


def test_an_old_tag_under_another_name_is_refused(repository, alice):
    repository.commit("one")
    repository.tag("v1", alice)
    old = repository.git("rev-parse", "v1")
    repository.git("push", "-q", "origin", f"{old}:refs/tags/v9")
    verdict = repository.judge(tag_policy(repository, alice), "v9")
    assert not verdict.accepted
    assert "calls itself v1" in verdict.cause


def test_a_server_that_lies_about_the_commit_of_a_tag_is_not_believed(repository, alice):
    repository.commit("one")
    repository.tag("v1", alice)
    tag = repository.git("rev-parse", "v1")
    evil = repository.commit("two")
    verdict = repository.judge(tag_policy(repository, alice), head=Head("refs/tags/v1", evil, tag))
    assert not verdict.accepted
    assert verdict.cause == "the signed tag names another commit"


def test_a_signed_tag_of_a_tag_leads_to_the_commit(repository, alice):
    commit = repository.commit("one")
    repository.tag("inner")
    settings = repository.signing(alice)
    repository.git(*settings, "tag", "-s", "-m", "outer", "outer", "inner")
    repository.git("push", "-q", "origin", "outer")
    verdict = repository.judge(tag_policy(repository, alice), "outer")
    assert verdict.commit == commit
    assert verdict.accepted, verdict


# --- keys ---------------------------------------------------------------------------------------------------------------


def test_a_changed_file_of_keys_counts_at_the_next_poll(repository, alice, mallory):
    repository.commit("one", mallory)
    policy = by_ssh(repository.file("signers", alice.public))
    assert not repository.judge(policy).accepted
    repository.file("signers", f"{alice.public}\n{mallory.public}\n")
    assert repository.judge(policy).accepted
    repository.file("signers", alice.public)
    assert not repository.judge(policy).accepted


def test_only_one_state_of_the_keys_is_kept_and_it_is_private(repository, alice, home):
    carol = home.key("Hanna")
    repository.commit("one", alice)
    for line in (alice.public, f"{alice.public} more"):
        files = (repository.file("a.pub", line),), (str(home.public(carol, repository.keys / "c.asc")),)
        assert repository.judge(SignaturePolicy(VerifyMode.HEAD, *files)).accepted
        repository.file("b.pub", line)
    place = repository.place / "mirror" / "keys"
    assert len(list(place.iterdir())) == 1
    for top, _, names in os.walk(place):
        assert stat.S_IMODE(os.stat(top).st_mode) == 0o700
        for name in names:
            if name in {"allowed_signers", "gpg.conf", "complete"}:
                assert stat.S_IMODE(os.stat(os.path.join(top, name)).st_mode) == 0o600


def test_no_signature_is_asked_for_without_a_mode(repository):
    repository.commit("one")
    with repository.mirror as mirror:
        head = mirror.head("main")
        mirror.fetch(head)
        assert repository.signatures.judge(mirror, SignaturePolicy(), head, NOW) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has no SSH key"),
        ("# none\n", "it has no SSH key"),
        ("garbage\n", ":1: it is no SSH key"),
        ("\n\nalice ssh-ed25519\n", ":3: it is no SSH key"),
        ("alice ssh-ed25519 !!!\n", ":1: its key is not Base64"),
        ("alice ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIAAA\n", ":1: its key is not of the type ssh-rsa"),
        ('alice valid-before="soon" {key}\n', "'soon' is not a time"),
        ('alice valid-before="20271340" {key}\n', "'20271340' is no date that exists"),
        ("alice touch-required {key}\n", "its option touch-required is unknown"),
        ("alice valid-before=20270101 {key}\n", "its option valid-before=20270101 is unknown"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\n", "it has a private key"),
        ("\udcff\udcfe", "it is not a text of SSH keys"),
    ],
)
def test_a_file_of_ssh_keys_that_cannot_be_used_refuses_every_commit(repository, alice, text, said):
    commit = repository.commit("one", alice)
    path = repository.keys / "signers"
    path.write_bytes(text.replace("{key}", alice.line).encode("utf-8", "surrogateescape"))
    path.chmod(0o600)
    verdict = repository.judge(by_ssh(str(path)))
    assert not verdict.accepted
    assert said in verdict.cause
    assert str(path) in verdict.cause
    assert commit[:12] in verdict.message
    assert verdict.hint


def test_a_file_of_pgp_keys_that_is_none_refuses_every_commit(repository, alice):
    repository.commit("one", alice)
    verdict = repository.judge(by_pgp(repository.file("carol.asc", "no key")))
    assert not verdict.accepted
    assert "gpg cannot read it as PGP public keys" in verdict.cause


def test_a_private_pgp_key_is_refused(repository, home):
    ida = home.key("Ida")
    repository.commit("one", ida, home)
    verdict = repository.judge(by_pgp(repository.file("ida.asc", home.gpg("--armor", "--export-secret-keys", ida))))
    assert not verdict.accepted
    assert "it has a private key" in verdict.cause


def test_a_missing_file_of_keys_is_an_error_and_not_an_empty_list(repository, alice):
    repository.commit("one", alice)
    verdict = repository.judge(by_ssh(str(repository.keys / "none")))
    assert not verdict.accepted
    assert "none: cannot be read: no such file or directory" in verdict.cause


def test_a_missing_list_of_revoked_keys_refuses_every_commit(repository, alice):
    repository.commit("one", alice)
    verdict = repository.judge(by_ssh(repository.file("a.pub", alice.public), revoked=str(repository.keys / "none")))
    assert not verdict.accepted
    assert "cannot be read" in verdict.cause


def test_a_file_of_keys_that_others_can_write_is_refused(repository, alice):
    repository.commit("one", alice)
    path = repository.file("a.pub", alice.public)
    os.chmod(path, 0o666)
    verdict = repository.judge(by_ssh(path))
    assert not verdict.accepted
    assert "writable by all users" in verdict.cause


def test_the_key_ring_of_the_user_is_not_looked_at(repository, home, monkeypatch):
    jane, carol = home.key("Jane"), home.key("Carlotta")
    repository.commit("one", jane, home)
    monkeypatch.setenv("GNUPGHOME", str(home.place))  # has Jane's key
    verdict = repository.judge(by_pgp(str(home.public(carol, repository.keys / "c.asc"))))
    assert not verdict.accepted
    assert verdict.cause == "the key is not in source.verify.keys"


def test_programs_that_the_repository_or_the_user_configures_do_not_run(repository, alice, tmp_path, monkeypatch):
    ran = tmp_path / "ran"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {ran}\nexit 0\n")
    evil.chmod(0o700)
    (tmp_path / ".gitconfig").write_text(f'[gpg "ssh"]\n\tprogram = {evil}\n[gpg]\n\tprogram = {evil}\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    repository.commit("one", alice)
    repository.git("config", "--file", str(repository.bare / "config"), "gpg.ssh.program", str(evil))
    assert repository.judge(by_ssh(repository.file("a.pub", alice.public))).accepted
    assert not ran.exists()


def test_a_poll_without_news_starts_no_program(repository, alice):
    repository.commit("one", alice)
    policy = by_ssh(repository.file("a.pub", alice.public))
    with repository.mirror as mirror:
        head = mirror.head("main")
        mirror.fetch(head)
        first = repository.signatures.judge(mirror, policy, head, NOW)
        began = time.process_time(), os.times().children_user
        assert repository.signatures.judge(mirror, policy, head, NOW) is first
        assert os.times().children_user == began[1]
