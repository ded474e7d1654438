"""Being a member: the connection to the detector, its credentials and keys, and when to ask for a snapshot."""
