"""The recorder's books: calls made and served, and what is remembered or doubted of calls that are over."""
