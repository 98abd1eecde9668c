/* Reads dashboard/figures.json, lists the open rises, and compares two commits. The address holds the choice. */
"use strict";

const HIDDEN = "gradgate-hidden-rises";
const MOST = 300; // rows of a comparison that are drawn
const FIRST = 20; // open rises that are drawn before one asks for all
const choice = document.getElementById("choice");
const text = (value) => document.createTextNode(value);

function element(name, properties, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "data") made.dataset.name = value;
    else made[key] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

const shown = (value) => (value === null ? "not measured" : value.toLocaleString("en", { maximumFractionDigits: 3 }));

/* The value of a series at a commit: its last change up to there, if the profile was measured at that commit. */
function valueAt(data, series, place) {
  if (!data.measured[series.p].includes(place)) return null;
  let found = null;
  for (const [at, value] of series.v) {
    if (at > place) break;
    found = value;
  }
  return found;
}

/* How much worse, for sorting: a share of the base, with its sign turned where a smaller figure is worse. */
function badness(falls, base, head) {
  const share = base === 0 ? Math.sign(head - base) * Infinity : (head - base) / Math.abs(base);
  return falls ? -share : share;
}

function percent(base, head) {
  if (base === null || head === null || base === head) return "";
  if (base === 0) return head > 0 ? "from 0" : "below 0";
  const share = (100 * (head - base)) / Math.abs(base);
  const digits = Math.abs(share) < 0.01 ? 6 : 2;
  return `${share > 0 ? "+" : ""}${share.toFixed(digits)}%`;
}

function commitName(data, place) {
  const [hash] = data.commits[place];
  return data.link
    ? element("a", { href: data.link + hash }, element("code", {}, hash.slice(0, 8)))
    : element("code", {}, hash.slice(0, 8));
}

/* A change in words: its commit, or the commits between which it happened, the reason, and what is alive at the peak. */
function described(data, change, several = false) {
  const [, date, subject] = data.commits[change.at];
  const step = several ? ` ${shown(change.old)} → ${shown(change.new)}` : "";
  const line = element("li", {}, commitName(data, change.at), ` ${date}${step} ${subject}`);
  const lacking = change.at - change.from - 1;
  if (lacking) line.append(` (${lacking} ${lacking === 1 ? "commit before it was" : "commits before it were"} not measured)`);
  if (change.state === "acknowledged") {
    line.append(element("div", {}, "allowed: ", change.reason, " (", element("code", {}, change.by.slice(0, 8)), ")"));
  }
  if (change.alive) line.append(element("div", { className: "alive" }, `alive at the peak: ${change.alive}`));
  return line;
}

function what(data, series) {
  return element("td", { className: "what" }, series.m, element("small", {}, `${series.c} · ${series.f}`));
}

function measure(data, series) {
  const [label] = data.quantities[series.q];
  return element("td", { data: "quantity" }, series.p ? element("span", {}, `${label} · `, element("span", { className: "whole" }, series.p)) : label);
}

function spark(data, series) {
  const known = series.v.filter(([, value]) => value !== null);
  const last = data.commits.length - 1;
  const values = known.map(([, value]) => value);
  const low = Math.min(...values), high = Math.max(...values);
  const x = (place) => 2 + (96 * place) / Math.max(1, last);
  const y = (value) => (high === low ? 12 : 22 - (20 * (value - low)) / (high - low));
  const points = [];
  known.forEach(([place, value], i) => {
    if (i) points.push(`${x(place)},${y(known[i - 1][1])}`);
    points.push(`${x(place)},${y(value)}`);
  });
  const [at, value] = series.v[series.v.length - 1]; // a series may end before the newest commit
  points.push(`${x(value === null ? at : Math.max(...data.measured[series.p]))},${y(values[values.length - 1])}`);
  const picture = `<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true"><polyline points="${points.join(" ")}" vector-effect="non-scaling-stroke"/></svg>`;
  const link = element("a", { href: series.a, title: "its history in asv" });
  link.setAttribute("aria-label", `history of ${series.m}, ${data.quantities[series.q][0]}, ${series.p}`);
  link.innerHTML = picture;
  return element("td", { data: "history" }, link);
}

const NUMBERS = new Set(["before", "after", "base", "head", "change"]); // the names of columns of numbers

function table(heads, rows) {
  const cells = heads.map((name) => element("th", { scope: "col", className: NUMBERS.has(name) ? "value" : "" }, name));
  const head = element("thead", {}, element("tr", {}, ...cells));
  return element("table", { className: "figures" }, head, element("tbody", {}, ...rows));
}

/* Open rises. */

const identity = (data, change) => {
  const series = data.series[change.s];
  return [data.commits[change.at][0], series.c, series.m, series.f, series.p, series.q, change.new].join(" ");
};

function hidden() {
  try {
    return new Set(JSON.parse(localStorage.getItem(HIDDEN) || "[]"));
  } catch {
    return new Set(); // a browser that keeps nothing hides nothing
  }
}

