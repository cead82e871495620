"""Which symptoms have one cause, when a notice is due, and when a reminder: on values, over days."""

from manifests.values.desired import SECOND
from manifests.values.notices import Topic
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.notices import codec, incidents
from reconciler.core.notices.codec import Remembered
from reconciler.core.notices.incidents import State
from reconciler.core.notices.model import MINUTE, Notice, Phase, Symptom, subject

HOUR = 60 * MINUTE
DAY = 24 * HOUR


def at(steady: int) -> Now:
    return Now(1_800_000_000 * SECOND + steady, steady, "line")


def sick(name: str, operator: bool = False) -> Symptom:
    return Symptom("health", Topic.HEALTH, f"workload/{name}", "0 of 1 replicas are available", "look", operator)


class Course:
    """A state over time: `go` lets time pass from wake-up to wake-up with the same symptoms."""

    def __init__(self) -> None:
        self.state, self.now, self.made = State(), 1000 * SECOND, list[Notice]()

    def go(self, duration: int, *symptoms: Symptom) -> list[Notice]:
        end, first = self.now + duration, len(self.made)
        while True:
            followed = incidents.follow(self.state, symptoms, "", at(self.now))
            assert followed.wake_at > self.now
            self.state = followed.state
            self.made += followed.notices
            stored, problems = codec.from_json(codec.to_json(Remembered(self.state)))
            assert (stored.state, problems) == (self.state, [])
            if followed.wake_at > end:
                self.now = end
                return self.made[first:]
            self.now = followed.wake_at


def phases(notices: list[Notice]) -> list[str]:
    return [notice.phase.value for notice in notices]


def test_the_answer_does_not_change_before_its_instant():
    course = Course()
    course.go(0, sick("a"), sick("b"))
    followed = incidents.follow(course.state, (sick("a"), sick("b")), "", at(course.now))
    for moment in (course.now, (course.now + followed.wake_at) // 2, followed.wake_at - 1):
        earlier = incidents.follow(course.state, (sick("a"), sick("b")), "", at(moment))
        assert (earlier.state, earlier.notices, earlier.wake_at) == (course.state, [], followed.wake_at)
    assert phases(incidents.follow(course.state, (sick("a"), sick("b")), "", at(followed.wake_at)).notices) == ["began"]


def test_objects_that_fail_one_after_another_are_in_the_first_notice():
    course = Course()
    names: list[Symptom] = []
    for number in range(10):
        names.append(sick(f"app-{number}"))
        course.go(10 * SECOND, *names)
    course.go(5 * MINUTE, *names)
    (notice,) = course.made
    assert notice.title == "10 workloads are not healthy"


def test_objects_that_join_without_end_do_not_delay_the_notice_for_ever():
    course = Course()
    names: list[Symptom] = []
    for number in range(60):
        names.append(sick(f"app-{number:02}"))
        course.go(10 * SECOND, *names)
    assert phases(course.made)[0] == "began"
    assert set(phases(course.made)[1:]) == {"more"}
    assert len(course.made) <= 3


def test_a_symptom_that_ends_soon_is_no_notice():
    course = Course()
    course.go(30 * SECOND, sick("a"))
    course.go(DAY)
    assert course.made == []
    assert course.state == State()


def test_a_cause_of_one_revision_is_one_however_late_its_objects_join():
    course = Course()
    failed = [Symptom("rollout", Topic.ROLLOUT, f"workload/{n}", "failed", "", True, "r1", 5 * SECOND) for n in "ab"]
    course.go(HOUR, failed[0])
    course.go(HOUR, *failed)
    assert phases(course.made) == ["began", "more"]
    assert len({notice.incident for notice in course.made}) == 1


def test_many_objects_are_a_number_and_the_notice_stays_short():
    course = Course()
    course.go(5 * MINUTE, *[sick(f"app-{number}") for number in range(5000)])
    (notice,) = course.made
    assert notice.title == "2000 workloads are not healthy"
    assert (len(notice.lines), notice.left) == (50, 1950)


def test_reminders_come_daily_for_what_waits_for_an_operator():
    course = Course()
    course.go(5 * MINUTE, sick("a", operator=True))
    made: list[Notice] = []
    wake_at = 0
    for _ in range(4 * 24):
        course.go(HOUR, sick("a", operator=True))
        course.state, some, wake_at = incidents.reminders(course.state, "ops", DAY, "", at(course.now))
        made += some
    assert phases(made) == ["reminder"] * 4
    assert course.now < wake_at <= course.now + DAY
    assert len({notice.id for notice in made}) == 4


def test_what_ends_by_itself_and_channels_without_reminders_get_none():
    course = Course()
    course.go(3 * DAY, sick("a"))
    assert incidents.reminders(course.state, "ops", DAY, "", at(course.now)) == (course.state, [], FOREVER)
    course.go(3 * DAY, sick("a", operator=True))
    assert incidents.reminders(course.state, "ops", 0, "", at(course.now)) == (course.state, [], FOREVER)


def test_a_wall_clock_that_jumps_changes_nothing():
    course = Course()
    course.go(10 * SECOND, sick("a"))
    now = at(course.now)._replace(wall=0)
    followed = incidents.follow(course.state, (sick("a"),), "", now)
    assert (followed.notices, followed.state) == ([], course.state)


def test_titles_name_one_object_or_the_number_of_a_kind():
    assert subject(["workload/web"]) == "workload/web"
    assert subject(["workload/web", "workload/api"]) == "2 workloads"
    assert subject(["dnspolicy/a", "dnspolicy/b"]) == "2 DNS policies"
    assert subject(["workload/web", "service/web"]) == "2 objects"


def test_what_is_damaged_is_left_out_and_the_rest_is_kept():
    course = Course()
    course.go(5 * MINUTE, sick("a"))
    raw = codec.to_json(Remembered(course.state))
    raw["open"] = [{"id": 1}, *raw["open"], None, {**raw["open"][0], "topic": "nothing"}]
    remembered, problems = codec.from_json(raw)
    assert remembered.state.open == course.state.open
    assert len(problems) == 3
    for other in (None, [], {"version": 99}, {"version": 1, "queues": {"ops": {"posts": 3}}}):
        assert codec.from_json(other)[0] == Remembered()
    assert Phase.BEGAN.value == "began"
