"""The daemon's side of written images: one thread that writes deployments and what image policies chose, one after the other.

The listener (`reconciler/web/deployments.py`) submits deployments; the loop hands over each tick, which has the manifests in force. Neither ever
waits for the thread. A deployment that cannot be written now is tried again until GIVE_UP; a policy is asked again at its next interval.
Of the deployments of one container the newest counts: an older one that waits is superseded, so that its later try cannot bring its image back.
"""

import hmac
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from manifests.problems import ManifestErrors
from manifests.values.desired import SECOND, Desired
from manifests.values.write_back import Deployer, ImageApply
from manifests.yaml.text import Refused
from providers.errors import ProviderError, Rejected
from providers.lib.secrets import resolve
from reconciler.core.image_choices import Judgement
from reconciler.deployments.choices import Choices
from reconciler.deployments.edit import ImageChange, NoSuchImage
from reconciler.deployments.policies import Policies
from reconciler.deployments.records import PATCH_LENGTH, Deployment, RecordFile, State
from reconciler.deployments.writer import Outcome, Written
from reconciler.git.errors import GitError, Unread, Unusable
from reconciler.shell.secrets import SECRETS
from reconciler.shell.store.audit import Event

log = logging.getLogger("reconciler")

FIRST_RETRY, LONGEST_RETRY = 5.0, 300.0
"""Seconds until a deployment is tried again; doubled up to the longest."""

GIVE_UP = 3_600.0
"""Seconds after which a deployment that cannot be written fails."""

TOKEN_LENGTH = 16
"""The least characters of a token."""

Write = Callable[[Sequence[ImageChange], str, str, str, Sequence[ImageChange]], Written]
"""Writes changes; see `Writer.write`."""


class Conflict(Exception):
    """The Idempotency-Key was used for another request."""


class Links(NamedTuple):
    """What the service needs of the daemon. All may be called from any thread.

    report: takes an event for the audit. hurry: reads the source soon, with a reason. note: reports what is wrong, for the log.
    """

    report: Callable[[Event], None]
    hurry: Callable[[str], None]
    note: Callable[[str], None]


