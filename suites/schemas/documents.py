"""The JSON documents that gradgate writes and reads, as types.

`read` compares a file with its type before anything else sees it, so that a file that was edited by hand ends a command
with one line. A field is added and never renamed; a field that is not known here is ignored.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gradgate.references.errors import UsageError
from gradgate.suites.schemas.checking import checked

Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
Framework = Literal["jax", "torch"]
RuleState = Literal["upheld", "in floats", "by differences", "refuted", "elsewhere", "acknowledged", "not judged"]
Expected = Literal["upheld", "refuted"]
Versions = dict[str, str]
Fields = dict[str, Any]
Size = Annotated[float, Meta(gt=0, le=1e15)]
Figure = Annotated[float, Meta(ge=-1e200, le=1e200)]
Quantity = Annotated[str, Meta(pattern=r"^\w+$", extra={"legal": "a name of letters, digits and _"})]


class Shard(msgspec.Struct):
    """A share of a run: the `index`-th of `of` shares, all of them together with `total` rows."""

    index: Annotated[int, Meta(ge=1)]
    of: Annotated[int, Meta(ge=1)]
    total: Count
    keys: list[str] = []

    def __post_init__(self) -> None:
        """Raise ValueError for a share that does not exist."""
        if self.index > self.of:
            raise ValueError(f"index must be at most {self.of}, the number of shares, not {self.index}")


class Law(msgspec.Struct):
    """A fitted law: value = constant + coefficient · size ** exponent."""

    exponent: Annotated[float, Meta(ge=-12, le=12)]
    constant: Figure
    coefficient: Figure
    residual: Amount
    exponent_range: tuple[float, float]
    largest: Size
    outliers: list[float] = []
    grain: Annotated[Amount, Meta(description="bytes to which a law may have been rounded up; 0 if none was")] = 0.0


class Series(msgspec.Struct):
    """A quantity over sizes, and the law fitted to it."""

    quantity: Quantity
    variable: str
    letter: str
    sizes: list[Size]
    values: list[Figure]
    law: Law | None
    problem: str
    exponents: tuple[float, float] | None
    name: str
    words: str

    def __post_init__(self) -> None:
        """Raise ValueError for values without sizes, or a law without values."""
        if len(self.sizes) != len(self.values):
            raise ValueError(f"values must have one for each of {len(self.sizes)} sizes, not {len(self.values)}")
        if self.law is not None and not self.sizes:
            raise ValueError("law must be null where there are no sizes")


class Coverage(msgspec.Struct):
    """How many pairs of (field, value) were tried, and which were not."""

    tried: Count
    possible: Count
    missing: list[str]
    enough: Annotated[Count, Meta(description="problems with which every shape would be tried")] = 0


class Sides(msgspec.Struct):
    """Which sides one comparison took, and how near it came to a tie on each."""

    at: Annotated[Name, Meta(description="file.py:12")]
    what: Annotated[Name, Meta(description="the comparison, such as … > 20")]
    below: Annotated[Amount | None, Meta(description="the smallest right − left; null if the left was never below")] = (
        None
    )
    tied: Annotated[bool, Meta(description="whether the two were ever equal")] = False
    above: Annotated[Amount | None, Meta(description="the smallest left − right; null if the left was never above")] = (
        None
    )


class Decisions(msgspec.Struct):
    """How many decisions of two programs went both ways, and what is known about the others."""

    decisions: Count
    both: Count
    proved: Annotated[Count, Meta(description="how many have a side that is proved to be out of reach")] = 0
    never: Annotated[list[str], Meta(description="what no problem reached: one entry for each line of source")] = []
    lines: Annotated[
        dict[str, tuple[Count, Count]],
        Meta(description="line of source -> how many decisions there went both ways, and how many there are"),
    ] = {}
    sides: Annotated[list[Sides], Meta(description="each decision that compares numbers")] = []
    tries: Annotated[Count, Meta(description="changed inputs at which the programs were evaluated")] = 0
    apart: Annotated[
        list[str], Meta(description="changed inputs that could not be judged, or differ without a fault")
    ] = []
    kernels: Annotated[
        list[str],
        Meta(
            description="how often each mask, if and loop of Triton kernels, and block of Pallas ones, went which way"
        ),
    ] = []


class Lines(msgspec.Struct):
    """Which lines of an author's file ran when a pair was judged."""

    path: Name
    digest: Annotated[str, Meta(description="the sha256 of the file")]
    ran: Annotated[list[tuple[Count, Count]], Meta(description="first and last line of each stretch that ran")] = []
    never: Annotated[list[tuple[Count, Count]], Meta(description="the same of lines that no problem ran")] = []
    loops: Annotated[
        list[tuple[Count, Count]], Meta(description="line of a loop that turned once at most, and its most turns")
    ] = []
    branches: Annotated[list[Count], Meta(description="line of an if without else that was true every time")] = []


