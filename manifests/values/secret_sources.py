"""Where secrets are, and how this host gets at them: references, and what local documents say about programs and identities.

Apart from `pod.py` because providers, probes and listeners refer to secrets too. Pure values: created by `kinds/secret_ref.py` and
`resolve/instance.py`, resolved by `providers/lib/secrets.py`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretSource:
    """Where a secret is. Exactly one of `env`, `file`, `command`, `credential`, `sops_file` and `age_file` is not empty.

    Attributes:
        env: variable of the reconciler's environment.
        file: absolute path.
        command: name of a command of the Instance.
        credential: name of a systemd credential.
        sops_file: file encrypted by SOPS; relative to the manifests' directory, or absolute. `sops_key` is the path of the value in it,
            empty = the whole file.
        age_file: file encrypted by age, as `sops_file`. `identity` names the identity of the Instance, empty = its only one.
    """

    env: str = ""
    file: str = ""
    command: str = ""
    credential: str = ""
    sops_file: str = ""
    sops_key: str = ""
    age_file: str = ""
    identity: str = ""

    def __str__(self) -> str:
        if self.env:
            return f"environment variable {self.env}"
        if self.command:
            return f"secret command {self.command}"
        if self.credential:
            return f"systemd credential {self.credential}"
        if self.sops_file:
            return f"{f'key {self.sops_key} of ' if self.sops_key else ''}SOPS file {self.sops_file}"
        return f"age file {self.age_file}" if self.age_file else f"file {self.file}"

    @property
    def encrypted_file(self) -> str:
        """The file that has to be decrypted; empty for other sources."""
        return self.sops_file or self.age_file

    @property
    def runs_program(self) -> bool:
        """Whether another program gives the secret."""
        return bool(self.command or self.encrypted_file)

    def fields(self) -> dict[str, str]:
        """The fields that are set, by name: for labels. `SecretSource(**fields)` is the source again."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name))}


@dataclass(frozen=True, slots=True)
class SecretCommand:
    """A program whose output is a secret.

    Attributes:
        name: by which references name it.
        argv: the program and its arguments.
        timeout: time (ns) after which it and its children are killed.
        refresh: time (ns) for which an output is used before the program runs again.
        env: its own variables.
        pass_env: variables of the reconciler's environment that it gets too.
    """

    name: str
    argv: tuple[str, ...]
    timeout: int
    refresh: int
    env: tuple[tuple[str, str], ...] = ()
    pass_env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decryption:
    """How SOPS and age files are decrypted.

    Attributes:
        identities: name and absolute path of each file of age identities.
        sops_identity: path of the identity for SOPS; empty = SOPS finds one as its environment says.
        sops_env, sops_pass_env: variables of SOPS, and those that it gets from the reconciler's environment.
        key_services: addresses of key services (HashiCorp Vault, Azure Key Vault) that a SOPS file may name; None = any.
        timeout: time (ns) after which a program is killed.
    """

    identities: tuple[tuple[str, str], ...] = ()
    sops_identity: str = ""
    sops_env: tuple[tuple[str, str], ...] = ()
    sops_pass_env: tuple[str, ...] = ()
    key_services: tuple[str, ...] | None = None
    timeout: int = 10 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class SecretPrograms:
    """What the Instance says about secrets that other programs give."""

    commands: tuple[SecretCommand, ...] = ()
    decryption: Decryption = Decryption()


NO_PROGRAMS = SecretPrograms()
