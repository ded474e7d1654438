"""Files that a service writes and reads again: written at once, watched for changes, on disk or in an object store."""
