"""Time to import what every command imports, in a fresh interpreter."""

from benchmarks.common import on_host, track


class Imports:
    """Neither framework is loaded by either."""

    def setup(self):
        """On the host only."""
        on_host()

    @track("seconds")
    def timeraw_registry(self):
        """Every declaration."""
        return "from gradgate.references import registry; registry.families()"

    @track("seconds")
    def timeraw_command_line(self):
        """The command line."""
        return "import gradgate.suites.cli"
