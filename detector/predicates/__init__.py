"""The predicates that come with Stilltrue, one file each; they are found by entry point like anybody's own."""