function remember(names) {
  try {
    localStorage.setItem(HIDDEN, JSON.stringify([...names]));
  } catch {
    // nothing is kept, so nothing is hidden
  }
}

function byBadness(data) {
  const rank = (change) => badness(data.quantities[data.series[change.s].q][2], change.old, change.new);
  return (one, other) => {
    const a = rank(one), b = rank(other);
    return a === b ? 0 : b > a ? 1 : -1;
  };
}

function riseRow(data, change, button) {
  const series = data.series[change.s];
  return element("tr", {},
    what(data, series), measure(data, series),
    element("td", { className: "value", data: "before" }, shown(change.old)),
    element("td", { className: "value", data: "after" }, shown(change.new)),
    element("td", { className: "value worse", data: "change" }, percent(change.old, change.new)),
    element("td", {}, element("ul", {}, described(data, change))),
    spark(data, series),
    element("td", {}, button || ""));
}

function drawRises(data, all = false) {
  const heads = ["method", "quantity", "before", "after", "change", "commit", "history", ""];
  const put = hidden();
  const open = data.changes.filter((change) => change.state === "open").sort(byBadness(data));
  const here = open.filter((change) => put.has(identity(data, change)));
  const left = open.filter((change) => !put.has(identity(data, change)));
  const rows = left.slice(0, all ? left.length : FIRST).map((change) => {
    const button = element("button", { type: "button" }, "Acknowledge");
    button.addEventListener("click", () => acknowledge(data, change));
    return riseRow(data, change, data.series[change.s].q === "verdicts" ? text("Mend it, or declare it with its reason.") : button);
  });
  document.getElementById("rise-count").textContent = String(left.length);
  const place = document.getElementById("open");
  place.replaceChildren(left.length ? table(heads, rows) : element("p", {}, "None."));
  if (rows.length < left.length) {
    const rest = element("button", { type: "button" }, `Show all ${left.length}`);
    rest.addEventListener("click", () => drawRises(data, true));
    place.append(element("p", {}, `The ${rows.length} worst ones are shown. `, rest));
  }
  if (here.length) {
    const again = element("button", { type: "button" }, "Show them");
    again.addEventListener("click", () => { remember([]); drawRises(data); });
    place.append(element("p", {}, `${here.length} more are hidden in this browser; allow.toml does not have them. `, again));
  }
  const past = data.changes.filter((change) => change.state === "acknowledged" || change.state === "undone");
  past.sort((one, other) => other.at - one.at);
  const details = document.getElementById("acknowledged");
  details.hidden = !past.length;
  const count = (state) => past.filter((change) => change.state === state).length;
  details.querySelector("summary").textContent = `${count("acknowledged")} acknowledged, ${count("undone")} taken back by a later commit`;
  details.querySelector("div").replaceChildren(
    table(heads, past.map((change) => riseRow(data, change, text(change.state === "undone" ? "taken back" : "acknowledged")))));
}

const quoted = (value) => JSON.stringify(value); // a basic string of TOML is escaped as one of JSON

function acknowledge(data, change) {
  const dialog = document.getElementById("acknowledge");
  const form = dialog.querySelector("form");
  const series = data.series[change.s];
  const cell = `${series.c}:${series.m}:${series.f}@${series.p}`;
  document.getElementById("acknowledge-what").textContent =
    `${cell}: ${data.quantities[series.q][0]} from ${shown(change.old)} to ${shown(change.new)}`;
  form.elements.reason.value = "";
  form.elements.expires.value = new Date(Date.now() + 90 * 86400e3).toISOString().slice(0, 10);
  const lines = () => [
    "[[allow]]", `cell = ${quoted(cell)}`, `quantity = ${quoted(series.q)}`, `ceiling = ${Math.ceil(change.new)}`,
    `reason = ${quoted(form.elements.reason.value.trim() || "…")}`, `expires = ${form.elements.expires.value}`, "",
  ].join("\n");
  const draw = () => { document.getElementById("lines").textContent = lines(); };
  form.oninput = draw;
  draw();
  const edit = document.getElementById("edit");
  edit.hidden = !data.edit;
  if (data.edit) edit.href = data.edit;
  form.elements.copy.onclick = () => form.reportValidity() && navigator.clipboard.writeText(lines());
  form.elements.hide.onclick = () => {
    remember(hidden().add(identity(data, change)));
    dialog.close();
    drawRises(data);
  };
  dialog.showModal();
}

/* The comparison. */

function options(select, values, first) {
  const made = values.map(([value, label]) => element("option", { value }, label));
  select.replaceChildren(...(first ? [element("option", { value: "" }, first)] : []), ...made);
}

