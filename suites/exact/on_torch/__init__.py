"""Any eager PyTorch program in sixty digits: every operation runs on floats, and also on balls."""

from gradgate.suites.exact.on_torch.evaluation import Evaluated, evaluate, evaluate_again

__all__ = ["Evaluated", "evaluate", "evaluate_again"]
