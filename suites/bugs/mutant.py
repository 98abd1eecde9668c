"""A mutant: a reference method into which one bug was planted, and the claims that must refute it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import Claim, Method, Tree, method
from gradgate.suites.checks import rivals
from gradgate.suites.judging.verdict import Task

Answer = tuple[Any, Tree]
"""(loss, grads), which every method returns."""
Function = Callable[..., Answer]
"""``(problem, **options) -> (loss, grads)``."""
FORMULA = ("gradient_exact", "second_order_exact")
"""The claims that judge a formula, in sixty digits."""


@dataclass(frozen=True)
class Mutant:
    """A broken variant of a reference method, judged as a plugged-in method with its options and claims.

    Attributes:
        name: ``family.framework.bug``, unique.
        story: the mechanism in a sentence.
        source: where the bug was published, or the generic operator that makes it.
        family, framework, method: the method that is broken.
        kill: the claims that are expected to refute it, with the likeliest first; at least one of them must.
        build: makes the broken function; called in a worker, where the framework may be imported.
        verdict: the verdict that counts as a kill: ``refuted``, or ``error`` if the bug is a crash.
        profile: the profile of the claim, if the claim is about bytes that the CPU's compiler does not show.
        claims: replace the claims of its method, if the bug is in the code that measures a figure.
        also: claims that must refute it too, each one alone. This shows that these claims still detect the bug.
        planted: the relative error that is planted in one leaf; 0 for other bugs.
        equivalent: the proof that it computes the same as its method, so that no claim can refute it; "" for a bug. An
            equivalent mutant must give the same bits.
    """

    name: str
    story: str
    source: str
    family: str
    framework: str
    method: str
    kill: tuple[str, ...]
    build: Callable[[], Function]
    verdict: str = "refuted"
    equivalent: str = ""
    claims: tuple[Claim, ...] = ()
    profile: str = "cpu"
    also: tuple[str, ...] = ()
    planted: float = 0.0

    @property
    def formula(self) -> bool:
        """Whether the bug is a wrong formula, which a claim in sixty digits must refute alone."""
        return self.kill[0] in FORMULA

    @property
    def declared(self) -> Method:
        """The declaration of the method that is broken, under the mutant's name."""
        [base] = registry.methods(self.family, self.method, self.framework)
        return dataclasses.replace(base, name=self.name, claims=self.claims or base.claims)

    def task(self, claim: str) -> Task:
        """One claim of the mutant, or of a rival, as a worker judges it."""
        declared = self.declared
        return Task.of(declared, {found.name: found for found in self._claims()}[claim], self.target, self.profile)

    def _claims(self) -> tuple[Claim, ...]:
        """The claims of its method and of the rivals; for an equivalent mutant also a claim about equal bits."""
        [base] = registry.methods(self.family, self.method, self.framework)
        same = Claim(
            "same_bits",
            "same_bits",
            "gives the bits of its method",
            self.equivalent,
            settings={"implementation": base.implementation},
        )
        return (*self.declared.claims, *rivals.CLAIMS, *((same,) if self.equivalent else ()))

    @property
    def target(self) -> str:
        """The name under which `gradgate verify` judges it and the selftest's workers load it."""
        return f"gradgate.suites.bugs.corpus:{self.name}"

    def function(self) -> Function:
        """The broken method, with the declarations of its method; its docstring has the story and the source."""
        declared, built = self.declared, self.build()

        def mutant(problem: Any, **options: Any) -> Answer:
            return built(problem, **options)

        mutant.__name__ = mutant.__qualname__ = self.name
        mutant.__doc__ = f"{self.story}\n\n    Source: {self.source}."
        marked: Function = method(
            options=declared.options,
            composes=declared.composes,
            disclaims=declared.disclaims,
            kappa=declared.kappa,
            rounding=declared.rounding,
            oracle=declared.oracle,
            claims=self._claims(),
            dtypes=declared.dtypes,
        )(mutant)
        if hasattr(built, "module"):  # the check `protocol` judges this
            marked.module = built.module  # type: ignore[attr-defined]
        return marked
