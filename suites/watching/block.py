"""`gradgate.watch`: every handwritten derivative that a block of code calls, judged when the block ends."""

from __future__ import annotations

import contextlib
import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from gradgate.suites.watching import folders, recorder, results
from gradgate.suites.watching.judging import judge


class Watch(contextlib.ContextDecorator):
    """The context manager and decorator that `watch` makes."""

    def __init__(self, by_design: Mapping[str, str], jobs: int, seconds: float, seed: int) -> None:
        self.by_design, self.jobs, self.seconds, self.seed = by_design, jobs, seconds, seed
        self._folder: Path | None = None

    def __enter__(self) -> Watch:
        if not recorder.is_recording():  # else somebody watches already, and will judge
            self._folder = folders.fresh()
            recorder.start(str(self._folder))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        __tracebackhide__ = True
        folder, self._folder = self._folder, None
        if folder is None:
            return
        recorder.stop()
        if kind is None:
            self._judge(folder)

    def _judge(self, folder: Path) -> None:
        __tracebackhide__ = True
        calls, notes = results.read(folder)
        judged = judge(folder, calls, acknowledged=self.by_design, jobs=self.jobs, seconds=self.seconds, seed=self.seed)
        wrong = [_words(one) for one in judged if results.STATES[one.state].status]
        if not judged:
            wrong = ["no handwritten derivative was called with a gradient", *notes]
        if wrong:
            raise AssertionError("\n".join(wrong))
        shutil.rmtree(folder, ignore_errors=True)


def _words(one: results.Judged) -> str:
    state = results.STATES[one.state].words
    lines = [f"{one.rule.name} ({one.rule.file}:{one.rule.line}) is {state}: {one.reason}"]
    lines += [one.explained.likeness] if one.explained.likeness else []
    if one.explained.test:
        lines += ["this test fails:", textwrap.indent(one.explained.test.rstrip(), "    ")]
    return "\n".join(lines)


def watch(*, by_design: Mapping[str, str] | None = None, jobs: int = 2, seconds: float = 60.0, seed: int = 0) -> Watch:
    """Watch a block of code, or a function: judge every handwritten derivative that it calls with a gradient.

    Each rule is judged against the derivative of its own forward pass, at the values that it got and at others like
    them. Rules are subclasses of `torch.autograd.Function`, operators of `torch.library` with ``register_autograd``,
    and functions with `jax.custom_vjp` or `jax.custom_jvp`, also within transformations; the guide's page on watching
    lists the others. Watching changes no result.

    Within another such block, under ``gradgate watch`` and under ``pytest --gradgate-watch`` this does nothing: what is
    watched is judged once, at the end.

    Args:
        by_design: name of a rule, as a failure prints it -> the reason why it differs on purpose.
        jobs: worker processes that judge.
        seconds: limit for each call of a rule in a worker.
        seed: of everything that is drawn.

    Raises:
        AssertionError: when the block ends without an exception: a rule is refuted, a rule could not be judged, or no
            rule was called; the message says which and why, with a short test that fails.

    Cost: copies of the arrays of at most six distinct calls of each rule; then two to five seconds a call.

    Not for: whether a forward pass computes what it should; arrays of more than a million numbers, complex numbers, and
    rules of JAX and PyTorch themselves.

    Example::

        with gradgate.watch():
            loss = model(x).sum()
            loss.backward()
    """
    return Watch(by_design or {}, jobs, seconds, seed)
