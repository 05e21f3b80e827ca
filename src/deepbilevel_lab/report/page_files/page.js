"use strict";
// Figures are drawn already; this script shows and hides their parts, and reads values out of them.
(() => {
  const root = document.documentElement;
  const tip = document.getElementById("tip");
  let reading = null; // the point whose value is shown

  const theme = document.getElementById("theme");
  const wear = (value) => {
    if (value === "system") delete root.dataset.theme;
    else root.dataset.theme = value;
  };
  theme.addEventListener("change", () => wear(theme.value));
  wear(theme.value);

  for (const explorer of document.querySelectorAll(".explorer")) {
    const inputs = (name) => [...explorer.querySelectorAll(`input[name="${name}"]`)];
    // What has no box is never left out.
    const leftOut = (name) => new Set(inputs(name).filter((input) => !input.checked).map((input) => input.value));
    const noneChosen = (name) => inputs(name).length > 0 && !inputs(name).some((input) => input.checked);
    const figures = [...explorer.querySelectorAll("figure")];
    // Who looks at one setting cannot see what is only in another: such a box would do nothing.
    const disableWhatIsNotHere = () => {
      const here = figures.filter((figure) => !figure.hidden);
      const inPlace = (selector) => here.some((figure) => figure.querySelector(selector));
      for (const input of explorer.querySelectorAll("input")) {
        const value = CSS.escape(input.value);
        const marks = {
          series: `:is(.line, .dot)[data-series="${value}"]`,
          seed: `.line[data-seed="${value}"]`,
          panel: `[data-setting] [data-panel="${value}"]`,
        };
        input.disabled = !inPlace(marks[input.name]);
      }
    };
    const sayWhyNothingIsDrawn = (figure) => {
      const words = figure.querySelector(".nothing");
      words.hidden = figure.querySelector("[data-panel]:not([hidden])") !== null;
      const names = figure.dataset.setting === undefined ? ["series"] : ["series", "seed", "panel"];
      const unchosen = names.some(noneChosen);
      words.textContent = unchosen ? "Nothing is chosen." : "There is nothing here of what is chosen.";
    };
    const update = () => {
      const series = leftOut("series");
      const seeds = leftOut("seed");
      const panels = leftOut("panel");
      const setting = explorer.querySelector("select[name=setting]");
      for (const mark of explorer.querySelectorAll("figure [data-series]")) {
        const { series: mine, seed } = mark.dataset;
        mark.classList.toggle("off", series.has(mine) || seeds.has(seed));
      }
      for (const panel of explorer.querySelectorAll("figure [data-panel]")) {
        const empty = !panel.querySelector(".line:not(.off), .dot:not(.off)");
        // What is chosen to be shown is chosen for training; results are of no setting.
        panel.hidden = empty || (panel.closest("[data-setting]") !== null && panels.has(panel.dataset.panel));
      }
      for (const figure of figures) {
        figure.hidden = setting !== null && (figure.dataset.setting ?? setting.value) !== setting.value;
        sayWhyNothingIsDrawn(figure);
      }
      disableWhatIsNotHere();
      leave();
    };
    explorer.addEventListener("submit", (event) => event.preventDefault());
    explorer.addEventListener("change", update);
    for (const button of explorer.querySelectorAll("button[data-set]")) {
      button.addEventListener("click", () => {
        for (const input of inputs("series")) input.checked = button.dataset.set === "all";
        update();
      });
    }
    update();
  }

  // A shadow beside a table says that there is more of it; inside, it would lie on digits.
  for (const scroller of document.querySelectorAll(".scroller")) {
    const hint = () => {
      scroller.classList.toggle("more", scroller.scrollWidth - scroller.clientWidth - scroller.scrollLeft > 1);
    };
    scroller.addEventListener("scroll", hint, { passive: true });
    new ResizeObserver(hint).observe(scroller);
  }

  // All points of a panel that can be read, in its own coordinates.
  function pointsOf(svg) {
    const found = [];
    for (const mark of svg.querySelectorAll(".line[data-x], .dot")) {
      if (mark.classList.contains("off")) continue;
      if (mark.classList.contains("dot")) {
        found.push({ mark, x: +mark.dataset.cx, y: +mark.dataset.cy, text: mark.dataset.tip });
        continue;
      }
      const places = mark.getAttribute("d").slice(1).split("L").map((pair) => pair.split(",").map(Number));
      const xs = mark.dataset.x.split(" ");
      const ys = mark.dataset.y.split(" ");
      xs.forEach((x, i) => {
        const value = `${Number(Number(ys[i]).toPrecision(4))}${svg.dataset.unit}`;
        const text = `${mark.dataset.label} · ${svg.dataset.across} ${x} · ${svg.dataset.what} ${value}`;
        found.push({ mark, x: places[i][0], y: places[i][1], text });
      });
    }
    return found;
  }

  function leave() {
    if (reading === null) return;
    reading.svg.classList.remove("reading");
    reading.point.mark.classList.remove("near");
    reading.ring.remove();
    tip.textContent = "";
    reading = null;
  }
  function read(svg, point) {
    leave();
    const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    ring.setAttribute("class", "cursor");
    ring.setAttribute("cx", point.x);
    ring.setAttribute("cy", point.y);
    ring.setAttribute("r", 7);
    svg.append(ring);
    svg.classList.add("reading");
    point.mark.classList.add("near");
    tip.textContent = point.text;
    reading = { svg, point, ring };
    place();
  }
  function place() {
    if (reading === null) return;
    const at = reading.ring.getBoundingClientRect();
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const above = at.top - tip.offsetHeight - 8;
    tip.style.left = `${Math.max(8, Math.min(at.left - tip.offsetWidth / 2, room))}px`;
    tip.style.top = `${above > 4 ? above : at.bottom + 8}px`;
  }
  function nearest(svg, event) {
    const here = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let best = null;
    let least = 40 ** 2;
    for (const point of pointsOf(svg)) {
      const apart = (point.x - here.x) ** 2 + (point.y - here.y) ** 2;
      if (apart < least) [best, least] = [point, apart];
    }
    return best;
  }
  // From point to point along a series, and from series to series at the same place.
  function step(svg, key) {
    const all = pointsOf(svg);
    if (!all.length) return null;
    const now = reading && reading.svg === svg ? reading.point : null;
    if (now === null) return all[0];
    const marks = [...new Set(all.map((point) => point.mark))];
    const lone = marks.length === all.length; // dots: each is a series of its own
    const own = lone ? all : all.filter((point) => point.mark === now.mark);
    if (lone || key === "ArrowLeft" || key === "ArrowRight") {
      const i = own.findIndex((point) => point.mark === now.mark && point.x === now.x && point.y === now.y);
      const next = i + (key === "ArrowRight" || key === "ArrowDown" ? 1 : -1);
      return own[Math.max(0, Math.min(own.length - 1, next))];
    }
    const place = marks.indexOf(now.mark) + (key === "ArrowDown" ? 1 : marks.length - 1);
    const other = all.filter((point) => point.mark === marks[place % marks.length]);
    return other.reduce((a, b) => (Math.abs(b.x - now.x) < Math.abs(a.x - now.x) ? b : a));
  }
  for (const svg of document.querySelectorAll(".panel svg")) {
    const follow = (event) => {
      const point = nearest(svg, event);
      if (point) read(svg, point);
      else leave();
    };
    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    svg.addEventListener("pointerleave", (event) => {
      // A finger or pen that is lifted has left, too; what it asked for stays to be read.
      if (event.pointerType === "mouse") leave();
    });
    svg.addEventListener("blur", () => {
      // A tap reads the new figure before it takes the focus from the old one.
      if (reading?.svg === svg) leave();
    });
    svg.addEventListener("keydown", (event) => {
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      const point = step(svg, event.key);
      if (point) read(svg, point);
    });
  }
  addEventListener("pointerdown", (event) => {
    if (reading !== null && !reading.svg.contains(event.target)) leave();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
  });
  addEventListener("scroll", place, { passive: true }); // a figure that gets the focus scrolls into view

  // On paper nothing can be unfolded.
  addEventListener("beforeprint", () => {
    leave();
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
})();