class Worst(msgspec.Struct):
    """The hardest problem for a function in floats that a search found."""

    noises: Annotated[Amount | None, Meta(description="error in multiples of its noise; null if it is not finite")]
    drawn: Annotated[Amount | None, Meta(description="the same for the worst problem that was drawn")] = None
    scales: Annotated[dict[str, float], Meta(description="input -> the factor by which it is multiplied")] = {}
    shape: Annotated[Fields, Meta(description="its sizes and shared options, if the search changed them")] = {}
    spec: Annotated[Fields, Meta(description="the problem")] = {}
    tries: Annotated[Count, Meta(description="problems of the search")] = 0


class Verdict(msgspec.Struct):
    """The verdict on one claim."""

    family: Name
    method: Name
    framework: Framework
    claim: Name
    verdict: Literal["upheld", "refuted", "inapplicable", "error"]
    statement: str = ""
    source: str = ""
    expected: Expected = "upheld"
    as_expected: bool = True
    declared_reason: str = ""
    why: Annotated[str, Meta(description="the name of `declared_reason` in older documents")] = ""
    examples: Annotated[Count, Meta(description="problems that were judged")] = 0
    error: Annotated[Amount | None, Meta(description="the largest relative error in proportion to its bound")] = None
    noise: Annotated[Amount | None, Meta(description="the noise allowed for that error, on the same scale")] = None
    leaf: Annotated[str, Meta(description="the leaf of the gradient that error and noise belong to")] = ""
    spec: Annotated[Fields | None, Meta(description="the smallest problem that fails, or the worst one")] = None
    options: Annotated[Fields, Meta(description="the method's options on that problem")] = {}
    profile: Name = "cpu"
    reason: Annotated[str, Meta(description="what was wrong, or why nothing could be said")] = ""
    wrong_line: Annotated[str, Meta(description="the line of source that is to blame, as src/ops.py:12")] = ""
    seconds: Amount = 0.0
    reproduce: Annotated[str, Meta(description="one command that judges this claim again")] = ""
    laws: list[Series] = []
    run: Annotated[
        dict[str, int], Meta(description="examples and seed, if all problems together refute and no single one does")
    ] = {}
    coverage: Coverage | UnsetType = UNSET
    decisions: Decisions | UnsetType = UNSET
    lines: list[Lines] = []
    worst: Worst | UnsetType = UNSET
    digits: Annotated[Count | None, Meta(description="digits to which both formulas are known to agree")] = None
    lost: Annotated[float | None, Meta(description="decimal digits lost beyond plain backprop")] = None
    informative: Count | None = None
    bound: Amount | None = None
    origin: str = ""
    target: str = ""
    reused: bool = False
    record: Annotated[list[str], Meta(description="the entries of `readings` on which the verdict rests")] = []


class Reading(msgspec.Struct):
    """What a process read in one stretch of its life. Paths in the project's repository are relative to the project."""

    files: Annotated[dict[str, str], Meta(description="path -> sha256; empty if there was no such file")] = {}
    modules: Annotated[dict[str, str], Meta(description="name -> path, of modules of no installed package")] = {}
    judges: Annotated[dict[str, str], Meta(description="name -> sha256, of gradgate's own modules")] = {}
    packages: Annotated[list[str], Meta(description="installed packages that were used")] = []
    variables: Annotated[dict[str, str], Meta(description="environment variable -> digest of its value")] = {}
    lookups: Annotated[
        dict[str, dict[str, list[str]]], Meta(description="folder -> module -> the entries that could be this module")
    ] = {}
    absent: Annotated[list[str], Meta(description="modules that were looked for and are not installed")] = []
    probes: Annotated[dict[str, bool], Meta(description="path -> whether it existed when this was asked")] = {}
    listings: Annotated[dict[str, str], Meta(description="folder -> digest of the names in it")] = {}
    unrepeatable: Annotated[list[str], Meta(description="why something cannot be compared later")] = []


class Asked(msgspec.Struct):
    """The settings that all shares of a run have in common."""

    examples: Count
    seed: int