function fill(data) {
  const commits = data.commits.map(([hash, date, subject]) => [hash.slice(0, 8), `${hash.slice(0, 8)} ${date} ${subject}`]);
  commits.reverse();
  options(choice.elements.base, commits);
  options(choice.elements.head, commits);
  const values = (key) => [...new Set(data.series.map((series) => series[key]))].filter(Boolean).sort().map((v) => [v, v]);
  options(choice.elements.class, values("c"), "all");
  options(choice.elements.framework, values("f"), "both");
  options(choice.elements.profile, values("p"), "all");
  const used = new Set(data.series.map((series) => series.q));
  options(choice.elements.quantity, Object.entries(data.quantities).filter(([key]) => used.has(key)).map(([key, [label]]) => [key, label]), "all");
  const given = new URLSearchParams(location.search);
  const newest = commits[0][0], before = (commits[1] || commits[0])[0];
  const known = new Set(commits.map(([hash]) => hash));
  const asked = (name, otherwise) => {
    const hash = (given.get(name) || "").slice(0, 8);
    return known.has(hash) ? hash : otherwise;
  };
  choice.elements.base.value = asked("base", before);
  choice.elements.head.value = asked("head", newest);
  for (const name of ["class", "framework", "profile", "quantity", "method"]) {
    choice.elements[name].value = given.get(name) || "";
  }
  for (const name of ["class", "framework", "profile", "quantity"]) { // a value that is no option selects nothing
    if (choice.elements[name].selectedIndex < 0) choice.elements[name].value = "";
  }
  choice.elements.all.checked = given.get("all") === "1";
}

function chosen() {
  const found = Object.fromEntries([...new FormData(choice)].filter(([, value]) => value !== ""));
  if (choice.elements.all.checked) found.all = "1";
  return found;
}

function compare(data) {
  const asked = chosen();
  history.replaceState(null, "", `?${new URLSearchParams(asked)}${location.hash}`);
  const place = (hash) => data.commits.findIndex(([full]) => full.startsWith(hash));
  const base = place(asked.base), head = place(asked.head);
  const [low, high] = base < head ? [base, head] : [head, base];
  const of = new Map();
  for (const change of data.changes) {
    if (change.at > low && change.at <= high) of.set(change.s, [...(of.get(change.s) || []), change]);
  }
  const rows = [], not = new Set();
  let equal = 0;
  data.series.forEach((series, number) => {
    if (asked.class && series.c !== asked.class) return;
    if (asked.framework && series.f !== asked.framework) return;
    if (asked.profile && series.p !== asked.profile) return;
    if (asked.quantity && series.q !== asked.quantity) return;
    if (asked.method && !series.m.includes(asked.method)) return;
    const before = valueAt(data, series, base), after = valueAt(data, series, head);
    for (const at of [base, head]) {
      if (!data.measured[series.p].includes(at)) not.add(`${series.p || "verdicts"} at ${data.commits[at][0].slice(0, 8)}`);
    }
    if (before === after) equal += before !== null;
    if (before === after && !asked.all) return;
    if (before === null && after === null) return;
    const falls = data.quantities[series.q][2];
    const bad = before === null || after === null ? 0 : badness(falls, before, after);
    rows.push({ series, before, after, bad, changes: of.get(number) || [] });
  });
  rows.sort((one, other) => (one.bad === other.bad ? 0 : other.bad > one.bad ? 1 : -1));
  const worse = rows.filter((row) => row.bad > 0).length, better = rows.filter((row) => row.bad < 0).length;
  const told = [`${worse} worse, ${better} better, ${equal} equal.`];
  if (not.size) told.push(`Not measured: ${[...not].join(", ")}.`);
  if (rows.length > MOST) told.push(`The first ${MOST} of ${rows.length} are shown; a filter shows the rest.`);
  document.getElementById("summary").textContent = told.join(" ");
  const heads = ["method", "quantity", "base", "head", "change", "changed at", "history"];
  const drawn = rows.slice(0, MOST).map(({ series, before, after, bad, changes }) => element("tr", {},
    what(data, series), measure(data, series),
    element("td", { className: "value", data: "base" }, shown(before)),
    element("td", { className: "value", data: "head" }, shown(after)),
    element("td", { className: `value ${bad > 0 ? "worse" : bad < 0 ? "better" : ""}`, data: "change" }, percent(before, after)),
    element("td", {}, ...(changes.length ? [element("ul", {}, ...changes.map((change) => described(data, change, changes.length > 1)))] : [])),
    spark(data, series)));
  document.getElementById("rows").replaceChildren(...(drawn.length ? [table(heads, drawn)] : []));
}

async function start() {
  const at = (name) => new URL(name, location.href.split(/[?#]/)[0]).href;
  document.getElementById("badge").textContent = `[![claims](${at("badge.svg")})](${at("bytes.html")})`;
  const waiting = document.getElementById("waiting");
  try {
    const answer = await fetch("dashboard/figures.json");
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    const data = await answer.json();
    drawRises(data);
    fill(data);
    compare(data);
    choice.addEventListener("input", () => compare(data));
    choice.addEventListener("submit", (event) => event.preventDefault());
    if (location.hash) document.querySelector(location.hash)?.scrollIntoView();
  } catch (error) {
    waiting.textContent = `dashboard/figures.json cannot be read (${error.message}); nox -s preview serves the pages`;
  }
}

start();
