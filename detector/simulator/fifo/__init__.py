"""Systems of processes connected by FIFO channels."""
