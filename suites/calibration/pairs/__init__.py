"""The pairs of `suites/bugs/of_pairs` and their mutants, counted; ``python -m gradgate.suites.calibration.pairs``."""
