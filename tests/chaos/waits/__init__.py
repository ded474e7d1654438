"""Programs that wait in every way that is seen, under load, and never deadlock: no verdict of theirs may be TRUE."""
