"""What code says: which instructions lie ahead of a frame, and which names they speak of."""