class Verdicts(msgspec.Struct):
    """What ``gradgate verify --json`` writes, ``verdicts.json`` in a report too."""

    schema: Literal[1]
    fingerprint: Versions
    claims: Annotated[Count, Meta(description="how many claims the run was to judge")]
    verdicts: list[Verdict]
    shard: Shard | None = None
    asked: Asked | None = None
    readings: Annotated[
        dict[str, Reading], Meta(description="what was read to reach the verdicts: identity -> one reading")
    ] = {}


class Cell(msgspec.Struct):
    """One measured program: bytes of one device, work of all devices together; null if it is not known."""

    family: Name
    method: Name
    framework: Framework
    profile: Name
    options: Fields
    spec: Fields
    status: Literal["measured", "too_large", "unavailable", "refused", "crashed", "timeout", "failed", "inapplicable"]
    reason: str = ""
    devices: Annotated[int, Meta(ge=1)] = 1
    temp_bytes: Count | None = None
    argument_bytes: Count | None = None
    output_bytes: Count | None = None
    alias_bytes: Count | None = None
    peak_bytes: Count | None = None
    required_bytes: Count | None = None
    residual_bytes: Count | None = None
    compiled_residual_bytes: Count | None = None
    compiled_peak_bytes: Count | None = None
    alive: tuple[str, ...] = ()
    fits: bool | None = None
    memory_bytes: Count | None = None
    flops: Amount | None = None
    transcendentals: Amount | None = None
    bytes_moved: Amount | None = None
    roofline_seconds: Amount | None = None
    cached: bool = False
    fingerprint: Versions = {}
    target: str = ""


class MeasuredLaw(Series, kw_only=True):
    """A law of one method on one profile, and the largest size that fits the device."""

    family: Name
    method: Name
    framework: Framework
    profile: Name
    memory_bytes: Count | None = None
    largest_measured: Size | None = None
    smallest_unfit: Size | None = None
    largest_foretold: Amount | None = None


class Memory(msgspec.Struct):
    """What ``gradgate memory --json`` writes."""

    schema: Literal[1]
    fingerprint: Versions
    cells: list[Cell]
    laws: list[MeasuredLaw]
    shard: Shard | None = None
    choice: Annotated[Fields | None, Meta(description="with ``--problem``: what each method does on the model")] = None


class Rival(msgspec.Struct):
    """What another tool says about a mutant."""

    found: bool
    examples: Count
    seconds: Amount
    reason: str = ""


class Mutant(msgspec.Struct):
    """A broken method and what became of it."""

    name: Name
    family: Name
    framework: Framework
    method: Name
    story: str
    source: str
    kill: list[str]
    also: list[str]
    equivalent: str
    formula: bool
    planted: Amount
    status: Literal["killed", "survived", "undecided", "equivalent", "sound", "alarm"]
    claim: str
    examples: Count
    seconds: Amount
    leaf: str
    error: Amount | None
    reason: str
    rivals: dict[str, Rival]
    judged: list[str] = []


class Formulas(msgspec.Struct):
    """Mutants with a wrong formula, how many of them sixty digits alone kill, and what kills the others."""

    wrong: Count
    killed: Count
    others: dict[str, list[str]]


class Selftest(msgspec.Struct):
    """What ``gradgate selftest --json`` writes."""

    schema: Literal[2]
    fingerprint: Versions
    sources: str
    examples: Count
    seed: int
    formulas: Formulas
    mutants: list[Mutant]
    date: str = ""
    shard: Shard | None = None


class Alarms(msgspec.Struct):
    """Random problems on which right methods were judged."""

    problems: Count
    judged: dict[str, Count]
    alarms: list[Fields]
    digits: list[Count]
    ratios: dict[str, list[Amount]]
    worst: dict[str, dict[str, Amount]]


Power = dict[str, dict[str, Annotated[list[str], Meta(min_length=2, max_length=3)]]]
"""Dtype -> kind of leaf -> the smallest error that is seen, the leaf that needs it, and a bound."""


class _Powers(msgspec.Struct):
    planted: Power


