"""The documentation site in a browser: it fits screens, shows pictures and equations, and finds what people seek."""

import pytest

LOCAL = ("file:", "data:")
LOOK = """() => ({
    overflow: document.documentElement.scrollWidth - window.innerWidth,
    broken: [...document.images].filter(image => !image.naturalWidth).map(image => image.src),
    untyped: [...document.querySelectorAll("article p, article td")]
        .filter(each => !each.querySelector("code") && /\\\\[a-z]+\\{|\\$[^$]+\\$/.test(each.textContent))
        .map(each => each.textContent),
})"""


def opened(browser, width, scheme):
    page = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme).new_page()
    page.lost = []
    # An icon that is still on its way when the next page is opened is aborted; a missing file is another failure.
    page.on("requestfailed", lambda each: each.failure == "net::ERR_ABORTED" or page.lost.append(each.url))
    page.on("request", lambda request: None if request.url.startswith(LOCAL) else page.lost.append(request.url))
    return page


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_every_page_fits_and_is_complete(browser, site, width, scheme):
    page = opened(browser, width, scheme)
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for path in pages:
        page.goto(path.as_uri())
        found = page.evaluate(LOOK)
        assert found["overflow"] <= 0, f"{path.name} scrolls sideways"
        assert (found["broken"], found["untyped"], page.lost) == ([], [], []), path.name


def test_equations_are_shown(browser, site):
    page = opened(browser, 1280, "light")
    page.goto((site / "method.html").as_uri())
    heights = page.eval_on_selector_all("math", "found => found.map(each => each.getBoundingClientRect().height)")
    assert len(heights) > 20
    assert min(heights) > 5


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("which method", "Which method?"),
        ("wrong labels", "Which of my labels are wrong?"),
        ("resume", "Training, stopping, resuming"),
    ],
)
def test_search_finds_what_people_look_for(browser, site, words, title):
    page = opened(browser, 1280, "light")
    page.goto(f"{(site / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
    titles = "title => [...document.querySelectorAll('ul.search li > a')].some(each => each.textContent === title)"
    page.wait_for_function(titles, arg=title)
