"""Membership: the connection to the detector, its credentials and keys, and requests for snapshots."""
