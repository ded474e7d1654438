"""Static reading of bytecode: the instructions ahead of a frame, and the names they use."""
