"""What a person sees: diagnoses, run reports and comparisons, each one self-contained HTML page."""

from typing import TYPE_CHECKING

from uncollapse._base.extras import lazy_names
from uncollapse.report.diagnosis import Diagnosis, diagnose
from uncollapse.report.neighbours import contact_sheet
from uncollapse.report.page import Page

if TYPE_CHECKING:
    from uncollapse.report.comparison_page import VersionComparison, compare
    from uncollapse.report.run_page import diagnose_run, run_report, write_report

__all__ = [
    "Diagnosis",
    "Page",
    "VersionComparison",
    "compare",
    "contact_sheet",
    "diagnose",
    "diagnose_run",
    "run_report",
    "write_report",
]

# Loaded when first used: what reads run folders takes a while that a file's diagnosis can spare.
_HOMES = {"run_page": "diagnose_run run_report write_report"}
_HOMES |= {"comparison_page": "VersionComparison compare"}
__getattr__ = lazy_names(__name__, _HOMES)