class Calibration(msgspec.Struct):
    """What ``gradgate calibrate --json`` keeps: family -> piece of work -> what was measured."""

    seed: int
    problems: Count
    fingerprint: Versions
    families: dict[str, dict[str, Fields]]
    schema: Literal[1] = 1
    shard: Shard | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a piece of work whose result is not of its kind."""
        for family, pieces in self.families.items():
            for name, found in pieces.items():
                where = f"families.{family}.{name}"
                if name.startswith("alarms:") and name.count(":") == 2:
                    checked(found, Alarms, where)
                elif name.startswith("power:") and name.count(":") == 2:
                    checked({"planted": found}, _Powers, where)
                else:
                    raise ValueError(f"{where} is no piece of work; legal: alarms:FRAMEWORK:N, power:FRAMEWORK:METHOD")


class Figures(msgspec.Struct):
    """What ``gradgate calibrate --summary`` writes: the figures of each family."""

    seed: int
    problems: Count
    fingerprint: Versions
    families: dict[str, Fields]
    schema: Literal[1] = 1


class Flake(Verdict, kw_only=True):
    """A verdict that is not the declared one, and the seed under which it was given."""

    seed: int


class Repeat(msgspec.Struct):
    """What ``gradgate repeat --json`` keeps: each claim with the seeds under which it was judged.

    Attributes:
        silent: those of the seeds under which the claim was inapplicable.
    """

    schema: Literal[1]
    fingerprint: Versions
    examples: Count
    flakes: list[Flake]
    judged: dict[str, list[int]]
    silent: dict[str, list[int]] = {}
    shard: Shard | None = None


class Printed(msgspec.Struct):
    """A figure of a paper, printed and measured again."""

    key: Name
    place: str
    series: str
    x: str | float
    unit: str
    ours: Any
    problem: str
    seconds: Amount
    date: str
    fingerprint: Versions
    printed: float | None = None
    ratio: float | None = None
    reason: str = ""
    kind: str = ""
    unlike: str = ""
    expected: str = ""
    agreement: str = ""
    because: str = ""
    instead: float | None = None
    outcome: str = ""
    sentence: str = ""


class Paper(msgspec.Struct):
    """What ``gradgate paper --json`` keeps, ``paper.json`` in the folder of a class too."""

    schema: Literal[1]
    results: list[Printed]
    shard: Shard | None = None


class Compared(msgspec.Struct):
    """How many there are on the head, how many of them were measured or judged, and how many were reused."""

    manifest: Count
    reused: Count
    measured: Count = 0
    judged: Count = 0
    inapplicable: Count = 0


class Finding(msgspec.Struct):
    """One thing that the gate says about a change."""

    kind: Annotated[Name, Meta(description="such as ``rise``, ``refuted``, ``unmeasured``, ``allowed`` or ``fall``")]
    name: str
    row: Fields
    quantity: str
    base: float | None
    head: float | None
    memory_bytes: Count | None
    sentence: str
    share_of_memory: Amount | None
    reproduce: str


class Gate(msgspec.Struct):
    """What ``gradgate gate --json`` writes."""

    schema: Literal[1]
    status: Literal[0, 1, 2]
    verdict: Annotated[Name, Meta(description="the result in one line")]
    base: str
    head: str
    asked: str
    fingerprint: Versions
    fingerprint_base: Versions
    cells: Compared
    claims: Compared
    seconds: Amount
    findings: list[Finding]


class Claim(msgspec.Struct):
    """What a method claims."""

    name: Name
    statement: str
    source: str
    expected: Expected


class Option(msgspec.Struct):
    """An option of a method, and its legal values in words."""

    name: Name
    legal: str


class Method(msgspec.Struct):
    """A method with its claims and options."""

    family: Name
    method: Name
    framework: Framework
    claims: list[Claim]
    options: list[Option]


class Methods(msgspec.Struct):
    """What ``gradgate list --json`` prints."""

    schema: Literal[1]
    methods: list[Method]


class Covering(msgspec.Struct):
    """A claim that covers a statement of a paper."""

    method: Name
    framework: Framework
    name: Name
    expected: Expected


class Listed(msgspec.Struct):
    """A figure that covers a statement of a paper."""

    place: str
    series: str
    x: str | float
    unit: str
    printed: float | None
    ours: Any
    kind: str
    unlike: str
    expected: str
    agreement: str
    outcome: str
    reason: str


class Statement(msgspec.Struct):
    """A statement of a paper and what covers it."""

    place: str
    words: str
    kind: Literal["claim", "figure", "note", "not measurable", "not covered yet"]
    claims: list[Covering]
    figures: list[Listed]
    reason: str


class Ledger(msgspec.Struct):
    """The statements of one paper."""

    family: Name
    paper: str
    counts: dict[str, Count]
    statements: list[Statement]


class Statements(msgspec.Struct):
    """What ``gradgate list --paper --json`` prints."""

    schema: Literal[1]
    papers: list[Ledger]


class Profile(msgspec.Struct):
    """A hardware profile, and whether its compiler is installed."""

    name: Name
    kind: str
    memory_bytes: Count | None
    bandwidth: Annotated[Amount | None, Meta(description="bytes per second of one chip")]
    compiler: str | None
    available: bool
    extra: Annotated[str | None, Meta(description="the extra of gradgate that installs the compiler")]
    reason: str


class Profiles(msgspec.Struct):
    """What ``gradgate profiles --json`` prints."""

    schema: Literal[1]
    profiles: list[Profile]


class Point(msgspec.Struct):
    """The gradient of a pair's function or reference in one dtype, with one input times ten to the `power`."""

    leaf: Annotated[str, Meta(description="the input that is scaled; empty for all inputs")]
    power: int
    dtype: Literal["float64", "float32", "bfloat16", "float16"]
    role: Literal["function", "reference"]
    lost: Annotated[Amount | None, Meta(description="decimal digits lost; null if there is a state")]
    state: Literal["", "overflow", "zero", "wrong", "error", "unknown", "range"]


