"""The Stilltrue agent: joins a gRPC process to the detector."""
