"use strict";
// Everything can be read without this script. It adds the viewer's time zone, live parts, search
// as you type, and the keyboard.

const fetchPart = (path) =>
  fetch(path, { credentials: "same-origin", headers: { Accept: "text/html" } })
    .then((answer) => (answer.ok ? answer.text() : null))
    .catch(() => null);

// The server escaped everything in it; a parsed document runs no script either.
const parse = (text) => new DOMParser().parseFromString(text, "text/html").body;

// Show only as much of a time as needed; the tooltip has the full time.
function shorten(moment, onlyClock) {
  const now = new Date();
  const time = { hour: "numeric", minute: "2-digit" };
  if (onlyClock || moment.toDateString() === now.toDateString()) return moment.toLocaleTimeString(undefined, time);
  const day = { month: "short", day: "numeric" };
  const year = moment.getFullYear() === now.getFullYear() ? {} : { year: "numeric" };
  return moment.toLocaleString(undefined, { ...day, ...year, ...time });
}

function localize(root) {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.getTime())) {
      time.title = format.format(moment);
      time.textContent = shorten(moment, "clock" in time.dataset);
    }
  }
}

function keepLive(part) {
  const path = part.dataset.live;
  const every = path.endsWith("/badge") ? 15000 : 3000;
  setTimeout(async () => {
    let next = part;
    if (!document.hidden && !part.contains(document.activeElement) && !part.matches(":hover")) {
      const text = await fetchPart(path);
      const fresh = text === null ? null : parse(text).querySelector(`[data-live="${path}"]`);
      if (fresh && fresh.innerHTML !== part.dataset.text) {
        const html = fresh.innerHTML;
        localize(fresh);
        fresh.dataset.text = html;
        part.replaceWith(fresh);
        next = fresh;
      }
    }
    keepLive(next);
  }, every);
}

function searchAsYouType(form) {
  const page = form.getAttribute("action");
  const results = document.getElementById("results");
  let timer = 0;
  let asked = 0;
  const ask = async () => {
    const query = new URLSearchParams(new FormData(form));
    const mine = ++asked;
    const shown = query.toString();
    query.set("part", "1");
    const text = await fetchPart(`${page}?${query}`);
    if (text !== null && mine === asked) {
      results.replaceChildren(...parse(text).childNodes);
      localize(results);
      history.replaceState(null, "", `${page}?${shown}`);
    }
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, 150);
  });
}

function move(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const at = rows.indexOf(document.activeElement);
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
  if (next) {
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
}

function onKey(event, state) {
  const typing = event.target.closest("input, textarea, select, dialog[open]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const go = state.go;
  state.go = false;
  if (go) {
    const links = [...document.querySelectorAll("a[data-key]")];
    const link = links.find((one) => one.dataset.key === event.key);
    if (link) link.click();
  } else if (event.key === "/") {
    (document.querySelector("[data-search] input[name=q]") || document.getElementById("find")).focus();
    event.preventDefault();
  } else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "g") state.go = true;
  else if (event.key === "?") document.getElementById("help").showModal();
}

localize(document);
document.querySelectorAll("[data-live]").forEach(keepLive);
document.querySelectorAll("[data-search]").forEach(searchAsYouType);
document.querySelectorAll("[data-help]").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", () => document.getElementById("help").showModal());
});
const keyState = { go: false };
document.addEventListener("keydown", (event) => onKey(event, keyState));
