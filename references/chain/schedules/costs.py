"""What the stages of a chain cost: compute, and bytes, which follow what a framework keeps of each stage.

§3.2.2 of the thesis redefines f_l, "the output of layer l", as what a PyTorch layer saves, its input included. So it
counts many tensors twice. Here three parts are counted separately: whether a recording of stage l keeps x_{l-1} alive,
whether it keeps x_l alive, and the `saved` bytes that nothing else holds. A convolution keeps its input, a ReLU its
output, a sum neither. Parameters, buffers and the gradients of parameters are not counted, because they are in memory
throughout (§2.4.3).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgate.references.contract import UsageError


@dataclass(frozen=True)
class Sharing:
    """Which storages the values and recordings of a chain consist of, where tuples pass from stage to stage.

    A tensor that a stage hands on is then one storage in several values. `Costs` counts it in each of them, as it has
    only one number for each value. With the storages, `simulate` counts it once.

    Attributes:
        sizes: bytes of each storage, by its number.
        values: the numbers of the storages of x_0 … x_N.
        recorded: of each stage, those storages of x_{l-1} and x_l that its recording keeps alive.
        saved: of each stage, the further bytes that only its recording keeps alive.
        forward_peak: of each stage, as in `Costs`, but what it hands on takes no new bytes.
        save_peak: the same of a recorded forward.
    """

    sizes: tuple[int, ...]
    values: tuple[tuple[int, ...], ...]
    recorded: tuple[tuple[int, ...], ...]
    saved: tuple[int, ...]
    forward_peak: tuple[int, ...]
    save_peak: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check lengths and numbers; raises UsageError, which says what is wrong."""
        stages = len(self.recorded)
        if len(self.values) != stages + 1 or any(
            len(field) != stages for field in (self.saved, self.forward_peak, self.save_peak)
        ):
            raise UsageError(f"the storages of {stages} stages need {stages + 1} values, and peaks for each stage")
        for stage, kept in enumerate(self.recorded, 1):
            if not {*kept} <= {*self.values[stage - 1], *self.values[stage]}:
                raise UsageError(f"stage {stage}: a recording keeps storages of its input and output, not {kept}")
        if not {n for value in self.values for n in value} <= {*range(len(self.sizes))}:
            raise UsageError("every storage needs a size")

    def in_slots(self, slot: int) -> Sharing:
        """Bytes as whole slots, each rounded up."""
        up = {
            name: tuple(-(-value // slot) for value in getattr(self, name))
            for name in ("sizes", "saved", "forward_peak", "save_peak")
        }
        return dataclasses.replace(self, **up)

    def nbytes(self, storages: Iterable[int]) -> int:
        """Bytes of some storages."""
        return sum(self.sizes[n] for n in storages)

    @property
    def hands_on(self) -> bool:
        """Whether a storage is part of more than one value."""
        count = sum(len(value) for value in self.values)
        return count > len({n for value in self.values for n in value})


@dataclass(frozen=True)
class Costs:
    """Costs of a chain of N stages. Tuples have N entries, one per stage, or N + 1, one per value x_0 … x_N.

    Attributes:
        forward: compute of each stage forward, in any unit, α^f.
        backward: compute of each stage backward, in the same unit, α^b.
        output: bytes of x_0 … x_N.
        gradient: bytes of the cotangents of x_0 … x_N; 0 where there is none.
        saved: bytes that only the recording of a stage keeps alive: neither its input nor its output.
        saves_input: whether the recording keeps x_{l-1} alive.
        saves_output: whether the recording keeps x_l alive.
        forward_peak: the most bytes at once during a forward, beyond those held before it; at least output[l].
        save_peak: the same of a recorded forward; at least output[l] + saved.
        backward_peak: the same of a backward. It includes the cotangent of x_{l-1}. It does not include the cotangent
            of x_l and the recording, which are in memory before.
        fixed: bytes held throughout besides x_0, such as random states for replay.
        first_peak: the most bytes at once before the chain begins, such as while a mask is made.
        sharing: the storages, where values have some in common; None: they have none, and the fields above are exact.
            With it, output, saved and the peaks are upper bounds, and `simulate` is exact.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    output: tuple[int, ...]
    gradient: tuple[int, ...]
    saved: tuple[int, ...]
    saves_input: tuple[bool, ...]
    saves_output: tuple[bool, ...]
    forward_peak: tuple[int, ...]
    save_peak: tuple[int, ...]
    backward_peak: tuple[int, ...]
    fixed: int = 0
    first_peak: int = 0
    sharing: Sharing | None = None

    def __post_init__(self) -> None:
        """Check lengths and signs.

        Raises:
            UsageError: names the field, and what it must be.
        """
        stages = len(self.forward)
        if stages < 1:
            raise UsageError("a chain has at least one stage")
        for item in dataclasses.fields(self):
            values = getattr(self, item.name)
            if item.name == "sharing":
                continue
            if item.name in ("fixed", "first_peak"):
                values = (values,)
            else:
                wanted = stages + (item.name in ("output", "gradient"))
                if len(values) != wanted:
                    raise UsageError(f"{item.name} must have {wanted} numbers for {stages} stages, not {len(values)}")
            if not all(0 <= value < float("inf") for value in values):
                raise UsageError(f"{item.name} must hold finite numbers of at least 0, not {values}")
        for n in range(stages):
            if self.forward_peak[n] < self.output[n + 1] or self.save_peak[n] < self.output[n + 1] + self.saved[n]:
                raise UsageError(f"stage {n + 1}: the peaks of its forwards must cover what they leave behind")
            if self.backward_peak[n] < self.gradient[n] - self.gradient[n + 1] - self.saved[n]:
                raise UsageError(f"stage {n + 1}: the peak of its backward must cover the cotangent it leaves behind")
        if self.sharing is not None and len(self.sharing.recorded) != stages:
            raise UsageError(f"the storages are of {len(self.sharing.recorded)} stages, the costs of {stages}")

    @property
    def stages(self) -> int:
        """N."""
        return len(self.forward)

    @classmethod
    def of(
        cls,
        forward: Sequence[float],
        backward: Sequence[float],
        output: Sequence[int],
        saved: Sequence[int] | None = None,
        gradient: Sequence[int] | None = None,
        saves_input: bool = True,
        saves_output: bool = False,
    ) -> Costs:
        """Costs given per layer, as in Listing 3.3, without transients: an operation's peak is what it leaves behind.

        Args:
            forward: N compute costs.
            backward: N compute costs.
            output: bytes of x_0 … x_N.
            saved: N byte counts; None: only inputs and outputs are saved.
            gradient: bytes of the cotangents of x_0 … x_N; None: as many as `output`.
            saves_input: whether recordings keep their inputs.
            saves_output: whether they keep their outputs.
        """
        stages = len(forward)
        saved = [0] * stages if saved is None else saved
        gradient = output if gradient is None else gradient
        return cls(
            tuple(forward),
            tuple(backward),
            tuple(output),
            tuple(gradient),
            tuple(saved),
            (saves_input,) * stages,
            (saves_output,) * stages,
            tuple(output[1:]),
            tuple(a + b for a, b in zip(output[1:], saved, strict=False)),
            tuple(gradient[:-1]),
        )

    @classmethod
    def uniform(cls, stages: int) -> Costs:
        """The uniform network of §4.1: every forward, backward and tensor costs 1, and a stage saves its input."""
        ones = (1,) * stages
        return cls.of(ones, ones, (1, *ones))

    def flattened(self, compute: bool = False, memory: bool = False) -> Costs:
        """The same chain as seen by a solver that knows only the means, as in the comparison of §4.3.

        Args:
            compute: every forward and every backward costs the mean.
            memory: every value, cotangent, recording and transient has the mean number of bytes, rounded down.
        """
        changes: dict[str, Any] = {}
        if compute:
            for name in ("forward", "backward"):
                changes[name] = (float(np.mean(getattr(self, name))),) * self.stages
        if memory:
            output, saved = (int(np.mean(v)) for v in (self.output, self.saved))
            above = {name: int(np.mean(getattr(self, name))) for name in ("forward_peak", "save_peak", "backward_peak")}
            common = sum(self.saves_input) * 2 >= self.stages, sum(self.saves_output) * 2 >= self.stages
            changes |= {
                "output": (output,) * (self.stages + 1),
                "gradient": (int(np.mean(self.gradient)),) * (self.stages + 1),
                "saved": (saved,) * self.stages,
                "saves_input": (common[0],) * self.stages,
                "saves_output": (common[1],) * self.stages,
                "forward_peak": (max(above["forward_peak"], output),) * self.stages,
                "save_peak": (max(above["save_peak"], output + saved),) * self.stages,
                "backward_peak": (above["backward_peak"],) * self.stages,
                "sharing": None,
            }
        return dataclasses.replace(self, **changes)

    def in_slots(self, slot: int) -> Costs:
        """Bytes as whole slots, each rounded up: what fits in slots fits in bytes."""
        if slot < 1:
            raise UsageError(f"a slot must be at least 1 byte, not {slot}")

        def up(values: Sequence[int]) -> tuple[int, ...]:
            return tuple(-(-value // slot) for value in values)

        output, saved = up(self.output), up(self.saved)
        save_peak = [max(p, o + s) for p, o, s in zip(up(self.save_peak), output[1:], saved, strict=True)]
        return dataclasses.replace(
            self,
            output=output,
            saved=saved,
            gradient=up(self.gradient),
            forward_peak=up(self.forward_peak),
            save_peak=tuple(save_peak),
            backward_peak=up(self.backward_peak),
            fixed=up((self.fixed,))[0],
            first_peak=up((self.first_peak,))[0],
            sharing=self.sharing and self.sharing.in_slots(slot),
        )

    def steady(self) -> bool:
        """Whether every recording keeps at least the bytes of its stage's input, and of that input's cotangent.

        This holds where stages keep their inputs, or outputs that are no smaller. It does not hold where a stage keeps
        almost nothing, such as a sum, a mask or a narrow output. Where it holds, no order of operations does better
        than the solver's (`solver`).
        """
        for n in range(self.stages):
            kept = self.saved[n] + self.saves_output[n] * self.output[n + 1] + self.saves_input[n] * self.output[n]
            if kept < max(self.output[n], self.gradient[n]):
                return False
        return all(g <= x for g, x in zip(self.gradient[:-1], self.output[:-1], strict=True))

    def divisor(self) -> int:
        """The greatest common divisor of all byte counts, at least 1: every size is a whole number of such slots."""
        sizes = (*self.output, *self.saved, *self.gradient, *self.forward_peak, *self.save_peak, *self.backward_peak)
        return max(1, math.gcd(self.fixed, *sizes))

    def to_json(self) -> str:
        """JSON from which `from_json` makes equal Costs."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Costs:
        """The Costs of `to_json`.

        Raises:
            UsageError: not such JSON, or impossible costs.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.get("sharing") is not None:
                shared = {name: tuple(map(_hashable, value)) for name, value in fields["sharing"].items()}
                fields["sharing"] = Sharing(**shared)
            values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
            return cls(**values)
        except (json.JSONDecodeError, TypeError, AttributeError) as error:
            raise UsageError(f"not the JSON of Costs: {error}") from None


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
