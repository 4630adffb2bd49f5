// Keeps an open page fresh and saves steps. Everything works without it, except that nothing is live then.
"use strict";

const byId = (id) => document.getElementById(id);
// The pages lie below a path of their own.
const ours = (page) => new URL(page, document.querySelector(".brand").href);
const say = (text) => { const place = byId("said"); if (place) place.textContent = text; };
// What somebody did without a trace is also shown, for a moment.
const SHOWN_MS = 2000;
const show = (text) => {
  say(text);
  const place = byId("said");
  if (!place) return;
  place.className = "toast toasts";
  setTimeout(() => { place.className = "hidden"; }, SHOWN_MS);
};

// A launch link sends its code by itself, but not while a browser only loads the page ahead.
const send = document.querySelector("form[data-send]");
if (send) {
  if (document.prerendering) document.addEventListener("prerenderingchange", () => send.submit(), { once: true });
  else send.submit();
}

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(byId(copy.dataset.copy).textContent.trim());
    show("Copied");
    return;
  }
  const whole = event.target.closest("[data-copy-text]");
  if (whole) {
    await navigator.clipboard.writeText(whole.dataset.copyText);
    show("Copied");
    return;
  }
  const save = event.target.closest("[data-save]");
  if (save) {
    const file = new Blob([`${byId(save.dataset.save).textContent.trim()}\n`], { type: "text/plain" });
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: save.dataset.name });
    link.click();
    URL.revokeObjectURL(link.href);
    return;
  }
  const opens = event.target.closest("a[data-dialog]");
  if (opens && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    openDialog(opens.href);
  }
  if (event.target.closest("dialog [data-cancel]")) {
    event.preventDefault();
    byId("dialog").close();
  }
});

// An open menu closes when something else is clicked, and by Escape.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest(".menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

// What takes long says so. Only after the form was sent: a disabled button sends nothing of itself.
document.addEventListener("submit", (event) => {
  const busy = event.submitter?.dataset.busy;
  if (!busy) return;
  say(busy);
  setTimeout(() => { event.submitter.disabled = true; event.submitter.textContent = busy; });
});

