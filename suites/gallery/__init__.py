"""Triton kernels of public libraries as pairs, judged without a GPU: ``gradgate verify suites/gallery/liger.py``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from importlib import metadata as distributions
from typing import Any

from gradgate.suites.judging.subject import Inapplicable


def kernels(distribution: str, version: str, module: str, *, bare: str = "") -> Any:
    """Import a module of a library.

    Args:
        distribution: the distribution to install, such as ``liger-kernel``.
        version: the version for which the pairs are declared. With another version, nothing is judged.
        module: the name of the module, such as ``liger_kernel.ops.swiglu``.
        bare: a package whose ``__init__`` is not run, because it imports much besides the kernels.

    Raises:
        Inapplicable: the library is not installed in this version; says how to install it.
    """
    try:
        found = distributions.version(distribution)
    except distributions.PackageNotFoundError:
        found = "no version"
    if found != version:
        raise Inapplicable(
            f"these pairs are of {distribution} {version}, and {found} is installed: "
            f"pip install --no-deps {distribution}=={version}"
        )
    if bare and bare not in sys.modules:
        spec = importlib.util.find_spec(bare)
        assert spec is not None
        package = types.ModuleType(bare)
        package.__path__ = list(spec.submodule_search_locations or ())
        package.__spec__, package.__dict__["__version__"] = spec, version
        sys.modules[bare] = package
    return importlib.import_module(module)
