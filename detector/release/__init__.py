"""Makes what is published: the wheels, under the name that the package has when installed, and everything else in ``dist/``."""
