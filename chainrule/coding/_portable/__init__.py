"""Optional arithmetic whose results are the same bits on every processor."""
