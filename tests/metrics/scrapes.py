"""A scrape as values, shared by the tests of metrics."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                labels = {name: value for name, value in sample.labels.items() if name != "reconciler_instance"}
                key = (sample.name, frozenset(labels.items()))
                assert key not in self.samples, key
                self.samples[key] = sample.value

    def get(self, name: str, **labels: str) -> float | None:
        """The value of one sample, whose name is given without `reconciler_`; None when there is none."""
        return self.samples.get((f"reconciler_{name}", frozenset(labels.items())))

    def of(self, name: str) -> Mapping[frozenset[tuple[str, str]], float]:
        """All samples of a name."""
        return {labels: value for (sample, labels), value in self.samples.items() if sample == f"reconciler_{name}"}

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The samples of a name by the values of these labels, added up over the other labels."""
        found: dict[tuple[str, ...], float] = {}
        for pairs, value in self.of(name).items():
            key = tuple(dict(pairs)[label] for label in labels)
            found[key] = found.get(key, 0) + value
        return found
