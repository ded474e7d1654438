"""The commands of ``stilltrue``, one file each; ``detector.cli`` knows their names and loads only the one that is called."""
