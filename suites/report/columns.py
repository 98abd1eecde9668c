"""What the columns of each table of a report say, in a sentence or less."""

from __future__ import annotations

VERDICTS = {
    "family": "the class of problems, or the pair",
    "method": "what was judged",
    "framework": "jax or torch",
    "claim and reason": "the claim, which opens to its problem and command; below it, why it came out so",
    "verdict": "upheld, refuted, inapplicable (it could not be judged here) or error (it crashed or hung)",
    "error": "the relative error of the leaf that is worst, on the worst problem",
    "noise": "the error of plain backprop in the same dtype on the same problem: what rounding alone does",
    "digits lost": "decimal digits lost beyond plain backprop, on the worst problem; 1.0 is ten times its error",
    "leaf": "the input or parameter whose gradient is worst",
    "problems": "how many problems were drawn; “3 of 5” means that three of them could tell right from wrong",
    "seconds": "how long the judging took",
}
"""The table of all verdicts."""
CAUSE = {
    "claim": "a claim that fails for the cause of the card; it leads to its line in the table of all verdicts",
    "error": VERDICTS["error"],
    "noise": VERDICTS["noise"],
    "leaf": VERDICTS["leaf"],
    "reason": "why this claim fails; “the same” is the reason of the card",
}
"""The claims of one cause."""
COVERED = {
    "lines that ran": "lines of the pair's functions that some problem ran, of all; what never ran was not judged",
    "decisions both ways": "where, clamp, if and the like that went both ways over the problems, of all",
    "never taken": "the sides of decisions that no problem took",
}
"""How much of a pair's code was judged."""
POWER = {
    "judgements": "how often the method was judged on random problems",
    "worst error / noise": "the largest error over noise in these judgements; a claim is refuted above 16",
    "δ": "the smallest relative error that is refuted in every kind of leaf, and the bound derived for it",
    "by kind of leaf": "the same for each kind of leaf; leaves that differ only in an index are one kind",
}
"""How small an error is detected."""
PAPERS = {
    "series": "which curve or row of the paper",
    "at": "the size or setting",
    "printed": "what the paper prints",
    "ours": "what was measured here",
    "ratio": "ours over printed",
    "unit": "the unit of both",
    "agreement": "how far the two may be apart to agree; the tooltip says why so far",
    "verdict": "upheld, refuted as declared, or unexplained; empty where the paper prints no number",
    "why they differ": "the reason that was tested",
}
"""The figures of papers."""
LEDGER = {
    "place": "where in the paper",
    "the paper's words": "a part of the sentence",
    "became": "claim, figure, note (it claims nothing) or not measurable",
    "claims are expected": "what the claims that stand for the sentence are declared to be",
    "figures are": "what became of the figures that stand for it",
    "which, or why not": "the names of these claims and figures, or why there are none",
}
"""The statements of papers."""
MEMORY = {
    "method": "what was compiled or run",
    "framework": "jax or torch",
    "bytes of": "the device whose compiler planned the bytes; “every device” for tensors of PyTorch",
    "options": "the options of the method, or the name of the setting",
    "size": "the size that was swept",
    "temp": "bytes that live only during the call: what is kept for the backward pass, and buffers",
    "arguments": "bytes of the inputs and parameters",
    "outputs": "bytes of the loss and the gradients",
    "fits": "whether all of it fits in the memory of the device",
    "work": "floating-point operations, counted in the program; recomputation counts",
    "roofline": "the shortest time that the device's peak rate and bandwidth allow for this work and these bytes",
    "kept": "bytes that are kept from the forward to the backward pass",
    "compiled kept": "the same under torch.compile",
    "compiled peak": "the largest number of bytes alive at once under torch.compile",
}
"""What ``gradgate memory`` measures."""
CHOICE = {
    "bytes of": MEMORY["bytes of"],
    "method": "a method of the class",
    "verdict": "whether its gradient of your model is right",
    "size": "the largest size that was measured",
    "bytes": "temp, arguments and outputs together",
    "temp": MEMORY["temp"],
    "work": MEMORY["work"],
    "roofline": MEMORY["roofline"],
    "fits": MEMORY["fits"],
    "note": "why it is wrong, or could not be measured",
}
"""Which method to use."""
TOOLS = {
    "mutants": "how many the tool was given: those of the frameworks that it supports",
    "found": "how many it reports as wrong",
    "wrong formulas found": "the same, of those whose formula is wrong in exact arithmetic",
    "false alarms": "unbroken methods that it reports as wrong",
    "s per problem": "seconds for one problem of an unbroken method that is already compiled",
    "smallest planted error found": "the smallest relative error in one leaf from which on it finds all",
}
"""The suite and other tools."""
GROUPS = {
    "mutants": "methods with one bug",
    "killed": "how many a claim refuted",
    "kill rate": "killed of mutants",
    "equivalent": "mutants that compute the same as their method, which is proved",
    "problems to the kill, median": "how many problems were drawn until the claim was refuted",
    "seconds, all": "seconds for all of them",
    "smallest planted error found": TOOLS["smallest planted error found"],
}
"""The classes of the selftest."""
MUTANTS = {
    "mutant": "its name",
    "what is wrong": "the bug in a sentence; of an equivalent one, the proof",
    "source": "where the bug comes from",
    "killed by": "the claim that refuted it, or its status",
    "problems": "how many were drawn until then",
    "seconds": "how long that took",
    "found by the others": "other tools that report it",
}
"""Every mutant."""
WATCHED = {
    "rule": "the handwritten derivative; the name leads to what there is to say of it",
    "at": "file and line of its backward pass",
    "verdict": "what became of it",
    "calls": "how often the command called it with a gradient",
    "seen": "its distinct calls: dtypes, shapes and options; traced means that no values were known",
    "decisions both ways": COVERED["decisions both ways"],
    "bytes kept": "between the forward and the backward pass, at the judged call; plain: without the rule",
}
"""The rules of ``gradgate watch``."""
