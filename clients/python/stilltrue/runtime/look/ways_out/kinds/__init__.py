"""The kinds of ways out: closing, stopping, waking, releasing, growing a pool, ending the process."""
