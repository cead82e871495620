"""The source of manifests during a run: what is put in force, what is refused, and when it is read as good again."""

from pathlib import Path

import pytest

from manifests.load import Sources, read_sources
from manifests.problems import ManifestErrors
from manifests.values.desired import SECOND, Desired
from reconciler import tree
from reconciler.shell.source import DirectorySource, InForce
from reconciler.shell.store import last_good, source_record
from reconciler.shell.store.archive import Archive
from reconciler.shell.store.instance_index import place_of
from reconciler.start import start_manifests
from tests.manifests.trees import INSTANCE, WORKLOAD, write
from tests.sim.clock import VirtualClock

PROVIDER = "apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: local}\nspec: {type: process}\n"
GOOD = {"instance.yaml": INSTANCE, "local.yaml": PROVIDER, "web.yaml": WORKLOAD}


class Run:
    """A run over a tree of manifests that the tests edit."""

    def __init__(self, base: Path) -> None:
        self.path, self.state, self.clock = base / "tree", base / "state" / "demo", VirtualClock()
        self.state.mkdir(parents=True, mode=0o700)
        write(self.path, GOOD)
        self.reads = 0

    def read(self) -> Sources:
        self.reads += 1
        return read_sources(self.path)

    def source(self, start: InForce | None = None) -> DirectorySource:
        archive = Archive(self.state, self.state.parent, "demo", place_of(self.path, None), self.clock, str)
        if start is None:
            sources = self.read()
            archive.in_force(sources)
            start = InForce(sources.state, sources.revision)
        return DirectorySource(self.read, tree.resolve, self.clock, start, archive, follow=True)

    def stored_start(self) -> InForce:
        """The start of a daemon whose manifests are invalid."""
        stored = last_good.load(self.state)
        assert stored is not None
        sources = self.read()
        with pytest.raises(ManifestErrors) as raised:
            tree.resolve(sources)
        return InForce(stored.sources.state, stored.revision, (sources, raised.value))

    def break_it(self) -> None:
        write(self.path, {"web.yaml": GOOD["web.yaml"] + "x: [\n"})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_broken_file_is_a_problem_with_its_line_once(run):
    source = run.source()
    revision = run.read().revision
    run.break_it()
    desired, messages = source.reread()
    assert desired is None
    assert "stays in force" in messages[0]
    assert len(messages) > 1
    assert not any("\n" in message for message in messages)  # a log would show line breaks as escapes
    assert not source.same()
    problem = source.problem()
    assert problem is not None
    assert problem.cause.startswith(f"web.yaml:{(run.path / 'web.yaml').read_text().count(chr(10))}:")
    assert problem.in_force == revision[:12]
    run.clock.advance(60 * SECOND)
    assert source.reread() == (None, ())
    assert source.problem() == problem


def test_a_corrected_file_is_in_force_at_the_next_read_and_stored(run):
    source = run.source()
    run.break_it()
    source.reread()
    write(run.path, {"web.yaml": GOOD["web.yaml"] + "# corrected\n"})
    desired, _ = source.reread()
    assert isinstance(desired, Desired)
    assert source.problem() is None
    assert last_good.load(run.state).revision == desired.revision == run.read().revision
    assert source_record.load(run.state).attempted is None


def test_a_reverted_file_ends_the_problem_without_a_new_revision(run):
    source = run.source()
    run.break_it()
    source.reread()
    write(run.path, {"web.yaml": GOOD["web.yaml"]})
    desired, messages = source.reread()
    assert desired is None
    assert source.same()
    assert source.problem() is None
    assert "valid again" in messages[0]


@pytest.mark.parametrize("change", ["broken", "empty", "missing", "not readable"])
def test_a_start_on_a_bad_source_keeps_the_stored_manifests(run, change):
    good = run.source()
    assert good.same()
    if change == "broken":
        run.break_it()
    elif change == "not readable":
        (run.path / "web.yaml").unlink()
        (run.path / "web.yaml").mkdir()
        (run.path / "dead.yaml").symlink_to("/nowhere/at/all.yaml")
    else:
        for file in run.path.iterdir():
            file.unlink()
        if change == "missing":
            run.path.rmdir()
    source = run.source(run.stored_start())
    assert not source.same()
    assert source.problem() is not None
    assert source.reread() == (None, ())  # it is known, and is not reported twice
    run.path.mkdir(exist_ok=True)
    for file in run.path.iterdir():
        if file.is_dir():
            file.rmdir()
        else:
            file.unlink()
    write(run.path, GOOD)
    source.reread()
    assert source.same()
    assert source.problem() is None


