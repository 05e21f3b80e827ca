"use strict";
// Pictures and curves lie behind this script, in parts of the page that the browser does not interpret. What is shown
// is taken from them then; what the browser has not read yet is shown when it has.
const stored = (() => {
  const NOTHING = 255;
  const STEPS = 254;

  function read(id) {
    const element = document.getElementById(id);
    const isWhole = element && (element.nextSibling || document.readyState !== "loading");
    return isWhole ? element.textContent : null;
  }

  const sheets = new Map();
  const waiting = new Map(); // places of pictures that are not there yet, by the element that is to show them

  function showPicture(element, place, perSheet) {
    const sheet = Math.floor(place / perSheet);
    if (!sheets.has(sheet)) {
      const text = read(`pictures-${sheet}`);
      if (text !== null) sheets.set(sheet, text.split("\n"));
    }
    if (sheets.has(sheet)) {
      waiting.delete(element);
      element.style.backgroundImage = `url("data:image/webp;base64,${sheets.get(sheet)[place % perSheet]}")`;
    } else {
      waiting.set(element, [place, perSheet]);
      element.style.backgroundImage = "";
    }
  }

  function showWaiting() {
    for (const [element, [place, perSheet]] of waiting) showPicture(element, place, perSheet);
  }
  const arrivals = new MutationObserver(showWaiting);
  arrivals.observe(document.body, { childList: true });
  document.addEventListener("DOMContentLoaded", () => {
    arrivals.disconnect();
    showWaiting();
  });

  let bytes = null;

  // Return the points of the two lines of a row: [share of the way through training, probability].
  function curve(row, numPoints) {
    if (bytes === null) {
      const text = read("curves");
      if (text === null) return [[], []];
      bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    }
    return [0, 1].map((line) => {
      const start = (2 * row + line) * numPoints;
      return [...bytes.subarray(start, start + numPoints)]
        .map((value, place) => [(place + 0.5) / numPoints, value])
        .filter(([, value]) => value !== NOTHING)
        .map(([time, value]) => [time, value / STEPS]);
    });
  }

  function drawCurve(svg, lines) {
    svg.replaceChildren();
    const add = (kind, description) => {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", kind);
      path.setAttribute("d", description);
      svg.append(path);
    };
    add("rule", "M0 0H100M0 50H100M0 100H100");
    lines.forEach((points, line) => {
      const places = points.map(([time, probability]) => `${(100 * time).toFixed(1)} ${(100 - 100 * probability).toFixed(1)}`);
      if (!places.length) return;
      add(`line-${line}`, `M${places.join("L")}`);
      add(`line-${line} dots`, places.map((place) => `M${place}h0`).join("")); // lines without length, with round ends
    });
  }

  return { showPicture, curve, drawCurve };
})();
