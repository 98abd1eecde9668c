"""Starts the recorder in every Python process of a watched command; the folder of this file leads its PYTHONPATH.

Python imports one module of this name when it starts. The module of this name that it would have imported otherwise is
run afterwards, so that the watched program starts as it always does.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

try:
    from gradgate.suites.watching import recorder

    recorder.start()
except Exception as error:  # another environment, or a gradgate without this module: the program runs unwatched
    sys.stderr.write(f"gradgate: this process is not watched: {error}\n")

rest = [folder for folder in sys.path if os.path.abspath(folder or ".") != HERE]
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
if spec is not None and spec.loader is not None:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
