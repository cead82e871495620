"""A repository with commits and tags of real keys, its mirror, and local documents that name keys."""

import os
import subprocess
from pathlib import Path

from manifests.values.verify import SignaturePolicy, VerifyMode
from reconciler.git.mirror import Head, Mirror
from reconciler.git.verify import Signatures, Verdict

ALICE = "Alice <alice@example.com>"
NOW = 1_796_000_000
"""A wall-clock second of these tests, after all commits."""
COMMITTED = "1795000000 +0000"
"""When the commits were made."""


def run(*command: str, cwd: Path, env: dict[str, str] | None = None, data: str = "") -> str:
    """What a program prints; fails when it fails."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "SSH_", "GNUPG"))}
    own = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(cwd), **(env or {})}
    done = subprocess.run(
        command, cwd=cwd, env=variables | own, input=data, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout.strip()


class SshKey:
    """A new SSH key; its files are NAME and NAME.pub."""

    def __init__(self, place: Path, name: str, comment: str = "") -> None:
        self.file = place / name
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment or f"{name}@example.com"]
        run(*command, "-f", str(self.file), cwd=place)
        self.public = (place / f"{name}.pub").read_text().strip()
        self.line = " ".join(self.public.split()[:2])
        self.fingerprint = run("ssh-keygen", "-l", "-f", f"{self.file}.pub", cwd=place).split()[1]


class PgpHome:
    """A key ring with private keys, for the authors of commits. End it with `close`, because gpg starts an agent."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.env = {"GNUPGHOME": str(place)}
        place.mkdir(mode=0o700)

    def gpg(self, *words: str, data: str = "") -> str:
        command = ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", *words]
        return run(*command, cwd=self.place, env=self.env, data=data)

    def key(self, name: str, expires: str = "never", at: str = "") -> str:
        """Make a key. Returns its fingerprint. `at`: when it is made, by gpg's own clock."""
        fake = ["--faked-system-time", at] if at else []
        self.gpg(*fake, "--quick-gen-key", f"{name} <{name.lower()}@example.com>", "ed25519", "sign", expires)
        listing = self.gpg("--with-colons", "--list-keys", name)
        return next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))

    def public(self, fingerprint: str, to: Path) -> Path:
        to.write_text(self.gpg("--armor", "--export", fingerprint) + "\n")
        to.chmod(0o600)
        return to

    def revoke(self, fingerprint: str) -> None:
        """Import the certificate that gpg wrote when it made the key; a colon before its first line keeps it unused until then."""
        text = (self.place / "openpgp-revocs.d" / f"{fingerprint}.rev").read_text().replace(":-----", "-----")
        self.gpg("--import", data=text)

    def close(self) -> None:
        run("gpgconf", "--kill", "all", cwd=self.place, env=self.env)


class SignedRepository:
    """A bare repository, a clone in which authors work, and the mirror of a daemon."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.bare, self.work = place / "bare.git", place / "work"
        run("git", "init", "-q", "--bare", "-b", "main", str(self.bare), cwd=place)
        run("git", "init", "-q", "-b", "main", str(self.work), cwd=place)
        self.git("remote", "add", "origin", str(self.bare))
        self.mirror = Mirror(place / "mirror", f"file://{self.bare}")
        self.signatures = Signatures("keys")
        self.keys = place / "keys"
        self.keys.mkdir(mode=0o700)

    def git(self, *words: str, env: dict[str, str] | None = None, data: str = "") -> str:
        own = {"GIT_AUTHOR_NAME": "Alice", "GIT_AUTHOR_EMAIL": "alice@example.com", "GIT_COMMITTER_NAME": "Alice"}
        own |= {
            "GIT_COMMITTER_EMAIL": "alice@example.com",
            "GIT_AUTHOR_DATE": COMMITTED,
            "GIT_COMMITTER_DATE": COMMITTED,
        }
        return run("git", *words, cwd=self.work, env=own | (env or {}), data=data)

    def signing(self, key: "SshKey | str", home: PgpHome | None = None) -> list[str]:
        if isinstance(key, SshKey):
            return ["-c", "gpg.format=ssh", "-c", f"user.signingkey={key.file}"]
        assert home is not None
        return ["-c", "gpg.format=openpgp", "-c", f"user.signingkey={key}!"]

    def commit(self, text: str, key: "SshKey | str | None" = None, home: PgpHome | None = None, **env: str) -> str:
        """Commit a file and push it. Returns the commit."""
        (self.work / "file").write_text(text)
        self.git("add", "file")
        settings = self.signing(key, home) if key is not None else []
        sign = ["-S"] if key is not None else ["--no-gpg-sign"]
        self.git(*settings, "commit", "-q", *sign, "-m", text, env={**(home.env if home else {}), **env})
        self.git("push", "-q", "--force", "origin", "HEAD:main")
        return self.git("rev-parse", "HEAD")

    def tag(self, name: str, key: "SshKey | str | None" = None, home: PgpHome | None = None, *words: str) -> None:
        """Tag HEAD, annotated, and push it."""
        settings = self.signing(key, home) if key is not None else []
        sign = "-s" if key is not None else "-a"
        self.git(*settings, "tag", "-f", sign, "-m", name, *words, name, env=home.env if home else {})
        self.git("push", "-q", "--force", "origin", f"refs/tags/{name}")

    def file(self, name: str, text: str) -> str:
        """A file of keys that local documents name."""
        path = self.keys / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    def judge(self, policy: SignaturePolicy, ref: str = "main", now: int = NOW, head: Head | None = None) -> Verdict:
        """The verdict about what a ref names now."""
        with self.mirror as mirror:
            head = head or mirror.head(ref)
            mirror.fetch(head)
            verdict = self.signatures.judge(mirror, policy, head, now)
        assert verdict is not None
        return verdict


def by_ssh(*files: str, mode: VerifyMode = VerifyMode.HEAD, revoked: str = "") -> SignaturePolicy:
    return SignaturePolicy(mode, ssh=files, ssh_revoked=revoked)


def by_pgp(*files: str, mode: VerifyMode = VerifyMode.HEAD) -> SignaturePolicy:
    return SignaturePolicy(mode, pgp=files)
