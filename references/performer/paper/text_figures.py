"""What the paper says about its curves, as numbers that are computed from the curves' points."""

from __future__ import annotations

from typing import Any

from gradgate.references.published import Agreement, Published, at_most, equal, less_than, more_than, upheld

SHARE = (
    "the paper's program is PyTorch's, of which it holds (listed below). Compiled in JAX for the P100 it takes 12.7 MB "
    "more at C = 256: a layer's share of the gradient, which waits to be added, is 11.5 MB, and the states and their "
    "cotangents are 0.8"
)
SLIGHTLY = equal(0.1, '§4.1: "just slightly above the full computation on the input of length C"')


def _rows() -> list[Published]:
    def row(
        place: str,
        series: str,
        x: str,
        unit: str,
        function: str,
        given: dict[str, Any],
        printed: float,
        agreement: Agreement,
    ) -> Published:
        measured = f"gradgate.references.derived:{function}"
        return Published(place, series, x, unit, measured, given, printed, expects=upheld(agreement))

    memory, off = "Fig. 2, memory", "Fig. 2, discrepancy"
    return [
        row(
            off,
            "II, iter.",
            "largest",
            "relative",
            "value",
            {"of": f"{off} / II, iter.", "take": "largest"},
            1e-5,
            at_most('§4.2: "of order 1e-6–1e-5"'),
        ),
        row(
            off,
            "II, iter.",
            "at C = 4 over C = 512",
            "times",
            "quotient",
            {"over": f"{off} / II, iter. / 4", "under": f"{off} / II, iter. / 512", "take": "first"},
            1.0,
            more_than('§4.2: "slightly increasing as C decreases"'),
        ),
        row(
            memory,
            "IV, iter. over L/B",
            "largest",
            "times",
            "quotient",
            {"over": f"{memory} / IV, iter.", "under": f"{memory} / IV, L/B", "take": "largest"},
            1.0,
            SLIGHTLY,
        ),
        Published(
            memory,
            "II, iter. over L/B",
            "largest",
            "times",
            "gradgate.references.derived:quotient",
            {"over": f"{memory} / II, iter.", "under": f"{memory} / II, L/B", "take": "largest"},
            None,
            SHARE,
        ),
        Published(
            memory,
            "PyTorch, II, iter. over L/B",
            "C = 256",
            "times",
            "gradgate.references.performer.paper.rows:torch_over_short",
            {"name": "II", "chunk": 256},
            1.0,
            expects=upheld(SLIGHTLY),
        ),
        *(
            row(
                memory,
                f"{name}, iter. over PS",
                "C = 256",
                "times",
                "quotient",
                {"over": f"{memory} / {name}, iter.", "under": f"{memory} / {name}, PS", "take": "last"},
                printed,
                said,
            )
            for name, printed, said in (
                ("II", 1.0, less_than('§4.1: "while consuming much less memory", without a number: less')),
                ("IV", 1.0, less_than('§4.1: "less memory": at C = 256 parameters and gradient are most of both')),
            )
        ),
        row(
            memory,
            "III over IV",
            "C = 256",
            "times",
            "quotient",
            {"over": f"{memory} / III, iter.", "under": f"{memory} / IV, iter.", "take": "first"},
            1.0,
            equal(0.05, 'Fig. 2: "completely match"'),
        ),
        row(
            memory,
            "II, iter.",
            "exponent of C",
            "1",
            "growth",
            {"of": f"{memory} / II, iter."},
            1.0,
            less_than('§4.1: "Memory scales slower than O(C)"'),
        ),
    ]


ROWS = tuple(_rows())
