"""Labels of texts."""
