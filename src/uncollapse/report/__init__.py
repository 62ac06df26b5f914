"""What a person sees: diagnoses, run reports and comparisons, each one self-contained HTML page."""

from uncollapse.report.comparison import Comparison, compare, write_comparison
from uncollapse.report.contact_sheets import contact_sheet
from uncollapse.report.diagnosis import Diagnosis, diagnose
from uncollapse.report.page import Page
from uncollapse.report.run_diagnosis import diagnose_run
from uncollapse.report.runs import run_report, write_report

__all__ = [
    "Comparison",
    "Diagnosis",
    "Page",
    "compare",
    "contact_sheet",
    "diagnose",
    "diagnose_run",
    "run_report",
    "write_comparison",
    "write_report",
]
