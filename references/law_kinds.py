"""What a claim about memory or work says, as plain frozen data that can be pickled and written as JSON.

There are four kinds of law: `Growth` over a sweep of sizes, a `Share` of what grows for each of several devices, a
`Figure` that a paper prints, and a share `OfReference`. A `Claim` carries one as its ``law``. Each
says which check judges it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from gradgate.references.errors import unknown

Bound = Literal["at most", "equal"]


@dataclass(frozen=True)
class Over:
    """A sweep: the values that one Spec field takes.

    Attributes:
        variable: the Spec field.
        sizes: its values, the largest last.
    """

    variable: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Within:
    """How a measured number must lie to the claimed one.

    Attributes:
        bound: it may be ``at most`` the claimed number, or must ``equal`` it.
        tolerance: by which it may miss; None: by as much as the one who judges it usually allows.
    """

    bound: Bound = "equal"
    tolerance: float | None = None

    def __post_init__(self) -> None:
        """Check the bound.

        Raises:
            UsageError: it is neither of the two.
        """
        if self.bound not in get_args(Bound):
            raise unknown("bound", self.bound, get_args(Bound))

    def allowed(self, usual: float) -> float:
        """By how much the measured number may miss; `usual` where the claim does not say."""
        return usual if self.tolerance is None else self.tolerance

    def broken_by(self, miss: float, usual: float = 0.0) -> bool:
        """Whether a measured number breaks the claim.

        Args:
            miss: the measured number less the claimed one, in the unit of the tolerance.
            usual: the tolerance where the claim does not say.
        """
        return not (miss if self.bound == "at most" else abs(miss)) <= self.allowed(usual)  # so that NaN breaks it


@dataclass(frozen=True)
class Below:
    """At the largest size, `factor` times the quantity is at most what the other method takes there."""

    method: str
    factor: float


@dataclass(frozen=True)
class NotBy:
    """The claim is not about what a compiler makes, for a reason in one sentence."""

    compiler: str
    reason: str


@dataclass(frozen=True)
class Growth:
    """A quantity, but for a constant, grows like ``size ** exponent``, or no faster.

    Attributes:
        quantity: ``flops``, or a field of ``hw_profiles.measurement.Measurement``.
        over: the sweep.
        exponent: 0 for what does not grow.
        within: how the measured exponent must lie to this one; its usual tolerance is ``hw_profiles.fit.TOLERANCE``.
        spec: Spec fields of the problem, over the family's ``measured``.
        options: of the method, or ``module:function`` of the Spec that returns them; None: each option's ``usual``.
        independent_of: sweeps over which the quantity must stay as it is.
        below: another method that takes more; None: none is named.
        never: a second sweep: the quantity has no part that grows like the product of both variables. Then nothing is
            claimed about the exponent.
        not_by: compilers that the claim is not about.
    """

    quantity: str
    over: Over
    exponent: float
    within: Within = Within("at most")
    spec: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] | str | None = None
    independent_of: tuple[Over, ...] = ()
    below: Below | None = None
    never: Over | None = None
    not_by: tuple[NotBy, ...] = ()

    @property
    def check(self) -> str:
        """Name of the check."""
        return "work_law" if self.quantity == "flops" else "memory_law"

    def excuse(self, compiler: str | None) -> str:
        """Why the claim is not about what a compiler makes; "" where it is."""
        return next((one.reason for one in self.not_by if one.compiler == compiler), "")


@dataclass(frozen=True)
class Share:
    """What grows over a sweep grows n times less on each of n devices.

    Attributes:
        quantity: as of `Growth`; it grows linearly, besides a constant.
        over: the sweep; its sizes are multiples of `devices`.
        devices: n, compared with 1.
        option: the method's option that takes the number of devices.
        tolerance: by which the ratio of the two growths may miss n, relative; None:
            ``hw_profiles.fit.SHARE_TOLERANCE``.
        spec, options: as of `Growth`.
    """

    quantity: str
    over: Over
    devices: int
    option: str = "devices"
    tolerance: float | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] | str | None = None

    check: ClassVar[str] = "per_device"


@dataclass(frozen=True)
class Figure:
    """One figure of a paper is what is measured here.

    Attributes:
        printed: the paper's figure.
        measured: ``module:function`` of a profile's name that returns ours; it raises ``LookupError`` with a sentence
            where the profile cannot tell.
        unit: of both, such as ``bytes`` or ``FLOPs``.
        within: how ours must lie to the printed one; the tolerance is relative.
    """

    printed: float
    measured: str
    unit: str
    within: Within = Within("equal", 0.01)

    check: ClassVar[str] = "figure"


@dataclass(frozen=True)
class OfReference:
    """A quantity of a pair's function is at most a share of its reference's.

    Attributes:
        quantity: as of `Growth`.
        share: at most this times the reference's.
        spec, options: as of `Growth`.
    """

    quantity: str
    share: float
    spec: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] | str | None = None

    check: ClassVar[str] = "of_reference"


Law = Growth | Share | Figure | OfReference
CHECKS = ("memory_law", "work_law", "per_device", "figure", "of_reference")
"""Checks that judge a law on a hardware profile; every other check judges the gradient, which no profile changes."""
