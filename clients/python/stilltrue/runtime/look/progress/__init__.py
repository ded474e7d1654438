"""Whether threads and tasks make progress: by themselves, once another party does, or never."""
