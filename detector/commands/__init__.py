"""The commands of ``stilltrue``, one file each; ``detector.cli`` lists them and loads only the one that runs."""
