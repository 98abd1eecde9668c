"""What every command imports: the time, and the number of modules, in a fresh interpreter."""

import subprocess
import sys

from benchmarks.common import on_host, track


class Imports:
    """Time and modules of imports, which load neither framework."""

    def setup(self):
        """Run on the host only."""
        on_host()

    @track("seconds")
    def timeraw_registry(self):
        """Import every declaration."""
        return "from gradgate.references import registry; registry.families()"

    @track("seconds")
    def timeraw_command_line(self):
        """Import the command line."""
        return "import gradgate.suites.cli"

    @track("modules")
    def track_modules_of_command_line(self):
        """Number of modules that the command line loads before it knows the command; this number has no noise."""
        return modules("gradgate.suites.cli")

    @track("modules")
    def track_modules_of_package(self):
        """Number of modules that ``import gradgate`` loads."""
        return modules("gradgate")

    @track("modules")
    def track_modules_of_verify(self):
        """Number of modules that ``gradgate verify`` loads in the parent, which imports neither framework."""
        return modules("gradgate.suites.commands.verify")


def modules(name):
    """How many modules an import loads."""
    code = f"import sys; before = len(sys.modules); import {name}; print(len(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(ran.stdout)
