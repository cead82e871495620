"""Starts the process that plans one head, and reads its answer. Called by the reviewer, one plan at a time.

The process gets the variables that the source of the local Instance refers to, and no other secret of this process.
"""

import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import reconciler
from manifests.load import declared_instance
from manifests.problems import ManifestErrors
from manifests.source.local import read_local
from providers.lib.program import ProgramError, run

ANSWER = 16 * 1024 * 1024
"""Most bytes of an answer."""

_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from reconciler.reviews.child import main; sys.exit(main())"
_ROOT = str(Path(reconciler.__file__).resolve().parents[1])


class CannotPlan(Exception):
    """There is no plan: the cause."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans heads.

    Attributes:
        instance_file: the local documents.
        mirrors: the directory of the mirror of heads; the daemon's own mirror is never used, so a large head holds up no poll.
        stop: ends a plan that is being made.
        environment: as in `read_sources`: the one that the daemon follows.
    """

    instance_file: Path
    mirrors: Path
    stop: threading.Event
    environment: str | None = None

    def plan(self, ref: str, commit: str, base: str, snapshot: str, seconds: float) -> dict[str, Any]:
        """The answer of `child.py` for a head. Raises CannotPlan."""
        order = {
            "instance_file": str(self.instance_file.absolute()),
            "mirrors": str(self.mirrors.absolute()),
            "ref": ref,
            "commit": commit,
            "base": base,
            "snapshot": snapshot,
            "environment": self.environment,
        }
        command = [sys.executable, "-I", "-X", "utf8", "-c", _BOOT, _ROOT]
        try:
            ran = run(
                command,
                timeout=seconds,
                env=self._variables(),
                stdin=json.dumps(order).encode(),
                output=ANSWER,
                stop=self.stop,
            )
        except ProgramError as error:
            raise CannotPlan(f"the plan of commit {commit[:12]} was not made: {error.cause}") from error
        try:
            answer: dict[str, Any] = json.loads(ran.out)
        except ValueError as error:
            last = (ran.err_text.strip().splitlines() or [f"exit {ran.code}"])[-1]
            raise CannotPlan(f"the plan of commit {commit[:12]} was not made: {last[:200]}") from error
        return answer

    def _variables(self) -> dict[str, str]:
        try:
            spec = declared_instance(read_local(self.instance_file, os.devnull))
        except ManifestErrors:
            return {}
        source = None if spec is None else spec.source
        references = () if source is None else (source.token, source.ssh_key)
        names = {reference.env for reference in references if reference is not None and reference.env}
        names.add("CREDENTIALS_DIRECTORY")  # of systemd credentials
        return {name: os.environ[name] for name in names if name in os.environ}
