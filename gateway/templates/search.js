// The search of the reference: looks through the gateway's own index, and asks nobody else.
"use strict";

const place = document.getElementById("search");
const input = Object.assign(document.createElement("input"), { type: "search", id: "query", autocomplete: "off" });
const label = Object.assign(document.createElement("label"), { htmlFor: "query", textContent: "Search" });
const told = document.createElement("p");
told.setAttribute("role", "status");
const results = document.createElement("ul");
place.append(label, input, told, results);

const MOST = 12;
let index;

async function load() {
  index ??= fetch("/api/v1/docs/search.json").then((answer) => answer.json());
  return index;
}

// Pages with all the words; those first that have them in their title.
function found(pages, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const inTitle = (page) => words.every((word) => page.title.toLowerCase().includes(word));
  const hits = pages.filter((page) => words.every((word) => page.words.includes(word) || page.title.toLowerCase().includes(word)));
  return [...hits.filter(inTitle), ...hits.filter((page) => !inTitle(page))];
}

async function show() {
  const query = input.value.trim();
  const hits = query ? found(await load(), query) : [];
  // An answer to what was written before is late.
  if (query !== input.value.trim()) return;
  told.textContent = query ? `${hits.length} found` : "";
  results.replaceChildren(...hits.slice(0, MOST).map((page) => {
    const link = Object.assign(document.createElement("a"), { href: page.address, textContent: page.title });
    const kind = Object.assign(document.createElement("span"), { className: "kind", textContent: page.kind });
    const item = document.createElement("li");
    item.append(link, " ", kind);
    return item;
  }));
}

input.addEventListener("input", show);
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter") results.querySelector("a")?.click();
  if (event.key === "Escape") {
    input.value = "";
    show();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target === input) return;
  event.preventDefault();
  input.focus();
});
