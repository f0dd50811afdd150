"""The HTML report of `chainrule inspect`."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule._app.pages.page import Page
    from chainrule._app.pages.read_text import ReadRow, ReadText
    from chainrule._app.pages.recurrence_page import mean_surprise, reading_line, recurrence_sections, remarks

__all__ = ["Page", "ReadRow", "ReadText", "mean_surprise", "reading_line", "recurrence_sections", "remarks"]

__getattr__, __dir__ = attach(__name__)
