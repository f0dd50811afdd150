"""The HTML report of `chainrule inspect`."""

from chainrule.diagnostics.report.page import Subject, mean_surprise, reading_line, remarks, report_page
from chainrule.diagnostics.report.read_text import ReadRow, ReadText

__all__ = ["ReadRow", "ReadText", "Subject", "mean_surprise", "reading_line", "remarks", "report_page"]
