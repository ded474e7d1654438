"""``stilltrue`` as in a pod whose account is elsewhere: ``in_pod.py ACCOUNT COMMAND ...``."""

from __future__ import annotations

import sys
from pathlib import Path

from detector.cli import main
from detector.service.kubernetes.api import ApiServer

if __name__ == "__main__":
    ApiServer.of_cluster.__func__.__defaults__ = (Path(sys.argv.pop(1)),)  # type: ignore[attr-defined]
    main()
