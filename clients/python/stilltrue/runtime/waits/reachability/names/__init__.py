"""What the program's code and modules name: who may find an object without a reference to it."""
