"""Decides whether a commit of the source has the signature that local documents ask for. Called by `reader.py` at each poll.

    check = SignatureCheck(instance_file)
    check(mirror, head, source)              raises Unverified, or says whose signature the commit has

git is the judge: `git verify-commit` and `git verify-tag` must succeed with nothing but the keys of the policy (`trusted.py`). Then the
key that made the signature must be one of them. What git prints gives only the reason of a refusal. A signature says who made a
commit, not that it is the newest one or meant for this branch: a server may still offer an older signed commit, which is a ref that
moves back (`requireFastForward`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from manifests.escape import escape
from manifests.kinds.source import Source
from manifests.values.desired import SECOND
from manifests.values.verify import SignaturePolicy, VerifyMode
from providers.lib.program import Ran
from reconciler.git.errors import Unverified
from reconciler.git.mirror import Head, Mirror
from reconciler.git.signature import SHOWN, Kind, Signed, read_commit, read_tag
from reconciler.git.trusted import Key, Trusted, UnusableKeys, read_trusted, remove_all
from reconciler.shell.clock import BlockingClock

TAGS = 10
"""The most tags at a commit that are tried, newest first."""

NESTED = 5
"""The most tags of tags that are followed to the commit."""

_STATUS = re.compile(r"^\[GNUPG:\] ([A-Z_]+)(?: (.*))?$", re.MULTILINE)

_GOOD = re.compile(r'^Good "git" signature(?: for (\S+))? with \S+ key (SHA256:\S+)$', re.MULTILINE)

SIGN_AGAIN = "sign with a key of source.verify.keys, and push again"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a commit may be used.

    Attributes:
        accepted: it may.
        commit: its number.
        author: of the commit, escaped; the name is whatever the author wrote.
        signer: whose key signed it, as far as that is known: `PGP key … (OWNER)`, `unsigned`; escaped.
        mode: what must be signed.
        tag: the tag whose signature counted, or was refused; empty for none.
        cause: why it was refused; empty when it was not. hint: the next step.
    """

    accepted: bool
    commit: str
    author: str
    signer: str
    mode: VerifyMode
    tag: str = ""
    cause: str = ""
    hint: str = ""

    @property
    def message(self) -> str:
        """The verdict in one line: commit, author, signer, rule and cause."""
        at = f", tag {self.tag}" if self.tag else ""
        what = f"commit {self.commit[:12]} by {self.author} ({self.signer}{at})"
        if self.accepted:
            return f"{what} has the signature that source.verify.mode: {self.mode} asks for"
        return f"{what} is refused by source.verify.mode: {self.mode}: {self.cause}"


