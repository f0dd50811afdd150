"""Labels of images."""
