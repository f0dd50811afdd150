"""Music."""
