"""The report of an analysis as one HTML file."""
