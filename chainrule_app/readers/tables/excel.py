"""The first sheet of an Excel workbook as a frame of polars; needs fastexcel."""

import polars


def excel_frame(path: str) -> polars.DataFrame:
    """Read the first sheet, whose first row names the columns, with the types of its cells.

    Raises:
        ImportError: fastexcel is not installed.
        ValueError: the file is no workbook.
    """
    try:
        import fastexcel
    except ImportError:
        raise ImportError(
            f"{path}: reading .xlsx needs fastexcel, which is not installed: pip install fastexcel"
        ) from None
    try:
        frame = polars.read_excel(path, engine="calamine")
    except (fastexcel.FastExcelError, polars.exceptions.PolarsError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path}: expected an Excel workbook ({reason:.120}): save it again, or as CSV") from None
    return frame.filter(~polars.all_horizontal(polars.all().is_null()))
