"""Cures: ends a deadlock at an operator's request by aborting its victims' calls."""
