"""Waits for futures that no executor and no task completes: single flight, requests to actors."""
