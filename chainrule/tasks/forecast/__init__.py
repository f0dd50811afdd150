"""Series that are forecast."""
