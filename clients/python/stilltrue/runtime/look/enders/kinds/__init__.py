"""The kinds of ways out, one each: closing, stopping, waking, releasing, growing, ending the process."""
