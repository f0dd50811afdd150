"""HTML pages of `chainrule inspect` and `chainrule report`."""
