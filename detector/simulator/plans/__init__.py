"""The plans of worlds: services and bodies, and the recipes that generate them from a seed."""
