"""Run the ``stilltrue`` command as ``python -m detector``."""

from __future__ import annotations

from detector.entry import main

if __name__ == "__main__":
    main()