def test_the_age_of_a_problem_outlives_the_process(run):
    source = run.source()
    run.break_it()
    source.reread()
    since = source.problem().since_wall
    run.clock.advance(600 * SECOND)
    again = run.source(run.stored_start()).problem()
    assert again.since_wall == since
    assert run.clock.now().steady - again.since == 600 * SECOND


def test_a_source_that_does_not_change_writes_nothing(run):
    source = run.source()
    before = {file.name: file.stat().st_mtime_ns for file in run.state.iterdir()}
    for _ in range(20):
        assert source.reread() == (None, ())
    run.break_it()
    source.reread()
    broken = {file.name: file.stat().st_mtime_ns for file in run.state.iterdir()}
    for _ in range(20):
        source.reread()
    assert {file.name: file.stat().st_mtime_ns for file in run.state.iterdir()} == broken
    assert before[last_good.FILE] == broken[last_good.FILE]


def test_manifests_that_cannot_be_stored_are_in_force_and_stored_later(run):
    source = run.source()
    (run.state / f"{last_good.FILE}.new").mkdir()
    write(run.path, {"web.yaml": GOOD["web.yaml"] + "# changed\n"})
    desired, messages = source.reread()
    assert desired is not None
    assert any("cannot be stored" in message for message in messages)
    assert source.reread() == (None, ())
    (run.state / f"{last_good.FILE}.new").rmdir()
    source.reread()
    assert last_good.load(run.state).revision == desired.revision


# --- local documents that judge what is in force ----------------------------------------------------------------------------------

ENGINE = "apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: local}\nspec: {type: docker}\n"
ALLOWED = (
    "---\napiVersion: reconciler/v1\nkind: Guard\nmetadata: {name: g}\nspec: {policy: {allow: {privileged: true}}}\n"
)
PRIVILEGED = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  template:
    spec:
      containers: [{name: app, image: shop/web:1, docker: {hostConfig: {Privileged: true}}}]
"""


class Judged(Run):
    """A run whose tree has a privileged container, which the local documents allow at first."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        for name in GOOD:
            (self.path / name).unlink()
        write(self.path, {"web.yaml": PRIVILEGED})
        self.local = base / "local.yaml"
        self.decide(ALLOWED)

    def decide(self, guard: str) -> None:
        self.local.write_text(f"{INSTANCE}---\n{ENGINE}{guard}")

    def read(self) -> Sources:
        self.reads += 1
        return read_sources(self.path, self.local)

    def source(self, start: InForce | None = None) -> DirectorySource:
        sources = self.read()
        return super().source(start or InForce(sources.state, sources.revision, sources=sources))


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    return Judged(tmp_path)


def test_a_tightened_local_guard_judges_what_is_in_force(judged):
    source = judged.source()
    judged.decide("")
    desired, messages = source.reread()
    assert desired is not None
    assert "podSecurity: baseline" in desired.workloads[0].forbidden
    assert "stays in force" in messages[0]
    assert source.problem() is not None
    assert not source.same()
    assert source.reread() == (None, ())
    judged.decide(ALLOWED)
    desired, messages = source.reread()
    assert desired is not None
    assert desired.workloads[0].forbidden == ""
    assert "valid again" in messages[0]
    assert source.reread() == (None, ())


def test_a_new_workload_that_violates_the_policy_never_comes_into_force(judged):
    source = judged.source()
    write(judged.path, {"more.yaml": PRIVILEGED.replace("name: web", "name: more").replace("Privileged", "PidMode")})
    desired, messages = source.reread()
    assert desired is None
    assert "stays in force" in messages[0]


def test_invalid_local_documents_judge_nothing(judged):
    source = judged.source()
    judged.decide("---\nkind: [\n")
    desired, _ = source.reread()
    assert desired is None


def test_a_start_keeps_what_the_policy_forbids_now(judged):
    location = tree.Location(judged.path, judged.local, judged.state)
    good = judged.read()
    archive = Archive(judged.state, judged.state.parent, "demo", place_of(judged.path, judged.local), judged.clock, str)
    assert archive.in_force(good) == ""
    judged.decide("")
    with pytest.raises(ManifestErrors, match="policy-violation"):
        start_manifests(location, judged.clock, stored=False)
    start = start_manifests(location, judged.clock, stored=True)
    (web,) = start.desired.workloads
    assert "privileged" in web.forbidden
    assert start.invalid is not None
    # The files at the source are the stored ones, and still they are invalid.
    source = judged.source(InForce(start.sources.state, start.sources.revision, start.invalid, start.sources))
    assert source.problem() is not None
    assert source.reread() == (None, ())
    assert source.problem() is not None
    assert not source.same()
    judged.decide(ALLOWED)
    desired, _ = source.reread()
    assert desired is not None
    assert desired.workloads[0].forbidden == ""
    assert source.problem() is None
    assert source.same()