class Domain(msgspec.Struct):
    """What ``gradgate domain --json`` writes."""

    schema: Literal[1]
    target: Name
    spec: Fields
    options: Fields
    points: Annotated[list[Point], Meta(min_length=1)]


class SeenCall(msgspec.Struct):
    """A distinct call of a handwritten derivative, with the verdicts on it."""

    arguments: Annotated[list[str], Meta(description="each argument in a word or two, such as `float32[3,4]`")]
    traced: Annotated[bool, Meta(description="whether it was recorded without values, as under jax.jit")]
    test: Annotated[str, Meta(description="the test of pytest that made it; empty if none did")]
    calls: Count
    state: RuleState
    verdicts: list[Verdict]


class KeptBytes(msgspec.Struct):
    """What is kept between the forward and the backward pass."""

    rule: Count
    plain: Annotated[Count, Meta(description="what is kept without the rule")]


class WatchedRule(msgspec.Struct):
    """A handwritten derivative that a command called."""

    framework: Framework
    kind: Literal[
        "autograd.Function",
        "torch.library",
        "checkpoint",
        "hook",
        "hook of a module",
        "custom_vjp",
        "custom_jvp",
        "custom_vmap",
        "custom_root",
        "custom_linear_solve",
    ]
    name: Annotated[Name, Meta(description="`package.module:qualified.name`")]
    file: Name
    line: Count
    state: RuleState
    reason: Annotated[str, Meta(description="why it is refuted, or why it was not judged")]
    acknowledged: Annotated[str, Meta(description="the reason in the settings; empty if they name no such rule")]
    likeness: Annotated[str, Meta(description="how its gradient relates to the right one, if in a simple way")]
    test: Annotated[str, Meta(description="a short test without gradgate that fails")]
    warnings: list[str]
    kept_bytes: Annotated[KeptBytes | None, Meta(description="null if they cannot be counted")]
    calls: Count
    more: Annotated[Count, Meta(description="distinct calls that were recorded and not judged")]
    seen: list[SeenCall]


class Watched(msgspec.Struct):
    """What ``gradgate watch --json`` writes."""

    schema: Literal[1]
    fingerprint: Versions
    rules: list[WatchedRule]
    notes: list[str]


class HeardClaim(msgspec.Struct):
    """The verdict on one claim about a candidate."""

    claim: Name
    statement: str
    verdict: Literal["upheld", "refuted", "inapplicable", "error"]
    reason: str
    proved_by: Annotated[str, Meta(description="which side of the wall the verdict rests on")]
    examples: Annotated[Count, Meta(description="problems that were judged")]
    error: Amount | None
    noise: Amount | None
    leaf: str
    seconds: Amount


class Score(msgspec.Struct):
    """What a loop over candidates may optimise. Everything in it was measured outside of the candidate."""

    claims: Annotated[float, Meta(ge=0, le=1, description="share of upheld claims among those with a verdict")]
    digits_lost: Annotated[dict[str, Amount | None], Meta(description="dtype -> digits lost beyond plain backprop")]
    resident_bytes: Annotated[Count, Meta(description="largest growth of a process's resident memory")]
    processor_seconds: Annotated[Amount, Meta(description="processor time of its processes, compiling included")]
    reference_seconds: Annotated[
        Amount, Meta(description="processor time of this court's own process meanwhile: reference, truth, comparison")
    ] = 0.0


