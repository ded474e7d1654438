"""Imported by every Python process that `stilltrue run` starts: prepares the agent, then runs the next sitecustomize.

It runs on any Python 3. If the agent cannot be prepared, the program goes on without it.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load_agent():
    """Prepare the agent, even where it is not installed: the package is the parent directory of this file's."""
    if importlib.util.find_spec("stilltrue") is None:
        package = os.path.dirname(_HERE)
        init = os.path.join(package, "__init__.py")
        spec = importlib.util.spec_from_file_location("stilltrue", init, submodule_search_locations=[package])
        sys.modules["stilltrue"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    importlib.import_module("stilltrue.launch").prepare()


def _hand_over():
    """Run, under its own name, the sitecustomize that this one hides."""
    others = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _stay_first():
    """Come before the hidden sitecustomize in children as well: OpenTelemetry's has put its own directory first."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _HERE in paths[1:]:
        os.environ["PYTHONPATH"] = os.pathsep.join([_HERE, *(path for path in paths if path != _HERE)])


if sys.version_info >= (3, 10):
    try:
        _load_agent()
    except Exception:
        sys.modules.pop("stilltrue", None)
_hand_over()
_stay_first()
