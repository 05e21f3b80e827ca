"""Figures as values (``figures.py``), how they look (``looks.py``), and as SVG, PNG and PDF (``svg.py``). No torch."""