class Counterexample(msgspec.Struct):
    """The smallest problem on which a claim was refuted."""

    claim: Name
    spec: Annotated[Fields, Meta(description="sizes, seed, regime and dtype; the task draws the same inputs from it")]
    options: Fields
    leaf: str
    error: Amount | None
    noise: Amount | None


class Measured(msgspec.Struct):
    """What was measured at a workload of SOL-ExecBench."""

    max_absolute_error: Amount
    max_relative_error: Amount
    has_nan: bool
    has_inf: bool
    seconds: Annotated[Amount, Meta(description="of one call, the crossing of the wall included")]
    reference_seconds: Amount


class Hint(msgspec.Struct):
    """Whether a candidate's formula is the reference's in sixty digits, as its own process says, which could lie."""

    state: Literal["equal", "differs", "unknown"] = "unknown"
    reason: str = ""
    error: Annotated[Amount | None, Meta(description="largest relative distance that the balls allow")] = None


class Answer(msgspec.Struct):
    """What a court says about one candidate."""

    name: Name
    digest: Annotated[str, Meta(description="the sha256 of the candidate's text")]
    verdict: Annotated[
        Literal["upheld", "refuted", "inapplicable", "error"],
        Meta(description="upheld if every claim with a verdict is, one about the gradient among them"),
    ]
    reason: Annotated[str, Meta(description="why it is not upheld")]
    claims: list[HeardClaim]
    not_judged: Annotated[dict[str, str], Meta(description="claim -> why no court judges it")]
    score: Score
    counterexample: Counterexample | None
    wall: Annotated[dict[str, str], Meta(description="what the candidate was cut off from, and how")]
    processes: Count
    calls: Count
    seconds: Amount
    task: Annotated[str, Meta(description="the task's target")] = ""
    task_digest: Annotated[str, Meta(description="the sha256 of the file in which the task is declared")] = ""
    function: Annotated[str, Meta(description="the function that was asked for; none: the court's choice")] = ""
    sixty_digits: Annotated[Hint, Meta(description="a hint, and no verdict")] = msgspec.field(default_factory=Hint)
    measured: Annotated[dict[str, Measured], Meta(description="claim about a workload -> what was measured")] = {}


class Judgement(msgspec.Struct):
    """What ``gradgate judge --json`` prints."""

    schema: Literal[1]
    fingerprint: Versions
    task: str
    answers: list[Answer]


DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "verdicts": Verdicts,
    "memory": Memory,
    "selftest": Selftest,
    "calibrate": Calibration,
    "summary": Figures,
    "repeat": Repeat,
    "paper": Paper,
    "gate": Gate,
    "list": Methods,
    "statements": Statements,
    "profiles": Profiles,
    "domain": Domain,
    "watch": Watched,
    "judge": Judgement,
}
"""Name of a document -> its type."""
LISTS = {
    "verdicts": "verdicts",
    "cells": "memory",
    "mutants": "selftest",
    "families": "calibrate",
    "judged": "repeat",
    "results": "paper",
}
"""What a document lists -> its name, for the documents that are united from shares."""


def read(path: Path, *names: str) -> dict[str, Any]:
    """A document from a file, compared with its type.

    Args:
        path: the file.
        names: the documents of `DOCUMENTS` that are legal; with several, each has a list by which it is known.

    Raises:
        FileNotFoundError: there is no such file.
        UsageError: it cannot be read, or is no such document; says which field is wrong and what is legal.
    """
    document = _parsed(path)
    name = names[0]
    if len(names) > 1:
        lists = {key: known for key, known in LISTS.items() if known in names}
        found = [key for key in lists if isinstance(document, dict) and key in document]
        if len(found) != 1:
            has = f"{' and '.join(map(repr, found))}" if found else "none of them"
            raise UsageError(f"{path} must have exactly one of the keys {', '.join(lists)}; it has {has}")
        name = lists[found[0]]
    checked(document, DOCUMENTS[name], f"{path} does not fit gradgate schema {name}")
    assert isinstance(document, dict)
    return document


def _parsed(path: Path) -> Any:
    try:
        text = path.read_bytes().decode("utf-8")
        return json.loads(text, object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:  # a JSONDecodeError, a key that is there twice, a number of 5,000 digits
        raise UsageError(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise UsageError(f"{path} is not JSON of gradgate: it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number
