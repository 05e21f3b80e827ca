"""What a browser has drawn of a page, and what must hold of it at any size and on paper."""

FIGURES = """() => [...document.querySelectorAll(".panel svg")].filter((svg) => svg.checkVisibility()).map((svg) => ({
    figure: svg.closest("figure").id, panel: svg.closest(".panel").dataset.panel,
    width: svg.getBoundingClientRect().width, height: svg.getBoundingClientRect().height,
    marks: [...svg.querySelectorAll(".line, .dot")].filter((mark) => mark.getBoundingClientRect().width > 0).length,
    bare: [...svg.querySelectorAll("path, circle")].filter((m) => /NaN|Infinity/.test(m.outerHTML)).length,
}))"""

# Pairs of labels in one figure that touch, and labels that leave their figure.
COLLISIONS = """() => [...document.querySelectorAll(".panel svg")].flatMap((svg) => {
    const outer = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll("text")].filter((t) => t.checkVisibility())
        .map((t) => ({ text: t.textContent, ...t.getBoundingClientRect().toJSON() }));
    const out = boxes.filter((b) => b.left < outer.left - 1 || b.right > outer.right + 1 || b.bottom > outer.bottom + 1)
        .map((b) => `outside: ${b.text}`);
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 2) out.push(`${a.text} / ${b.text}`);
    }));
    return out;
})"""


def check_figures(page):
    """Check that every figure to be seen has marks and room, and that no label touches another."""
    figures = page.evaluate(FIGURES)
    assert len(figures) > 15
    for figure in figures:
        assert figure["width"] > 200, figure
        assert figure["height"] > 80, figure
        assert figure["marks"] > 0, figure
        assert figure["bare"] == 0, figure
    assert page.evaluate(COLLISIONS) == []
