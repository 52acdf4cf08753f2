// Ctrl+Enter runs the question, and no other key does; a price that isn't that of the editor can't be paid; a new answer
// comes into view; what is being written stays in its tab until its writer signs out. The rest is htmx and the server.
"use strict";
const byId = (name) => document.getElementById(name);
// runs before htmx looks at the page, so that the price is that of what is brought back
const draft = "dither.draft";
const remember = () => {
  const { sql, mode, amount } = Object.fromEntries(new FormData(byId("question"))), { who } = byId("question").dataset;
  sessionStorage.setItem(draft, JSON.stringify({ who, at: location.href, sql, mode, amount }));
};
const bringBack = () => {
  const kept = JSON.parse(sessionStorage.getItem(draft) || "{}");
  const [how] = performance.getEntriesByType("navigation");
  // a link with a question in it means that question, unless its page is loaded again
  const here = location.search === "" || (kept.at === location.href && how && how.type !== "navigate");
  if (kept.who !== byId("question").dataset.who || !here) return;
  byId("sql").value = kept.sql;
  byId("amount").value = kept.amount;
  for (const choice of document.getElementsByName("mode")) choice.checked = choice.value === kept.mode;
};
if (byId("question")) bringBack();
document.addEventListener("submit", (event) => {
  if (event.target.action.endsWith("/sign-out")) sessionStorage.removeItem(draft);
});
document.addEventListener("keydown", (event) => {
  const form = byId("question"), run = byId("run");
  if (event.key !== "Enter" || !form || !form.contains(event.target)) return;
  if (event.ctrlKey || event.metaKey) {
    if (run && !run.disabled) { event.preventDefault(); run.click(); }
  } else if (event.target.matches("input")) {
    // in a field, Enter means that its value is to be used, and its price is on the way: browsers would send the form,
    // which pays
    event.preventDefault();
  }
});
// an ε isn't an error: the other way to ask begins with what the price said of it, and going back finds what was there
let switched = { from: "", to: null };
document.addEventListener("change", (event) => {
  if (event.target.name !== "mode" || !event.target.closest("#question")) return;
  const amount = byId("amount"), said = document.querySelector("#price .figures"), was = amount.value;
  const known = (said && said.dataset[event.target.value]) || "";
  amount.value = was === switched.to ? switched.from : known;
  switched = { from: was, to: amount.value };
  remember();
}, true);
// what was typed since has another price: the button waits for it, and a price that comes late isn't shown
let edits = 0;
document.addEventListener("input", (event) => {
  const run = byId("run");
  if (!event.target.closest("#question") || event.target.name === "why") return;
  edits += 1;
  if (run) run.disabled = true;
  remember();
});
document.addEventListener("htmx:configRequest", (event) => {
  const { triggeringEvent, parameters } = event.detail;
  if (triggeringEvent && triggeringEvent.detail && triggeringEvent.detail.quiet) parameters.quiet = "1";
});
document.addEventListener("htmx:beforeSend", (event) => {
  const { xhr, requestConfig } = event.detail;
  xhr.edits = edits;
  xhr.quiet = requestConfig.parameters.quiet === "1";
  if (event.detail.pathInfo.requestPath !== "/ask/run") return;
  const run = byId("run");
  run.dataset.label = run.textContent;
  run.textContent = "Running…";
  run.setAttribute("aria-busy", "true");
});
document.addEventListener("htmx:afterRequest", (event) => {
  const run = byId("run");
  if (event.detail.pathInfo.requestPath !== "/ask/run" || !run || !run.dataset.label) return;
  run.textContent = run.dataset.label;
  run.removeAttribute("aria-busy");
});
// two fields that are typed in at once ask for one price twice: the second must not take the place of "Running…"
let shown = -1;
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, xhr } = event.detail;
  if (target.id !== "price") return;
  if (xhr.edits !== edits || (xhr.edits === shown && !xhr.quiet)) event.detail.shouldSwap = false;
  else shown = edits;
});
document.addEventListener("htmx:afterSwap", (event) => {
  // what was decided keeps the focus, in place of the button that is gone
  if (event.target.id === "approvals") event.target.querySelector("[data-decided]")?.focus();
  // a wish that was sent isn't sent again by another click
  if (event.target.id === "requested" && !event.target.querySelector(".refused")) byId("wish").reset();
  if (event.target.id !== "answer") return;
  event.target.scrollIntoView({ block: "nearest" });
  // the price says now that it was asked before; not aloud, or nobody would hear the answer
  if (byId("sql") && window.htmx) window.htmx.trigger(byId("sql"), "reprice", { quiet: true });
});
const tell = (event, text) => {
  const place = event.detail.target || byId("main");
  const said = document.createElement("p");
  said.className = "problem";
  said.setAttribute("role", "alert");
  said.textContent = text;
  place.replaceChildren(said);
};
document.addEventListener("htmx:sendError", (event) => {
  tell(event, "The server can't be reached. If the question was charged, asking it again is free.");
});
document.addEventListener("htmx:responseError", (event) => {
  const large = event.detail.xhr.status === 413;
  tell(event, large ? "This is too long to be sent; nothing was charged."
    : "The server can't do this now. If the question was charged, asking it again is free.");
});
