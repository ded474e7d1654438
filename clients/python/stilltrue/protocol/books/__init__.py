"""The recorder's books: calls made and served, answered calls that are still remembered, and calls in doubt."""
