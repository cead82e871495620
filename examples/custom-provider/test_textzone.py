"""The test of the example: the public conformance suite with two hooks."""

from pathlib import Path

from textzone import TextZone, TextZoneSettings

from providers.spi import Context
from providers.testing.dns_suite import DNSConformance


class TestTextZone(DNSConformance):
    def make(self, context: Context) -> TextZone:
        return TextZone("text", TextZoneSettings(), context)

    def break_reads(self, context: Context) -> None:
        Path(context.state_dir, "textzones", "example.test.txt").write_text("# serial nonsense\n")
