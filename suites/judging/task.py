"""A task: one claim of one method."""

from __future__ import annotations

from dataclasses import dataclass

from gradgate.references import registry
from gradgate.references.contract import Claim, Method


@dataclass(frozen=True)
class Task:
    """One claim of one method: what a worker judges.

    Attributes:
        target: names a plugged-in callable; "" for a reference method.
        origin: names the declaration of a class of problems that is not gradgate's own (`Family.origin`), so that a
            worker can load it; "" for gradgate's own.
    """

    family: str
    method: str
    framework: str
    claim: str
    target: str = ""
    statement: str = ""
    source: str = ""
    expected: str = "upheld"
    declared_reason: str = ""
    profile: str = "cpu"
    check: str = ""
    origin: str = ""

    @property
    def owner(self) -> str:
        """``family:method:framework``: tasks of one owner share compiled programs."""
        return f"{self.family}:{self.method}:{self.framework}"

    @property
    def name(self) -> str:
        """``family:method:framework:claim``, unique in a run."""
        return f"{self.owner}:{self.claim}"

    @classmethod
    def of(cls, method: Method, claim: Claim, target: str = "", profile: str = "cpu") -> Task:
        """The task of judging one declared claim; a claim about memory or work is judged on a profile."""
        return cls(
            method.family,
            method.name,
            method.framework,
            claim.name,
            target,
            claim.statement,
            claim.source,
            claim.expected,
            claim.declared_reason,
            profile,
            claim.check,
            registry.origin(method.family),
        )
