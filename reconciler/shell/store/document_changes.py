"""The differences between two versions of a JSON document, and a document with them applied. Pure functions, used by `state_db.py`.

The store keeps the last decision as one whole document and the changes since, because a change of one replica must not cost the size
of all of them. A change is a JSON list, of an object or of a list of objects in the document:

    [path, values, names]         set these values of the object at `path`, and drop the fields of these names
    [path, start, count, items]   replace `count` items of the list at `path`, from `start` on, by `items`

A path is the list of names and indexes that lead from the document to its part.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from manifests.values.desired import SECOND

IDENTITY = ("key", "container", "object", "action", "waiting", "name", "revision", "target", "address", "port")
"""Fields that tell which object an item of a list is. An item without them is known by its place, which costs only space."""

Change = list[Any]


def changes(
    before: Mapping[str, Any], after: Mapping[str, Any], ages: Collection[str] = (), *, all_ages: bool = False
) -> list[Change]:
    """What to change in one document to get the other, in the order in which `apply` takes it.

    Args:
        before: a document as JSON: objects and lists only of JSON's types.
        after: a document that JSON can write.
        ages: names of fields that change without news, such as the time of the latest check. They are changed only in objects in
            which, or in a part of which, something else changed. The same holds for instants (`..._wall`, in ns) that moved by less
            than a second: the clocks that they are computed from drift.
        all_ages: change every field that differs.
    """
    out: list[Change] = []
    _object(before, after, [], (frozenset(ages), all_ages), out)
    return out


def apply(document: dict[str, Any], changed: list[Change]) -> None:
    """Apply changes to a document, in place.

    Raises:
        LookupError, TypeError, ValueError: they are not changes of this document.
    """
    for change in changed:
        part: Any = document
        for step in change[0]:
            part = part[step]
        if len(change) == 3:
            _, values, names = change
            part.update(values)
            for name in names:
                del part[name]
        else:
            _, start, count, items = change
            part[start : start + count] = items


def _object(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    path: list[Any],
    rule: tuple[frozenset[str], bool],
    out: list[Change],
) -> bool:
    """Append the changes of an object. Whether there are any."""
    ages, all_ages = rule
    values: dict[str, Any] = {}
    aged: dict[str, Any] = {}
    names = [name for name in before if name not in after]
    inner: list[Change] = []
    for name, value in after.items():
        if name not in before:
            values[name] = value
            continue
        old = before[name]
        if isinstance(value, dict) and isinstance(old, dict):
            _object(old, value, [*path, name], rule, inner)
        elif _objects(value) and _objects(old):
            _items(old, value, [*path, name], rule, inner)
        elif _differ(old, value):
            aged_only = name in ages or _drifted(name, old, value)
            (aged if aged_only and not all_ages else values)[name] = value
    if not (values or names or inner):
        return False
    values.update(aged)
    if values or names:
        out.append([path, values, names])
    out += inner
    return True


def _items(
    before: Sequence[Any], after: Sequence[Any], path: list[Any], rule: tuple[frozenset[str], bool], out: list[Change]
) -> None:
    """Append the changes of a list of objects: what came and went in one place, then what changed in the items beside it."""
    first, last, shortest = 0, 0, min(len(before), len(after))
    if len(before) == len(after):
        first = shortest
    else:
        while first < shortest and _same(before[first], after[first]):
            first += 1
        while last < shortest - first and _same(before[-1 - last], after[-1 - last]):
            last += 1
        out.append([path, first, len(before) - first - last, list(after[first : len(after) - last])])
    for index in range(first):
        _object(before[index], after[index], [*path, index], rule, out)
    for index in range(last):
        place = len(after) - 1 - index
        _object(before[-1 - index], after[place], [*path, place], rule, out)


def _objects(value: Any) -> bool:
    """Whether a value is a list of objects. An empty list is one, so that items can come and go."""
    return isinstance(value, list | tuple) and all(isinstance(item, dict) for item in value)


def _same(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return all(before.get(name) == after.get(name) for name in IDENTITY)


def _differ(before: Any, after: Any) -> bool:
    if isinstance(after, tuple):
        after = list(after)
    return bool(before != after) or isinstance(before, bool) is not isinstance(after, bool)


def _drifted(name: str, before: Any, after: Any) -> bool:
    """Whether an instant moved by less than a second."""
    return (
        name.endswith("_wall") and isinstance(before, int) and isinstance(after, int) and abs(before - after) < SECOND
    )