// A step of a form that saves nothing is shown in its place, so that what is being written stays: the folder picker in a
// dialog, what a provider lists beside the field, a test run in its panel.
const underWay = new Set();
document.addEventListener("submit", async (event) => {
  const part = event.submitter?.dataset.part ?? event.target.closest("[data-part]")?.dataset.part;
  if (!part) return;
  event.preventDefault();
  if (underWay.has(part)) return;
  underWay.add(part);
  try {
    const data = new FormData(event.target, event.submitter);
    const body = event.target.enctype === "multipart/form-data" ? data : new URLSearchParams(data);
    const answer = await fetch(event.target.action, { method: "POST", body, headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const question = page.querySelector(".question");
    if (question) { showStep(question); return; }
    const now = page.getElementById(part);
    if (!now) throw new Error(answer.status);
    const dialog = byId("dialog");
    const within = dialog.contains(event.target) || byId(part).contains(document.activeElement);
    if (dialog.contains(event.target)) dialog.close();
    byId(part).replaceWith(now);
    if (within) now.querySelector("input, textarea")?.focus({ preventScroll: true });
    say(now.querySelector("[role=alert], [role=status]")?.textContent ?? "");
    if (answer.redirected) history.replaceState(null, "", answer.url);
    hideWritten();
  } catch {
    show("That could not be done. Reload the page, and try again.");
  } finally {
    underWay.delete(part);
  }
});
function showStep(question) {
  const dialog = byId("dialog");
  if (!dialog.open) { showDialog(question); return; }
  dialog.replaceChildren(question);
  (question.querySelector(".folders .btn") ?? question.querySelector(".btn")).focus();
}

// Models are listed when somebody comes to choose one.
for (const button of document.querySelectorAll("[data-lists]")) {
  const [provider, model] = button.dataset.lists.split(" ").map(byId);
  let listed = null;
  const list = () => {
    if (listed === provider.value) return;
    listed = provider.value;
    button.form.requestSubmit(button);
  };
  model.addEventListener("focus", list);
  provider.addEventListener("change", list);
}

// A question has a page of its own; here it is shown in a dialog. Focus goes back by itself when it closes, unless what
// opened it was replaced meanwhile.
async function openDialog(address) {
  const question = (await fetchPage(address))?.querySelector(".question");
  if (!question) { location.href = address; return; }
  showDialog(question);
}
function showDialog(question) {
  const dialog = byId("dialog");
  dialog.replaceChildren(question);
  showKeys(dialog);
  const opener = path(document.body, document.activeElement);
  dialog.addEventListener("close", () => {
    const lost = document.activeElement === document.body || dialog.contains(document.activeElement);
    if (lost) at(document.body, opener)?.focus();
  }, { once: true });
  dialog.showModal();
}

async function fetchPage(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  if (!answer.ok) return null;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// What is pressed stays where it is until it is released, or its click would be nobody's. A pointer that leaves the window
// is not waited for.
const LONGEST_PRESS = 2000;
let released = Promise.resolve();
addEventListener("pointerdown", () => {
  released = new Promise((done) => {
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(done), { once: true });
    setTimeout(done, LONGEST_PRESS);
  });
}, true);

// A page whose form is on its way is about to be left: what it shows may be gone by its own doing.
const LONGEST_SENDING = 5000;
let sent = -Infinity;
addEventListener("submit", (event) => queueMicrotask(() => { if (!event.defaultPrevented) sent = performance.now(); }));
addEventListener("pageshow", () => { sent = -Infinity; });

// Takes over those parts of the page that show one of the topics.
async function refresh(topics) {
  if (performance.now() - sent < LONGEST_SENDING) { await new Promise((done) => setTimeout(done, LONGEST_SENDING)); }
  if (topics.has("writing")) await refreshWriting();
  const shows = (part) => topics.has("everything") || part.dataset.live.split(" ").some((topic) => topic !== "writing" && topics.has(topic));
  const parts = [...document.querySelectorAll("[data-live]")].filter(shows);
  if (!parts.length) return;
  // A page that cannot be had without its gateway keeps its content; what stands around it is on every page.
  const itself = await fetchPage(location.href);
  // What was in the way has passed.
  if (itself && document.querySelector("[data-passes]")) { location.replace(location.href); return; }
  const fresh = itself ?? await fetchPage(ours("help"));
  if (!fresh) return;
  await released;
  // The address of a form that failed may show another page, too.
  const same = fresh.querySelector("main")?.dataset.page === document.querySelector("main")?.dataset.page;
  if (same) document.title = fresh.title;
  const [mark, markNow] = [document, fresh].map((page) => page.querySelector("link[rel=icon]"));
  if (mark.getAttribute("href") !== markNow.getAttribute("href")) mark.replaceWith(markNow);
  showRequest(fresh);
  for (const part of parts) {
    const now = fresh.getElementById(part.id);
    const holds = part.contains(document.activeElement);
    // Nobody loses what they are writing.
    const writes = holds && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (writes || (!now && !same) || now?.outerHTML === part.outerHTML) continue;
    if (!now) {
      part.remove();
      if (holds) byId("main").focus({ preventScroll: true });
      continue;
    }
    const again = holds && path(part, document.activeElement);
    for (const open of part.querySelectorAll("details[open]")) at(now, path(part, open))?.setAttribute("open", "");
    for (const field of part.querySelectorAll("select")) keepChoice(field, at(now, path(part, field)));
    part.replaceWith(now);
    if (holds) focusAgain(now, again);
  }
  if (same) addNew(fresh);
  hideWritten();
}

// What is being written has an address of its own, because it changes with each word.
async function refreshWriting() {
  const part = byId("writing");
  const now = part && (await fetchPage(ours(part.dataset.from)))?.getElementById("writing");
  await released;
  if (now && byId("writing") && now.outerHTML !== part.outerHTML) byId("writing").replaceWith(now);
  hideWritten();
}
// Once the whole message is among those of the run, it is not shown twice.
function hideWritten() {
  const part = byId("writing");
  const id = part?.dataset.message;
  if (part) part.hidden = Boolean(id && document.querySelector(`.turn[data-message="${CSS.escape(id)}"]`));
}

hideWritten();

// What was chosen stays chosen as long as it is there.
function keepChoice(field, now) {
  if ([...(now?.options ?? [])].some((option) => option.value === field.value)) now.value = field.value;
}

// Nor does anybody lose their place: what had focus has it again, and if it is gone, the part where it was.
function focusAgain(part, steps) {
  at(part, steps)?.focus({ preventScroll: true });
  if (part.contains(document.activeElement)) return;
  part.tabIndex = -1;
  part.focus({ preventScroll: true });
}

// Parts that were not there before, as a result, come behind the part that they follow.
function addNew(fresh) {
  for (const part of fresh.querySelectorAll("main > [data-live]")) {
    if (byId(part.id)) continue;
    let before = part.previousElementSibling;
    while (before && !(before.id && byId(before.id))) before = before.previousElementSibling;
    byId(before?.id ?? "banner").after(part);
  }
}

// Where an element is below another one: by the nearest identifier, and by its place below that.
function path(root, element) {
  const steps = [];
  for (let here = element; here !== root; here = here.parentElement) {
    if (here.id) return [`#${CSS.escape(here.id)}`, ...steps];
    steps.unshift([...here.parentElement.children].indexOf(here));
  }
  return steps;
}
function at(root, steps) {
  return steps.reduce((here, step) => (typeof step === "string" ? root.querySelector(step) : here?.children[step]), root);
}

// What a form would do is shown while it is filled in: what its button for that would show. A secret stays where it is.
for (const form of document.querySelectorAll("form[data-try]")) {
  const button = form.querySelector("[data-tries]");
  let timer = null;
  let asked = null;
  const look = async () => {
    asked?.abort();
    asked = new AbortController();
    const fields = new FormData(form, button);
    fields.delete("secret");
    const { signal } = asked;
    try {
      const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(fields), signal });
      if (!answer.ok) throw new Error(answer.status);
      take(form, new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch (error) {
      if (error.name !== "AbortError") say("What would happen could not be asked");
    }
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 250); });
  button.addEventListener("click", (event) => { event.preventDefault(); look(); });
}
function take(form, fresh) {
  for (const part of form.querySelectorAll("[data-tried]")) {
    const now = fresh.getElementById(part.id);
    if (now && now.innerHTML !== part.innerHTML) part.replaceChildren(...now.childNodes);
  }
  for (const field of form.querySelectorAll("[aria-describedby]")) {
    for (const name of ["aria-describedby", "aria-invalid"]) {
      const value = fresh.getElementById(field.id)?.getAttribute(name);
      if (value) field.setAttribute(name, value);
      else field.removeAttribute(name);
    }
  }
}

