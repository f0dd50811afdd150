"""Lossless codes: an exact likelihood p(x), written as a file of -log2 p(x) bits."""
