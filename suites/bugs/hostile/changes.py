"""Methods that change their inputs or the process in which they run, or leave something running."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np

from gradgate.references.contract import Problem
from gradgate.suites.bugs.hostile.fault import IMMUTABLE, JAX_ALONE, TORCH_ALONE, Answer, fault, good


@fault("refuted", "the call changed its input params.head", "pure", not_in=IMMUTABLE)
def overwrites(problem: Problem) -> Answer:
    """Changes a parameter in place."""
    answer = good(problem)
    problem.params["head"].mul_(2)
    return answer


@fault("refuted", "the call changed its input data.tokens", "pure", not_in=IMMUTABLE)
def overwrites_data(problem: Problem) -> Answer:
    """Changes the data in place."""
    answer = good(problem)
    problem.data["tokens"].add_(1)
    return answer


@fault("refuted", "the call changed its input params.head", "pure")
def replaces(problem: Problem) -> Answer:
    """Replaces a parameter by another array."""
    answer = good(problem)
    problem.params["head"] = problem.params["head"] * 2
    return answer


@fault("refuted", "the call changed its input params.head", "pure")
def deletes(problem: Problem) -> Answer:
    """Deletes a parameter."""
    answer = good(problem)
    del problem.params["head"]
    return answer


@fault("refuted", "the call changed its input params.mine", "pure")
def adds(problem: Problem) -> Answer:
    """Adds a parameter."""
    answer = good(problem)
    problem.params["mine"] = answer[0]
    return answer


@fault("refuted", "the call moved or reseeded the global random state of random", "pure")
def reseeds(problem: Problem) -> Answer:
    """Seeds Python's global generator."""
    random.seed(0)
    return good(problem)


@fault("refuted", "the call moved or reseeded the global random state of numpy.random", "pure")
def reseeds_numpy(problem: Problem) -> Answer:
    """Seeds NumPy's global generator."""
    np.random.seed(0)
    return good(problem)


@fault("refuted", "the call moved or reseeded the global random state of torch", "pure", not_in=TORCH_ALONE)
def draws_torch(problem: Problem) -> Answer:
    """Draws from PyTorch's global generator."""
    import torch

    torch.rand(3)
    return good(problem)


@fault("refuted", "the call printed 10 characters to standard output: 'here I am'", "pure")
def prints(problem: Problem) -> Answer:
    """Prints."""
    print("here I am")
    return good(problem)


@fault("refuted", "the call printed 3 characters to standard error: 'oh'", "pure")
def complains(problem: Problem) -> Answer:
    """Prints to standard error."""
    print("oh", file=sys.stderr)
    return good(problem)


@fault("refuted", "the call changed the working directory", "pure")
def changes_directory(problem: Problem) -> Answer:
    """Changes the working directory."""
    os.chdir("/")
    return good(problem)


@fault("refuted", "the call changed os.environ", "pure")
def changes_environment(problem: Problem) -> Answer:
    """Changes os.environ."""
    os.environ["GRADGATE_HOSTILE"] = "1"
    return good(problem)


@fault("refuted", "the call changed a signal handler", "pure")
def installs_handler(problem: Problem) -> Answer:
    """Installs a signal handler."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return good(problem)


@fault("refuted", "the call changed the alarm timer", "pure")
def sets_alarm(problem: Problem) -> Answer:
    """Sets an alarm that would end the process later."""
    signal.alarm(60)
    return good(problem)


@fault("refuted", "the call changed file descriptor 0", "pure")
def closes_input(problem: Problem) -> Answer:
    """Closes standard input."""
    os.close(0)
    return good(problem)


@fault("refuted", "the call changed file descriptor 1 and 2", "pure")
def redirects_output(problem: Problem) -> Answer:
    """Redirects standard output and standard error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(null, fd)
    os.close(null)
    return good(problem)


@fault("refuted", "the call changed the recursion limit", "pure")
def raises_limit(problem: Problem) -> Answer:
    """Raises the recursion limit."""
    sys.setrecursionlimit(12_345)
    return good(problem)


@fault("refuted", "the call changed NumPy's error state", "pure")
def changes_errstate(problem: Problem) -> Answer:
    """Makes NumPy raise in place of warning."""
    np.seterr(all="raise")
    return good(problem)


@fault("refuted", "the call changed PyTorch's default dtype", "pure", not_in=TORCH_ALONE)
def changes_dtype(problem: Problem) -> Answer:
    """Changes PyTorch's default dtype."""
    import torch

    torch.set_default_dtype(torch.bfloat16)
    return good(problem)


@fault("refuted", "the call changed PyTorch's grad mode", "pure", not_in=TORCH_ALONE)
def ends_grad_mode(problem: Problem) -> Answer:
    """Turns PyTorch's autograd off."""
    import torch

    answer = good(problem)
    torch.set_grad_enabled(False)
    return answer


@fault("refuted", "the call changed jax.config", "pure", not_in=JAX_ALONE)
def changes_jax(problem: Problem) -> Answer:
    """Changes jax.config."""
    import jax

    answer = good(problem)
    jax.config.update("jax_debug_nans", True)
    return answer


@fault("refuted", "the call left behind a running thread (…)", "pure")
def leaves_thread(problem: Problem) -> Answer:
    """Leaves a thread running."""
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    return good(problem)


@fault("refuted", "the call left behind a child process (…)", "pure")
def leaves_child(problem: Problem) -> Answer:
    """Leaves a child process running."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return good(problem)


@fault("refuted", "the call left behind a child process (…)", "pure")
def forks(problem: Problem) -> Answer:
    """Forks, and returns twice."""
    answer = good(problem)
    os.fork()
    return answer
