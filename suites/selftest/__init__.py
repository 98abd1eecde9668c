"""The corpus of `gradgate.suites.bugs`, judged by the suite and by the tools that people use today."""
