"""The report: one self-contained HTML page that explains a schedule."""

from teccl.report.page import report_page, write_report

__all__ = ["report_page", "write_report"]
