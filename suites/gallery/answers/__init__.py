"""An audit of answers: backward passes that programs wrote for TritonBench and KernelBench, judged by a court.

`source` reads the answers from a clone of a repository, `tasks` says in plain PyTorch what each operator of TritonBench
computes, `run` is the command, and `page` writes the table. No code of the benchmark or of an answer is kept
here: rows hold digests, places and verdicts. `findings` has a script of our own for each mechanism.
"""
