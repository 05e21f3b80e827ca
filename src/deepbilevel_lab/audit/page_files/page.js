(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = (id) => document.getElementById(id);
  const grid = by("grid");
  const bar = by("bar");
  const KEY = `deepbilevel-audit:${data.id}`;
  const DONE = { accept: "accepted", keep: "kept", drop: "dropped", relabel: "changed" };
  const MOST_IN_MATRIX = 20;
  const MOST_PAIRS = 200;
  const LONG = 7; // characters; two such names need two lines
  const CAPTION = data.names.some((each) => each.length > LONG) ? 66 : 48; // pixels below a picture
  const ONE_LINE = 55; // characters
  const characters = (texts) => texts.reduce((sum, each) => sum + each.length + 1, 0);
  const isShort = data.cells && data.cells.every((cells) => characters(cells) + characters(data.columns) < ONE_LINE);
  const ROW_HEIGHT = isShort ? 72 : 132; // of a row of a table
  const ROW_WIDTH = 420; // at least
  const AROUND = 2; // rows of pictures made ready above and below the window

  // What was decided, in order: [row, decision, label]. Of one row the last counts; undoing takes the last away.
  let log = [];
  const decided = new Map();

  function remember() {
    try {
      localStorage.setItem(KEY, JSON.stringify(log));
    } catch {
      complain("This browser keeps nothing: save corrected.csv before you leave the page.");
    }
  }

  function recall() {
    try {
      log = JSON.parse(localStorage.getItem(KEY) || "[]").filter(
        ([row, decision]) => row < data.index.length && decision in DONE,
      );
    } catch {
      log = [];
    }
    for (const entry of log) decided.set(entry[0], entry);
  }

  function complain(text) {
    by("problem").textContent = text;
    by("problem").hidden = false;
  }

  const name = (label) => (label < 0 ? "unknown" : data.names[label]);
  const isSuspicious = data.flagged
    ? (row) => row < data.flagged
    : (row) => data.predicted[row] >= 0 && data.predicted[row] !== data.given[row];

  // What can be looked at.

  const all = data.index.map((_, row) => row);
  const suspicious = all.filter(isSuspicious);
  const pairs = new Map();
  for (const row of suspicious) {
    const key = `${data.given[row]}>${data.predicted[row]}`;
    if (!pairs.has(key)) pairs.set(key, []);
    pairs.get(key).push(row);
  }
  const count = (number) => number.toLocaleString("en");
  let view = suspicious;
  let selected = 0;

  function fillChoices() {
    const select = by("view");
    const add = (value, text) => select.add(new Option(text, value));
    add("suspicious", `all suspicious labels (${count(suspicious.length)})`);
    const largest = [...pairs].sort((one, other) => other[1].length - one[1].length).slice(0, MOST_PAIRS);
    for (const [key, rows] of largest) {
      const [given, predicted] = key.split(">").map(Number);
      add(key, `${name(given)} → ${name(predicted)} (${count(rows.length)})`);
    }
    add("all", `all labels, worst first (${count(all.length)})`);
    add("decided", "what you have decided");
    select.addEventListener("change", () => choose(select.value));
    if (data.total > all.length) by("more").textContent = `${count(data.total - all.length)} more are in issues.csv`;
    const other = by("other");
    other.hidden = !data.oneLabel;
    other.add(new Option("Other label", ""));
    data.names.forEach((each, label) => other.add(new Option(each, label)));
    other.addEventListener("change", () => {
      if (other.value !== "") decide("relabel", Number(other.value));
      other.value = "";
      grid.focus({ preventScroll: true });
    });
  }

  function choose(value) {
    if (value === "all") view = all;
    else if (value === "decided") view = all.filter((row) => decided.has(row));
    else view = pairs.get(value) || suspicious;
    const select = by("view");
    select.value = value;
    if (select.value !== value) select.value = "suspicious"; // a rare pair, in the matrix only
    for (const button of document.querySelectorAll("#matrix button"))
      button.setAttribute("aria-pressed", button.dataset.pair === value);
    selected = 0;
    by("nothing").hidden = view.length > 0;
    draw();
    tell();
  }

  function drawMatrix() {
    if (!data.oneLabel || data.names.length > MOST_IN_MATRIX || !suspicious.length) return;
    by("matrix-part").hidden = false;
    by("matrix-part").open = innerWidth >= 600; // on a phone, pictures first
    const most = Math.max(...[...pairs.values()].map((rows) => rows.length));
    const table = by("matrix");
    const head = table.createTHead().insertRow();
    const heading = (row, text, scope) => {
      const cell = document.createElement("th");
      cell.textContent = cell.title = text;
      if (scope) cell.scope = scope;
      row.append(cell);
    };
    heading(head, "", "");
    for (const each of data.names) heading(head, each, "col");
    const body = table.createTBody();
    data.names.forEach((given, i) => {
      const row = body.insertRow();
      heading(row, given, "row");
      data.names.forEach((suggested, j) => {
        const cell = row.insertCell();
        const rows = pairs.get(`${i}>${j}`);
        if (!rows) {
          cell.textContent = i === j ? "" : "·";
          return;
        }
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = count(rows.length);
        button.dataset.pair = `${i}>${j}`;
        button.setAttribute("aria-label", `${given} to ${suggested}: ${rows.length}`);
        button.style.background = `color-mix(in srgb, var(--s1) ${Math.round(8 + (42 * rows.length) / most)}%, var(--paper))`;
        button.addEventListener("click", () => {
          choose(button.getAttribute("aria-pressed") === "true" ? "suspicious" : button.dataset.pair);
          by("view").scrollIntoView({ block: "start" });
          grid.focus({ preventScroll: true });
        });
        cell.append(button);
      });
    });
  }

  // The pictures in and around the window, and no others.

  const tiles = new Map(); // by place in the view
  let columns = 1;
  let width = 1;
  let height = 1;

  function showPicture(element, row) {
    stored.showPicture(element, data.picture[row], data.perSheet);
    element.classList.toggle("small", data.small);
    element.setAttribute("aria-label", data.path ? data.path[row] : `image ${data.index[row]}`);
  }

  // The cells of a row of a table; the first one may be a text, which has lines of its own.
  function showCells(element, row) {
    element.replaceChildren();
    data.columns.forEach((column, place) => {
      const isText = data.hasText && place === 0;
      const cell = part(element, isText ? "long" : "");
      if (!isText) {
        const label = document.createElement("span");
        label.className = "soft";
        label.textContent = `${column}: `;
        cell.append(label);
      }
      cell.append(data.cells[row][place] === "" ? "–" : data.cells[row][place]);
    });
  }

  const certainty = (row) =>
    data.p[row] !== null
      ? `${Math.min(99, Math.max(1, Math.round(100 * data.p[row])))} % wrong` // more would be more than is known
      : data.score[row] === null
        ? "never visited"
        : `score ${data.score[row].toFixed(2)}`;

  const change = (row) =>
    data.given[row] === data.predicted[row] ? name(data.given[row]) : `${name(data.given[row])} → ${name(data.predicted[row])}`;

  const part = (parent, kind, text) => {
    const made = document.createElement("div");
    made.className = kind;
    if (text !== undefined) made.textContent = made.title = text;
    parent.append(made);
    return made;
  };

  function makeTile(place) {
    const row = view[place];
    const tile = document.createElement("div");
    tile.id = `tile-${place}`;
    tile.setAttribute("role", "option");
    tile.addEventListener("click", () => {
      select(place);
      grid.focus({ preventScroll: true });
    });
    const card = part(tile, "card");
    if (!data.cells) {
      const picture = part(card, "picture");
      picture.setAttribute("role", "img");
      showPicture(picture, row);
    }
    part(tile, "badge");
    const words = part(card, "words");
    part(words, "", change(row));
    part(words, "soft", certainty(row));
    if (data.cells) showCells(part(card, "cells"), row);
    grid.append(tile);
    tiles.set(place, tile);
    return tile;
  }

  function mark(place) {
    const tile = tiles.get(place);
    if (!tile) return;
    const [, decision, label] = decided.get(view[place]) || [];
    tile.className = `tile ${data.cells ? "row" : ""} ${decision || ""} ${place === selected ? "selected" : ""}`;
    tile.setAttribute("aria-selected", place === selected);
    const badge = tile.querySelector(".badge");
    badge.textContent = decision === "relabel" ? name(label) : DONE[decision] || "";
    badge.hidden = !decision;
  }

  function draw() {
    for (const tile of tiles.values()) tile.remove();
    tiles.clear();
    const total = grid.clientWidth;
    columns = data.cells
      ? Math.max(1, Math.floor(total / ROW_WIDTH))
      : Math.max(2, Math.floor(total / (total < 600 ? 115 : 140)));
    width = total / columns;
    height = data.cells ? ROW_HEIGHT : width + CAPTION;
    grid.style.height = `${Math.ceil(view.length / columns) * height}px`;
    fill();
  }

  function fill() {
    const above = -grid.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(above / height) - AROUND) * columns;
    const last = Math.min(view.length, (Math.ceil((above + innerHeight) / height) + AROUND) * columns);
    for (const [place, tile] of tiles) {
      if (place < first || place >= last) {
        tile.remove();
        tiles.delete(place);
      }
    }
    for (let place = first; place < last; place++) {
      if (tiles.has(place)) continue;
      const tile = makeTile(place);
      tile.style.width = `${width}px`;
      tile.style.height = `${height}px`;
      tile.style.transform = `translate(${(place % columns) * width}px, ${Math.floor(place / columns) * height}px)`;
      mark(place);
    }
    grid.setAttribute("aria-activedescendant", tiles.has(selected) ? `tile-${selected}` : "");
  }

  // Moving and deciding.

  function select(place) {
    const before = selected;
    selected = Math.max(0, Math.min(view.length - 1, place));
    tell(); // first: a longer name makes the bar higher
    const top = grid.getBoundingClientRect().top + Math.floor(selected / columns) * height;
    const bottom = top + height - (innerHeight - bar.offsetHeight);
    if (top < 0) scrollBy(0, top - 8);
    else if (bottom > 0) scrollBy(0, Math.min(bottom + 8, top));
    fill();
    mark(before);
    mark(selected);
  }

  function decide(decision, label) {
    const row = view[selected];
    if (row === undefined) return;
    if (decision === "accept" && data.predicted[row] < 0) return;
    const labels = { accept: data.predicted[row], keep: data.given[row], drop: -1, relabel: label };
    const entry = [row, decision, labels[decision]];
    log.push(entry);
    decided.set(row, entry);
    remember();
    mark(selected);
    select(selected + 1);
  }

  function undo() {
    const last = log.pop();
    if (!last) return;
    const [row] = last;
    const earlier = log.findLast((entry) => entry[0] === row);
    if (earlier) decided.set(row, earlier);
    else decided.delete(row);
    remember();
    const place = view.indexOf(row);
    if (place >= 0) select(place);
    else tell();
  }

  // How probable the label of the selected row was, and what speaks against it, in the course of training.

  const percent = (probability) => `${Math.round(100 * probability)} %`;

  function showCurve() {
    const row = view[selected];
    by("curve-button").disabled = row === undefined;
    by("curve").hidden = row === undefined || by("curve-button").getAttribute("aria-pressed") === "false";
    if (by("curve").hidden) return;
    const lines = stored.curve(row, data.numPoints);
    stored.drawCurve(by("lines"), lines);
    const other = data.oneLabel ? "strongest other class" : name(data.given[row] ^ 1); // "cat" and "not cat"
    const said = [name(data.given[row]), other].map((each, line) => {
      by(`line-${line}`).textContent = by(`line-${line}`).title = each;
      const [first, last] = [lines[line][0], lines[line].at(-1)];
      return first ? `${each}: ${percent(first[1])} at first, ${percent(last[1])} at last` : `${each}: never visited`;
    });
    by("lines").setAttribute("aria-label", said.join("; "));
  }

  function toggleCurve() {
    const button = by("curve-button");
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "false");
    select(selected); // it must not be behind the bar, which is higher now
  }

  function tell() {
    const row = view[selected];
    const has = row !== undefined;
    by("labels").textContent = has ? change(row) : "";
    const file = has && data.path ? data.path[row] : "";
    by("about").textContent = has ? [certainty(row), `${data.noun} ${data.index[row]}`, file].filter(Boolean).join(" · ") : "";
    by("large").hidden = !has || Boolean(data.cells);
    by("whole").hidden = !has || !data.cells;
    if (has && data.cells) showCells(by("whole"), row);
    else if (has) showPicture(by("large"), row);
    for (const button of bar.querySelectorAll("[data-decision]")) button.disabled = !has;
    if (has) bar.querySelector("[data-decision=accept]").disabled = data.predicted[row] < 0;
    by("other").disabled = !has;
    by("undo").disabled = !log.length;
    by("save").disabled = !decided.size;
    by("status").textContent = `${count(decided.size)} decided`;
    showCurve();
  }

  // A spreadsheet must take nothing for a formula; our own reader takes the mark away again.
  const safe = (text, mark) => (/^[=+\-@\t\r\n]/.test(text) ? mark + text : text);
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  function save() {
    // Of several labels, as in issues.csv: which class, and 1 or 0 whether it is there.
    const classes = data.oneLabel ? [] : ["class_index"];
    const said = (label) => (label < 0 ? "" : data.oneLabel ? safe(name(label), "'") : String(1 - (label % 2)));
    const lines = [["index", "path", ...classes, "given_label", "decision", "new_label"]];
    for (const [row, decision, label] of [...decided.values()].sort((one, other) => data.index[one[0]] - data.index[other[0]])) {
      const about = classes.map(() => safe(name(data.given[row] - (data.given[row] % 2)), "'"));
      const path = data.path ? safe(data.path[row], "./") : "";
      lines.push([String(data.index[row]), path, ...about, said(data.given[row]), decision, said(label)]);
    }
    const text = lines.map((cells) => `${cells.map(quoted).join(",")}\n`).join("");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = "corrected.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  const KEYS = {
    a: () => decide("accept"),
    k: () => decide("keep"),
    d: () => decide("drop"),
    u: undo,
    c: () => view.length && toggleCurve(),
    ArrowLeft: () => select(selected - 1),
    ArrowRight: () => select(selected + 1),
    ArrowUp: () => selected >= columns && select(selected - columns),
    ArrowDown: () => selected + columns < view.length && select(selected + columns),
  };
  addEventListener("keydown", (event) => {
    const inControl = event.target.closest("select, .scroller, summary, #whole");
    if (event.ctrlKey || event.metaKey || event.altKey || inControl || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  for (const button of bar.querySelectorAll("[data-decision]"))
    button.addEventListener("click", () => decide(button.dataset.decision));
  by("curve-button").addEventListener("click", toggleCurve);
  by("undo").addEventListener("click", undo);
  by("save").addEventListener("click", save);

  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      fill();
    });
  });
  let lastWidth = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === lastWidth) fill();
    else draw();
    lastWidth = innerWidth;
  });

  recall();
  fillChoices();
  drawMatrix();
  choose("suspicious");
})();