class Deployments:
    """Deployments and image policies of one instance.

    Args:
        write: writes changes.
        file: remembers them.
        links: to the daemon.
        wall: seconds since 1970.
        policies: follows the policies of workloads.
        choices: the images that policies roll out without a commit.
    """

    def __init__(
        self,
        write: Write,
        file: RecordFile,
        links: Links,
        wall: Callable[[], float],
        policies: Policies,
        choices: Choices | None = None,
    ) -> None:
        self._choices, self._judgements = choices, tuple[Judgement, ...]()
        self._write, self._file, self._links, self._wall, self._policies = write, file, links, wall, policies
        self._remembered = file.load()
        self._desired: Desired | None = None
        self._looked_at: Desired | None = None  # the manifests whose policies were followed last
        self._changed = threading.Condition()
        self._stopped = False
        self._writing = ""  # the id of the deployment that is being written
        self._thread: threading.Thread | None = None
        self._retry: dict[str, tuple[float, float]] = {
            deployment.id: (0.0, FIRST_RETRY)
            for deployment in self._remembered.deployments
            if not deployment.state.over
        }

    # --- the listener -------------------------------------------------------------------------------------------------

    def deployer(self, sent: str) -> Deployer | None:
        """The one deployer with this token; None for no one. Every token is compared, each in constant time. Reads files."""
        desired, found = self._desired, list[Deployer]()
        for deployer in () if desired is None else desired.instance.writing.deployers:
            what = f"token of workload/{deployer.workload} in deployments of the Instance"
            try:
                token = resolve(deployer.token, what).reveal()
            except ProviderError as error:
                self._links.note(f"deployments are refused: {error}")
                continue
            SECRETS.add(token)
            if len(token) < TOKEN_LENGTH:
                self._links.note(f"the {what} has fewer than {TOKEN_LENGTH} characters and is not used")
                continue
            if hmac.compare_digest(sent.encode(), token.encode()):
                found.append(deployer)
        return found[0] if len(found) == 1 else None

    def submit(self, deployer: Deployer, image: str, reason: str, key: str) -> Deployment:
        """Accept a deployment; the same one for the same key. It is on the disk when this returns.

        Raises:
            Conflict: the key was used for another request.
            StoreError: it cannot be remembered, so it is not accepted.
        """
        name = f"workload/{deployer.workload}"
        with self._changed:
            for known in reversed(self._remembered.deployments):
                if key and (known.workload, known.container, known.key) == (name, deployer.container, key):
                    if (known.image, known.reason) != (image, reason):
                        raise Conflict
                    if known.state is not State.FAILED:
                        return known
            deployment = Deployment(
                secrets.token_hex(8), name, deployer.container, image, reason, key, int(self._wall())
            )
            remembered = self._remembered.with_deployment(deployment)
            superseded = [
                _superseded(known, deployment)
                for known in remembered.deployments
                if not known.state.over and known.id != self._writing and remembered.newer(known) == deployment
            ]
            for known in superseded:
                remembered = remembered.with_deployment(known)
            self._file.save(remembered)
            self._remembered = remembered
            self._retry[deployment.id] = (0.0, FIRST_RETRY)
            self._start()
            self._changed.notify_all()
        self._event(deployment, "accepted", f"deployment {deployment.id} of {image} is accepted")
        for known in superseded:
            self._ended(known)
        return deployment

    def get(self, deployer: Deployer, id_: str) -> Deployment | None:
        """A deployment of this deployer."""
        name = f"workload/{deployer.workload}"
        for known in self._remembered.deployments:
            if (known.id, known.workload, known.container) == (id_, name, deployer.container):
                return known
        return None

    def wait(self, deployer: Deployer, id_: str, seconds: float) -> Deployment | None:
        """As `get`, when it is over or the time is."""
        deadline = monotonic() + seconds
        with self._changed:
            while True:
                known = self.get(deployer, id_)
                left = deadline - monotonic()
                if known is None or known.state.over or left <= 0 or self._stopped:
                    return known
                self._changed.wait(left)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def in_force(self, desired: Desired, judgements: tuple[Judgement, ...] = ()) -> None:
        """These manifests are in force, and this is known of images in them that policies chose. Called at each tick; neither blocks nor raises."""
        if desired is self._desired and judgements == self._judgements:
            return
        self._desired, self._judgements = desired, judgements
        writing = desired.instance.writing
        chosen = self._choices is not None and self._choices.any
        if self._retry or chosen or writing.images is not None:
            with self._changed:
                self._start()
                self._changed.notify_all()

    def close(self, seconds: float = 3.0) -> None:
        """End the thread. A write under way is found done, or is done again, by the next process."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None and not self._stopped:
            thread = threading.Thread(target=self._work, name="deployments", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self._links.note(f"no deployment can be written: no thread can be started: {error}")
                return  # tried again with the next one
            self._thread = thread

    def _work(self) -> None:
        while not self._stopped:
            failed, pause = False, LONGEST_RETRY
            try:
                pause = self._step()
            except Exception:
                log.exception("deployments failed; they are tried again")
                failed = True
            with self._changed:
                news = self._due() or self._looked_at is not self._desired  # came while the thread worked
                if not self._stopped and (failed or not news):
                    self._changed.wait(pause)

    def _due(self) -> bool:
        return any(at <= monotonic() for at, _ in list(self._retry.values()))

    def _step(self) -> float:
        """Write what is due. Returns the seconds until something is."""
        for id_, (at, _) in sorted(self._retry.items(), key=lambda item: item[1]):
            if at <= monotonic() and not self._stopped:
                self._deploy(id_)
        pauses = [at - monotonic() for at, _ in list(self._retry.values())]
        desired = self._looked_at = self._desired
        if desired is not None and not self._stopped:
            pauses.append(self._follow(desired))
        return max(0.05, min([*pauses, LONGEST_RETRY]))

    def _deploy(self, id_: str) -> None:
        """Write a deployment, unless it is over, too old, or a newer one counts."""
        with self._changed:
            deployment = next((known for known in self._remembered.deployments if known.id == id_), None)
            if deployment is None or deployment.state.over:
                self._retry.pop(id_, None)
                return
            newer = self._remembered.newer(deployment)
            self._writing = id_ if newer is None else ""
        if newer is not None:
            self._over(_superseded(deployment, newer))
        elif self._wall() - deployment.at >= GIVE_UP:
            self._give_up(deployment, deployment.message or "it could not be written in time")
        else:
            try:
                self._try(deployment)
            except Exception as error:  # a fault in one deployment must not hold the others
                log.exception("deployment %s failed", id_)
                self._again(deployment, f"unexpected {type(error).__name__}, report this as a bug")
            finally:
                self._writing = ""

    def _try(self, deployment: Deployment) -> None:
        id_ = deployment.id
        change = ImageChange(deployment.workload, deployment.container, deployment.image)
        who = f"deployment {id_}, token of {deployment.workload}"
        try:
            written = self._write([change], deployment.reason, who, "", ())
        except ManifestErrors as error:
            if error.of_source:
                self._again(deployment, _first(error))
            else:
                self._over(replace(deployment, state=State.REFUSED, message=_first(error)))
            return
        except (Refused, NoSuchImage) as error:
            self._over(replace(deployment, state=State.REFUSED, message=error.cause, next_step=error.next_step))
            return
        except GitError as error:
            problem = error.problem if isinstance(error, Unread) else error
            if isinstance(problem, Unusable):
                self._over(replace(deployment, state=State.REFUSED, message=error.cause, next_step=error.hint))
            else:
                self._again(deployment, str(error))
            return
        except ProviderError as error:
            if isinstance(error, Rejected):
                self._over(replace(deployment, state=State.REFUSED, message=str(error)))
            else:
                self._again(deployment, str(error))
            return
        patched = written.outcome is Outcome.PATCH
        message = {
            Outcome.UNCHANGED: "the manifests have this image already",
            Outcome.COMMIT: f"commit {written.commit} is pushed to {written.ref}",
            Outcome.MERGE_REQUEST: f"merge request {written.url} is open",
            Outcome.PATCH: f"nothing is written: {written.why}",
        }[written.outcome]
        text, next_step = written.patch, written.next_step
        if len(text) > PATCH_LENGTH:
            command = f"reconcile deploy {deployment.workload} --instance DIR --image {deployment.image}"
            text, next_step = "", f"{next_step}; the patch is too long to be kept, print it with: {command}"
        self._over(
            replace(
                deployment,
                state=State.PATCH if patched else State.WRITTEN,
                message=message,
                outcome=written.outcome.value,
                commit=written.commit,
                ref=written.ref,
                url=written.url,
                patch=text,
                next_step=next_step,
            )
        )
        if written.outcome is Outcome.COMMIT:
            self._links.hurry(f"deployment {id_} was written")

    def _again(self, deployment: Deployment, cause: str) -> None:
        """Try a deployment again later, or give it up."""
        if self._wall() - deployment.at >= GIVE_UP:
            self._give_up(deployment, cause)
            return
        _, wait = self._retry[deployment.id]
        self._retry[deployment.id] = (monotonic() + wait, min(2 * wait, LONGEST_RETRY))
        self._keep(replace(deployment, message=f"{cause}; retried automatically"))

    def _give_up(self, deployment: Deployment, cause: str) -> None:
        self._over(replace(deployment, state=State.FAILED, message=cause, next_step="send it again"))

    def _over(self, deployment: Deployment) -> None:
        self._keep(deployment)
        self._ended(deployment)

    def _ended(self, deployment: Deployment) -> None:
        self._retry.pop(deployment.id, None)
        self._event(deployment, deployment.state.value, f"deployment {deployment.id}: {deployment.message}")

    def _keep(self, deployment: Deployment) -> None:
        with self._changed:
            self._remembered = self._remembered.with_deployment(deployment)
            self._save()
            self._changed.notify_all()

    def _save(self) -> None:
        """Write the file. A change is a level, so one that could not be remembered is only made again."""
        from reconciler.shell.store.directory import StoreError  # noqa: PLC0415

        try:
            self._file.save(self._remembered)
        except StoreError as error:
            self._links.note(f"deployments may be repeated after a restart: {error}")

    def _event(self, deployment: Deployment, outcome: str, message: str) -> None:
        who = f"token of {deployment.workload}"
        cause = deployment.reason or "a deployment was requested"
        wall = int(self._wall() * SECOND)
        self._links.report(
            Event(wall, "deployment", deployment.workload, f"write {deployment.image}", cause, outcome, message, who)
        )

    # --- policies -----------------------------------------------------------------------------------------------------

    def _follow(self, desired: Desired) -> float:
        """Ask registries where a policy is due, and write what they want in one commit, or let it roll out. Returns seconds until the next question."""
        images = desired.instance.writing.images
        if self._choices is not None and images is not None and images.apply is ImageApply.ROLLOUT:
            return self._choices.follow(desired, self._judgements)
        retry = 0.0 if self._choices is None else self._choices.drop()
        if retry:
            return retry
        before = self._remembered.followed
        found = self._policies.ask(desired, before)
        remembered = self._remembered
        for name, followed in found.followed.items():
            if remembered.followed.get(name) != followed:
                remembered = remembered.with_followed(name, followed)
        if remembered is not self._remembered:
            with self._changed:
                # A deployment may have been accepted meanwhile.
                self._remembered = replace(self._remembered, followed=remembered.followed)
                self._save()
        if found.changes:
            self._write_policies(found.changes, found.why, found.proposed)
        return found.pause

    def _write_policies(self, changes: Sequence[ImageChange], why: str, proposed: Sequence[ImageChange]) -> bool:
        """Write what policies want. Whether all of it was written together."""
        try:
            written = self._write(changes, why, "image policies", "image-policies", proposed)
        except (ManifestErrors, Refused, NoSuchImage, GitError, ProviderError) as error:
            of_one = isinstance(error, Refused | NoSuchImage) or (
                isinstance(error, ManifestErrors) and not error.of_source
            )
            if len(changes) > 1 and of_one:
                for change in changes:  # one that cannot be made must not hold the others
                    if self._write_policies([change], why, proposed):
                        proposed = [*proposed, change]
                return False
            cause = _first(error) if isinstance(error, ManifestErrors) else str(error)
            self._not_written(changes, why, f"cannot be written: {cause}")
            return False
        outcome = written.outcome
        if outcome is Outcome.PATCH:
            self._not_written(changes, why, f"may not be written: {written.why}; next step: {written.next_step}")
            return False
        with self._changed:
            for change in changes:
                if change in written.edit.left:
                    continue  # a newer commit has another image: whether this one is wanted is asked when that is in force
                name = f"{change.key} {change.container}"
                self._remembered = self._remembered.with_followed(
                    name, self._policies.written(self._remembered.followed.get(name), change)
                )
            self._save()
        wall = int(self._wall() * SECOND)
        for changed in written.images:
            where = written.url or f"commit {written.commit}"
            message = f"image policy: container {changed.container} has {changed.new} by {where}; it had {changed.old}"
            event = Event(
                wall, "deployment", changed.key, f"write {changed.new}", why, outcome.value, message, "image policy"
            )
            self._links.report(event)
        if outcome is Outcome.COMMIT:
            self._links.hurry("an image policy was followed")
        return True

    def _not_written(self, changes: Sequence[ImageChange], why: str, cause: str) -> None:
        wall = int(self._wall() * SECOND)
        for change in self._policies.failed(changes, cause):
            message = f"image policy: {change.image} {cause}"
            event = Event(wall, "deployment", change.key, f"write {change.image}", why, "held", message, "image policy")
            self._links.report(event)


def _superseded(deployment: Deployment, newer: Deployment) -> Deployment:
    message = f"deployment {newer.id} of {newer.image} is newer and takes its place"
    return replace(deployment, state=State.SUPERSEDED, message=message)


def _first(error: ManifestErrors) -> str:
    """The first problem, in its first line."""
    return next(
        (problem.lines()[0] for problem in error.problems if not problem.is_warning), "the manifests are invalid"
    )
