"""What Linux shows of the process and its children under ``/proc``; elsewhere nothing is seen."""
