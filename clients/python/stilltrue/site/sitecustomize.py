"""Imported by every Python that `stilltrue run` starts: prepares the agent, then hands over to the next sitecustomize.

It can be read by any Python 3 and never ends one: what fails here is left out, and the program goes on.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load_agent():
    """Prepare the agent, also in an interpreter in which it is not installed: the package is beside this file."""
    if importlib.util.find_spec("stilltrue") is None:
        package = os.path.dirname(_HERE)
        init = os.path.join(package, "__init__.py")
        spec = importlib.util.spec_from_file_location("stilltrue", init, submodule_search_locations=[package])
        sys.modules["stilltrue"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    importlib.import_module("stilltrue.launch").prepare()


def _hand_over():
    """Run the sitecustomize that would have been found without this one, under its own name."""
    others = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if sys.version_info >= (3, 11):
    try:
        _load_agent()
    except Exception:
        sys.modules.pop("stilltrue", None)
_hand_over()
