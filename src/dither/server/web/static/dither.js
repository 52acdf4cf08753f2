// Ctrl+Enter runs the question; a price that isn't that of the editor can't be paid; a new answer comes into view; what
// is being written stays in its tab until its writer signs out. Everything else is htmx and the server.
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
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  const form = byId("question"), run = byId("run");
  if (run && !run.disabled && form.contains(event.target)) { event.preventDefault(); run.click(); }
});
// what was typed since has another price: the button waits for it, and a price that comes late isn't shown
let edits = 0;
document.addEventListener("input", (event) => {
  const run = byId("run");
  if (!event.target.closest("#question") || event.target.name === "why") return;
  edits += 1;
  if (run) run.disabled = true;
  remember();
});
document.addEventListener("htmx:beforeSend", (event) => { event.detail.xhr.edits = edits; });
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id === "price" && event.detail.xhr.edits !== edits) event.detail.shouldSwap = false;
});
document.addEventListener("htmx:afterSwap", (event) => {
  // what was decided keeps the focus, in place of the button that is gone
  if (event.target.id.startsWith("request-")) byId(event.target.id)?.focus();
  if (event.target.id !== "answer") return;
  event.target.scrollIntoView({ block: "nearest" });
  // the price says now that it was asked before
  const sql = byId("sql");
  if (sql && window.htmx) window.htmx.trigger(sql, "reprice");
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