class Signatures:
    """Judges commits. It remembers its last verdict, so that a poll without news costs only a look at the files of keys.

    Args:
        name: of the directory, in that of the mirror, for what git gets of the keys: other local documents need another one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._last: tuple[tuple[SignaturePolicy, str, Head], Verdict] | None = None

    def judge(self, mirror: Mirror, policy: SignaturePolicy, head: Head, now: int) -> Verdict | None:
        """Whether the commit of a head, which the mirror has, may be used; None when no signature is needed.

        Args:
            mirror: is in use (its lock is held). policy: of the local documents, as they are now. now: wall-clock second.

        Raises:
            GitError: the mirror is damaged, or the remote cannot be asked for tags. Nothing is known then.
        """
        directory = mirror.directory / self._name
        if not policy.wanted:
            remove_all(directory)
            self._last = None
            return None
        try:
            trusted = read_trusted(policy, directory, now)
        except UnusableKeys as error:
            self._last = None
            author, signer = _shown(read_commit(mirror.object(head.commit).data), None)
            cause = f"no signature can be checked: {error.cause}"
            return Verdict(False, head.commit, author, signer, policy.mode, "", cause, error.hint)
        asked = (policy, trusted.state, head)
        if self._last is not None and self._last[0] == asked:
            known = self._last[1]
            if known.accepted or policy.mode is VerifyMode.HEAD:  # else another tag may be there now
                return known
        verdict = _Check(mirror, policy.mode, head, trusted, now).verdict()
        self._last = asked, verdict
        return verdict


class SignatureCheck:
    """The check of a reader: refuses each commit without the signature that the source of local documents asks for.

    Args:
        instance_file: the local documents.
        clock: gives the wall-clock time.
    """

    def __init__(self, instance_file: Path | None, clock: BlockingClock) -> None:
        name = "" if instance_file is None else str(instance_file.absolute())
        self._signatures = Signatures(f"keys-{sha256(name.encode()).hexdigest()[:16]}")
        self._clock = clock
        self._said = ""

    def __call__(self, mirror: Mirror, head: Head, source: Source | None) -> str:
        """What to report about an accepted commit, once. Raises GitError: Unverified, or nothing is known."""
        policy = SignaturePolicy() if source is None or source.verify is None else source.verify.policy()
        verdict = self._signatures.judge(mirror, policy, head, self._clock.now().wall // SECOND)
        if verdict is None:
            return ""
        if not verdict.accepted:
            self._said = ""
            raise Unverified(verdict.message, verdict.hint)
        said, self._said = self._said, verdict.message
        return "" if said == verdict.message else verdict.message


class _Check:
    """One check of one commit."""

    def __init__(self, mirror: Mirror, mode: VerifyMode, head: Head, trusted: Trusted, now: int) -> None:
        self._mirror, self._mode, self._head, self._trusted, self._now = mirror, mode, head, trusted, now
        self._commit = read_commit(mirror.object(head.commit).data)

    def verdict(self) -> Verdict:
        if self._mode is VerifyMode.HEAD:
            return self._judged(self._commit, "verify-commit", self._head.commit)
        if self._head.tag:
            return self._of_tag(self._head)
        if self._head.ref.startswith("refs/tags/"):
            name = escape(self._head.ref.removeprefix("refs/tags/"))
            hint = f"replace it with a signed one: git tag --sign --force {name}"
            return self._refused("unsigned", "the tag is a light one, which has no signature", hint, name)
        return self._of_any_tag()

    def _of_any_tag(self) -> Verdict:
        """The verdict of the newest tag at the commit that verifies; of the newest one when none does."""
        first: Verdict | None = None
        for head in self._newest_tags():
            verdict = self._of_tag(head)
            if verdict.accepted:
                return verdict
            first = first or verdict
        hint = "push a signed tag of this commit: git tag --sign NAME, git push origin NAME"
        return first or self._refused("unsigned", "no annotated tag names it", hint)

    def _newest_tags(self) -> Iterator[Head]:
        heads = self._mirror.tags_at(self._head.commit)
        known = [(read_tag(self._mirror.object(head.tag).data).when, head.ref, head) for head in heads]
        for _, _, head in sorted(known, reverse=True)[:TAGS]:
            yield head

    def _of_tag(self, head: Head) -> Verdict:
        """The verdict of one annotated tag."""
        data = self._mirror.object(head.tag)
        name = escape(head.ref.removeprefix("refs/tags/")[:SHOWN])
        if data.kind != "tag":
            return self._refused("unsigned", "the server names an object that is no tag", SIGN_AGAIN, name)
        tag = read_tag(data.data)
        if head.ref and tag.name != head.ref.removeprefix("refs/tags/"):
            cause = f"the signed tag calls itself {escape(tag.name[:SHOWN])}: a server may offer an old tag under another name"
            _, signer = _shown(tag, self._trusted)
            return self._refused(signer, cause, "delete the tag, and tag the commit again under its own name", name)
        if not self._names_commit(tag):
            _, signer = _shown(tag, self._trusted)
            return self._refused(
                signer, "the signed tag names another commit", "tag this commit, and push the tag", name
            )
        return self._judged(tag, "verify-tag", head.tag, name)

    def _names_commit(self, tag: Signed) -> bool:
        """Whether a tag names the commit: the word of the server is no proof."""
        for _ in range(NESTED):
            if tag.target_kind == "commit":
                return tag.target == self._head.commit
            if tag.target_kind != "tag":
                return False
            tag = read_tag(self._mirror.object(tag.target).data)
        return False

    def _judged(self, signed: Signed, verb: str, oid: str, tag: str = "") -> Verdict:
        """The verdict of git about one object."""
        _, signer = _shown(signed, self._trusted)
        what = "the tag" if tag else "the commit"
        if signed.kind is Kind.NONE:
            return self._refused(signer, f"{what} has no signature", SIGN_AGAIN, tag)
        if signed.kind not in (Kind.SSH, Kind.PGP):
            return self._refused(signer, f"{what} has a signature that is neither of SSH nor of PGP", SIGN_AGAIN, tag)
        keys = self._trusted.ssh if signed.kind is Kind.SSH else self._trusted.pgp
        if not keys:
            cause = f"{what} has an {signed.kind} signature, and source.verify.keys has no {signed.kind} key"
            return self._refused(signer, cause.replace("an PGP", "a PGP"), SIGN_AGAIN, tag)
        if signed.kind is Kind.SSH:
            verdict = self._of_ssh(signed, self._git(verb, oid), tag)
            revoked = self._trusted.revoked is not None and not verdict.accepted
            if revoked and self._of_ssh(signed, self._git(verb, oid, revoked=False), tag).accepted:
                return replace(verdict, cause="the key is in source.verify.revoked")
            return verdict
        return self._of_pgp(self._git(verb, oid), tag)

    def _git(self, verb: str, oid: str, *, revoked: bool = True) -> Ran:
        """Git's check. `revoked`: revoked SSH keys count as such; without it, only to say why a key is refused."""
        place = self._trusted.directory
        settings = [
            f"gpg.ssh.allowedSignersFile={place / 'allowed_signers'}",
            "gpg.ssh.program=ssh-keygen",
            "gpg.program=gpg",
            "gpg.openpgp.program=gpg",
            "gpg.x509.program=false",
            "gpg.minTrustLevel=undefined",
        ]
        if revoked and self._trusted.revoked is not None:
            settings.append(f"gpg.ssh.revocationFile={self._trusted.revoked}")
        return self._mirror.check(verb, oid, settings, {"GNUPGHOME": str(place / "gnupg")})

    def _of_ssh(self, signed: Signed, ran: Ran, tag: str) -> Verdict:
        known = [key for key in self._trusted.ssh if key.id == signed.key]
        counts = [key for key in known if not key.invalid(self._now)]
        _, signer = _shown(signed, self._trusted)
        named = _GOOD.search(ran.err_text) if signed.certificate else None
        if named is not None:  # the key itself, without its certificate
            signer = escape(f"SSH certificate {named[2]}{f' of {named[1]}' if named[1] else ''}"[:SHOWN])
        authority = any(key.authority and not key.invalid(self._now) for key in self._trusted.ssh)
        if ran.code == 0 and (counts or (signed.certificate and authority)):
            return self._accepted(signer, tag)
        if signed.certificate and not known:
            return self._refused(signer, f"git refuses its certificate ({_said(ran)})", SIGN_AGAIN, tag)
        if not known:
            return self._refused(signer, "the key is not in source.verify.keys", SIGN_AGAIN, tag)
        if not counts:
            return self._refused(signer, f"the key {known[0].invalid(self._now)}", SIGN_AGAIN, tag)
        return self._refused(signer, f"git refuses the signature ({_said(ran)})", SIGN_AGAIN, tag)

    def _of_pgp(self, ran: Ran, tag: str) -> Verdict:
        status = [(word, (rest or "").split()) for word, rest in _STATUS.findall(ran.err_text)]
        by = dict(status)
        valid = [rest for word, rest in status if word == "VALIDSIG"]
        claimed = valid[0][0] if valid and valid[0] else next(
            (rest[-1 if word == "ERRSIG" and len(rest) >= 7 else 0] for word, rest in status
             if word in {"ERRSIG", "BADSIG", "EXPKEYSIG", "REVKEYSIG", "EXPSIG", "NO_PUBKEY"} and rest), ""
        )  # fmt: skip
        key = self._pgp(claimed)
        signer = _pgp_signer(claimed, key)
        one = len(valid) == 1 and len(valid[0]) >= 10
        if ran.code == 0 and one and key is not None and valid[0][9] == key.primary and not key.invalid(self._now):
            return self._accepted(signer, tag)
        if key is not None and key.invalid(self._now):
            return self._refused(signer, f"the key {key.invalid(self._now)}", SIGN_AGAIN, tag)
        if "REVKEYSIG" in by:
            return self._refused(signer, "the key is revoked", SIGN_AGAIN, tag)
        if "EXPKEYSIG" in by or "EXPSIG" in by:
            which = "the key" if "EXPKEYSIG" in by else "the signature"
            return self._refused(signer, f"{which} is expired", SIGN_AGAIN, tag)
        if "BADSIG" in by:
            cause = "the signature does not match: what it signs was changed"
            return self._refused(signer, cause, SIGN_AGAIN, tag)
        if key is None:
            return self._refused(signer, "the key is not in source.verify.keys", SIGN_AGAIN, tag)
        return self._refused(signer, f"git refuses the signature ({_said(ran)})", SIGN_AGAIN, tag)

    def _pgp(self, claimed: str) -> Key | None:
        """The trusted key of a fingerprint, or of a key id (its end)."""
        if len(claimed) < 16:
            return None
        return next((key for key in self._trusted.pgp if key.id.upper().endswith(claimed.upper())), None)

    def _accepted(self, signer: str, tag: str) -> Verdict:
        return Verdict(True, self._head.commit, self._commit.who, signer, self._mode, tag)

    def _refused(self, signer: str, cause: str, hint: str, tag: str = "") -> Verdict:
        return replace(self._accepted(signer, tag), accepted=False, cause=cause, hint=hint)


def _shown(signed: Signed, trusted: Trusted | None) -> tuple[str, str]:
    """Who wrote an object, and whose key signed it by its own words."""
    if signed.kind is Kind.NONE:
        return signed.who, "unsigned"
    if signed.kind is not Kind.SSH or not signed.key:
        return signed.who, f"{signed.kind} signature"
    owner = next((key.owner for key in trusted.ssh if key.id == signed.key), "") if trusted is not None else ""
    kind = "SSH certificate" if signed.certificate else "SSH key"
    return signed.who, f"{kind} {signed.key}{f' of {owner}' if owner else ''}"


def _pgp_signer(claimed: str, key: Key | None) -> str:
    if key is None:
        return f"PGP key {escape(claimed[:64])}" if claimed else "PGP signature"
    return f"PGP key {key.id}{f' of {key.owner}' if key.owner else ''}"


def _said(ran: Ran) -> str:
    """The last line that git or its helper printed."""
    lines = [line.strip() for line in ran.err_text.splitlines() if line.strip() and not line.startswith("[GNUPG:]")]
    return escape(lines[-1][:200]) if lines else f"exit code {ran.code}"
