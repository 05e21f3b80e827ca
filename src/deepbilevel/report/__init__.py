"""Reports: records of sweeps and runs become one page, figures and tables. Nothing here trains or imports torch."""

from deepbilevel.report.making import Made, make_report

__all__ = ["Made", "make_report"]
