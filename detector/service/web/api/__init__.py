"""What the detector knows, as JSON: ``/api/v1``. The pages are made from it, and from nothing else."""
