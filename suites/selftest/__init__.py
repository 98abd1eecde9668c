"""The corpus of `gradgate.suites.bugs` judged by the suite and by what people use today: `command` is the entry."""