// The inbox shows the request that the address names, or else the first one.
function showRequest(page) {
  const inbox = page.querySelector("[data-inbox]");
  if (!inbox) return null;
  const cards = [...inbox.querySelectorAll("[data-card]")];
  const named = cards.find((card) => `#${card.id}` === location.hash);
  const here = named ?? cards[0];
  inbox.classList.add("picks");
  inbox.classList.toggle("chosen", Boolean(named));
  for (const card of cards) card.classList.toggle("here", card === here);
  for (const link of inbox.querySelectorAll(":scope > ul a")) {
    if (link.getAttribute("href") === `#${here.id}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  return named;
}
showRequest(document);
addEventListener("hashchange", () => showRequest(document)?.focus());

// One stream for the whole tab.
if ("liveAfter" in document.body.dataset) {
  let wanted = new Set();
  let timer = null;
  let lost = null;
  const mark = (text, tone) => {
    byId("live").textContent = text;
    byId("live").parentElement.className = `live state ${tone}`;
  };
  const state = () => (lost ? mark(`Not live since ${lost}. Trying to reconnect.`, "attention") : mark("Live", "good"));
  // One refresh at a time: of two, the older could come last, or the newer find its parts replaced.
  const want = (topic) => {
    wanted.add(topic);
    timer ??= setTimeout(async () => {
      const topics = wanted;
      wanted = new Set();
      try { await refresh(topics); } catch { /* The stream says when the agent is back. */ }
      state();
      timer = null;
      [...wanted].forEach(want);
    }, 60);
  };
  const isSignedOut = () => fetch(ours("help"), { method: "HEAD" }).then((answer) => answer.status === 401, () => false);
  // What somebody is writing stays, so that it can be copied.
  const leave = () => {
    if (!document.activeElement.matches("input, textarea, select")) { location.replace(location.pathname + location.search); return; }
    mark("Signed out. Open these pages again with: deskgate open", "attention");
    say("Signed out");
  };
  const connect = () => {
    const { liveAfter } = document.body.dataset;
    const stream = new EventSource(ours(liveAfter ? `live?after=${liveAfter}` : "live"));
    stream.addEventListener("hello", ({ data }) => {
      const again = lost !== null;
      lost = null;
      state();
      if (again) say("Live again");
      if (again || data === "late") want("everything");
    });
    stream.addEventListener("changed", (event) => want(event.data));
    stream.addEventListener("error", async () => {
      lost ??= new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      state();
      // A browser gives up for good when it is answered with an error: while the agent starts, or without a session.
      if (stream.readyState !== EventSource.CLOSED) return;
      if (await isSignedOut()) leave();
      else setTimeout(connect, 2000);
    });
    addEventListener("pagehide", () => stream.close(), { once: true });
  };
  connect();
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}

// Whoever has other uses for single keys switches ours off; the browser remembers it.
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-keys]")) return;
  if (event.target.checked) localStorage.removeItem("keys");
  else localStorage.setItem("keys", "off");
});
const showKeys = (root) => {
  for (const box of root.querySelectorAll("[data-keys]")) box.checked = localStorage.getItem("keys") !== "off";
};
showKeys(document);

// Keys: g and a letter goes to a page; in the inbox j and k move, d denies, a and then Enter allows.
let goes = false;
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (localStorage.getItem("keys") === "off") return;
  if (typing || event.ctrlKey || event.metaKey || event.altKey || byId("dialog")?.open) return;
  if (goes) {
    goes = false;
    document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
    return;
  }
  const cards = [...document.querySelectorAll("[data-card]")];
  const here = cards.findIndex((card) => card.classList.contains("here"));
  // At once, and not as the browser follows a fragment: that takes the focus later, from the key that came next.
  const goTo = (card) => { history.replaceState(null, "", `#${card.id}`); showRequest(document).focus(); };
  // The first key that moves goes to the request that is shown.
  const chosen = cards[here]?.contains(document.activeElement);
  switch (event.key) {
    case "/": if (document.querySelector("[data-search]")) { event.preventDefault(); document.querySelector("[data-search]").focus(); } break;
    case "?": document.querySelector("[data-help]")?.click(); break;
    case "g": goes = true; setTimeout(() => { goes = false; }, 1500); break;
    case "j": if (cards.length) goTo(cards[chosen ? Math.min(here + 1, cards.length - 1) : here]); break;
    case "k": if (cards.length) goTo(cards[chosen ? Math.max(here - 1, 0) : here]); break;
    // Nothing is denied by a key that was meant for something else.
    case "d": if (chosen) cards[here].querySelector("[data-deny]")?.click(); break;
    // Two keys, never one: this one only leads to the button.
    case "a": cards[here]?.querySelector("[data-allow]")?.focus(); break;
  }
});
