"""The public runtime suite on real processes, bare and behind the ownership decorator."""

import os
import signal
import sys

from manifests.values.desired import Container, Port, Template
from providers.runtime.process.runtime import ProcessRuntime, ProcessSettings
from providers.runtime.process.shim_protocol import decode, read_file
from providers.spi import Context, RuntimeProvider
from providers.testing.runtime_suite import RuntimeConformance
from providers.wrappers.owned import owned


class TestProcessRuntime(RuntimeConformance):
    state = ""

    def make(self, context: Context) -> RuntimeProvider:
        self.state = context.state_dir
        return ProcessRuntime("local", ProcessSettings(), context)

    def template(self) -> Template:
        argv = (sys.executable, "-I", "-S", "-c", "import signal; signal.pause()")
        container = Container("web", argv, ports=(Port("http", 8080), Port("metrics", 9090)))
        return Template((("app", "web"),), container, revision="0123456789abcdef")

    def break_reads(self, context: Context) -> None:
        for record in os.scandir(f"{context.state_dir}/process/local"):
            with open(f"{record.path}/container.json", "w") as file:
                file.write('{"format": 1, "name": ')

    def crash(self, runtime: RuntimeProvider, name: str) -> None:
        record = decode(read_file(f"{self.state}/process/{runtime.name}/{name}/generation") or b"")
        os.kill(int(record["pid"]), signal.SIGKILL)


class TestOwnedProcessRuntime(TestProcessRuntime):
    def wrap(self, runtime: RuntimeProvider, context: Context) -> RuntimeProvider:
        return owned(runtime, context.instance)
