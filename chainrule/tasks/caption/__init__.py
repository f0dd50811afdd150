"""Captioned images."""
