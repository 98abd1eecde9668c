"""What a claim about memory or work says, as plain frozen data that can be pickled and written as JSON.

There are four kinds of law: `Growth` over a sweep of sizes; a `Share` for each of several devices; a `Figure` that a
paper prints; and `OfReference`, a share of what a pair's reference takes. A `Claim` has one as its ``law``. Each names
the check that judges it.
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
    """How a measured number must compare with the claimed one.

    Attributes:
        bound: it may be ``at most`` the claimed number, or must ``equal`` it.
        tolerance: by how much it may miss; None: by the usual tolerance of the check.
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
        """By how much the measured number may miss; `usual` if the claim gives no tolerance."""
        return usual if self.tolerance is None else self.tolerance

    def broken_by(self, miss: float, usual: float = 0.0) -> bool:
        """Whether a measured number breaks the claim.

        Args:
            miss: the measured number minus the claimed one, in the unit of the tolerance.
            usual: the tolerance if the claim gives none.
        """
        return not (miss if self.bound == "at most" else abs(miss)) <= self.allowed(usual)  # so that NaN breaks it


@dataclass(frozen=True)
class Below:
    """At the largest size, `factor` times the quantity is at most the other method's quantity."""

    method: str
    factor: float


@dataclass(frozen=True)
class NotBy:
    """The claim does not cover programs of this compiler; the reason is one sentence."""

    compiler: str
    reason: str


@dataclass(frozen=True)
class Growth:
    """A quantity, apart from a constant, grows like ``size ** exponent``, or no faster.

    Attributes:
        quantity: ``flops``, or a field of ``hw_profiles.measurement.Measurement``.
        over: the sweep.
        exponent: 0 for a quantity that does not grow.
        within: how the measured exponent must compare with this one; its usual tolerance is
            ``hw_profiles.fit.TOLERANCE``.
        spec: Spec fields of the problem, which replace those of the family's ``measured``.
        options: options of the method, or ``module:function`` of the Spec that returns them; None: each option's
            ``usual``.
        independent_of: sweeps over which the quantity must not change.
        below: another method that takes more; None: no method is named.
        never: a second sweep: the quantity has no part that grows like the product of both variables. Then nothing is
            claimed about the exponent.
        not_by: compilers that the claim does not cover.
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
        """Why the claim does not cover programs of a compiler; "" if it does."""
        return next((one.reason for one in self.not_by if one.compiler == compiler), "")


@dataclass(frozen=True)
class Share:
    """On each of n devices, a quantity grows n times less over a sweep than on one device.

    Attributes:
        quantity: as of `Growth`; it grows linearly, apart from a constant.
        over: the sweep; its sizes are multiples of `devices`.
        devices: n, compared with 1.
        option: the method's option that takes the number of devices.
        tolerance: by how much, relatively, the ratio of the two growths may miss n; None:
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
    """One figure of a paper agrees with what is measured here.

    Attributes:
        printed: the paper's figure.
        measured: ``module:function`` of a profile's name that returns our figure; it raises ``LookupError`` with a
            sentence if the figure cannot be measured on the profile.
        unit: the unit of both, such as ``bytes`` or ``FLOPs``.
        within: how ours must compare with the printed one; the tolerance is relative.
        unlike: "" if the paper prints the quantity that is measured; otherwise how the two differ. Such a claim is not
            refuted, and it is upheld only where the two are equal, as a row with ``unlike`` (`published.Published`).
    """

    printed: float
    measured: str
    unit: str
    within: Within = Within("equal", 0.01)
    unlike: str = ""

    check: ClassVar[str] = "figure"


@dataclass(frozen=True)
class OfReference:
    """A quantity of a pair's function is at most a share of the same quantity of its reference.

    Attributes:
        quantity: as of `Growth`.
        share: at most this many times the reference's quantity.
        spec, options: as of `Growth`.
    """

    quantity: str
    share: float
    spec: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] | str | None = None

    check: ClassVar[str] = "of_reference"


Law = Growth | Share | Figure | OfReference
CHECKS = ("memory_law", "work_law", "per_device", "figure", "of_reference")
"""Checks that judge a law on a hardware profile. Every other check judges the gradient, which no profile changes."""
