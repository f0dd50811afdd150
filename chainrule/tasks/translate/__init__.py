"""Pairs of sentences."""
