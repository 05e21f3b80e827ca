"""Reports: records of sweeps and runs become one page, figures and tables. Nothing here trains or imports torch."""

from deepbilevel_lab.report.making import Made, draw_comparison, draw_test_curves, make_report

__all__ = ["Made", "draw_comparison", "draw_test_curves", "make_report"]
