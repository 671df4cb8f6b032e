// The operator's page: reads the router's own JSON pages once a second or so and shows them.
import { clock, cut, large, number, percent, rate, seconds, span } from "./format.js";
import { History, classes, mean, share } from "./history.js";
import { chart, ticks } from "./charts.js";
import { $, items, options, problems, showDecisions, showFleet, showSplits, showTrial } from "./tables.js";

const recent = 300; // seconds that the tiles are of
const patience = 5000; // ms for an answer

const history = new History();
let model = "", open = null, replicas = [], decided = [], ready = { ok: false, text: "connecting" }, answered = 0, lost = null, refused = "", shadow = false;

class Locked extends Error {}
class Refused extends Error {}

// The admin token stays in this tab's storage, and goes to this router alone.
const token = () => sessionStorage.getItem("token");
const get = async (path) => {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(patience), headers: token() ? { Authorization: "Bearer " + token() } : {} });
  if (answer.status === 401) {
    $("token-wrong").hidden = !token();
    sessionStorage.removeItem("token");
    $("unlock").hidden = false;
    throw new Locked();
  }
  if (!answer.ok && !(path === "/readyz" && answer.status === 503)) throw new Refused("the router answers " + answer.status + " to " + path.split("?")[0]);
  return answer;
};
const json = async (path) => (await get(path)).json();

const showState = () => {
  const found = ready.ok ? problems(replicas) : [["bad", ready.text], ...problems(replicas)];
  if (refused) found.unshift(["bad", refused]);
  if (lost) found.splice(0, found.length, ["bad", "this router does not answer"]);
  if (!$("unlock").hidden) found.splice(0, found.length, ["bad", "the admin token is needed"]);
  const all = found.length ? found.slice(0, 6) : answered ? [["good", "ready"]] : [["", "connecting"]];
  $("state").replaceChildren(...all.map(([level, text]) => { const part = document.createElement("span"); part.className = level; part.textContent = cut(text, 160); return part; }));
  document.title = found.length ? "(" + found.length + ") warmroute: " + cut(found[0][1], 60) : "warmroute";
  document.body.classList.toggle("stale", !!lost);
  $("lost").hidden = !lost;
  if (lost) {
    $("lost").textContent = answered ? "No answer since " + clock.time(answered) + " " + clock.zone() + " (" + span((clock.now() - answered) / 1000) + "). Everything below is from then." : "No answer yet.";
  }
  $("clock").textContent = !answered ? "" : lost ? "" : clock.time(clock.now()) + " " + clock.zone();
};

const showHistory = () => {
  const bins = history.bins(model), times = bins.map((b) => b.at), from = history.samples[0]?.at, of = (f) => bins.map((b) => b.sum && f(b.sum));
  const q = (n) => of((s) => history.quantile(s.tokens, n));
  chart("chart-hit", from, times, [{ label: "Hit rate", color: "good", values: of((s) => share(s.hit, s.prompt)) }], { value: percent, tick: ticks.percent, most: 1 });
  chart("chart-ttft", from, times, [{ label: "p50", color: "accent", values: q(0.5), width: 2 }, { label: "p90", color: "moved", values: q(0.9) }, { label: "p99", color: "bad", values: q(0.99) }], { value: seconds, tick: ticks.seconds, least: 0.1 });
  const busy = classes.filter(([c]) => c === "warm" || bins.some((b) => b.sum?.decisions[c]));
  chart("chart-classes", from, times, busy.map(([c, label]) => ({ label, color: c, values: of((s) => (s.decisions[c] || 0) / s.seconds) })), { value: rate, least: 1, stacked: true });
  chart("chart-flight", from, times, [{ label: "In flight", color: "accent", values: of((s) => s.flight) }], { value: (v) => number(v), least: 4, whole: true });

  const now = history.sum(history.last(recent, clock.now() / 1000), model), total = history.total(model);
  const decisions = Object.values(now.decisions).reduce((a, b) => a + b, 0), hinted = ["warm", "moved", "cold"].reduce((a, c) => a + (now.decisions[c] || 0), 0);
  const set = (id, text, below) => { $(id).textContent = text; if (below !== undefined) $(id + "-more").textContent = below; };
  set("tile-hit", percent(share(now.hit, now.prompt)), now.prompt ? "of " + large(now.prompt) + " prompt tokens" : "no request");
  set("tile-ttft", seconds(history.quantile(now.tokens, 0.5)), "p90 " + seconds(history.quantile(now.tokens, 0.9)) + ", p99 " + seconds(history.quantile(now.tokens, 0.99)));
  set("tile-flight", number(history.samples.at(-1) ? history.sum(history.samples.slice(-1), model).flight : null));
  set("tile-hinted", percent(share(hinted, decisions)), decisions ? "of " + number(decisions) + (decisions === 1 ? " request" : " requests") : "no request");
  set("tile-saved", large(total.tokens), (total.seconds === null ? "" : "≈ " + span(total.seconds) + " of prefill, ") + "since " + (history.since ? clock.since(Date.parse(history.since)) : "–"));
  showSpent(now);
  showSplits(now.splits, history.samples.some((s) => s.splits));
};

// showSpent shows where the time of a request goes, as means that add up.
const showSpent = (now) => {
  const parts = ["router", "queue", "prefill", "decode"].map((name) => [name, mean(now[name])]), all = parts.reduce((a, [, v]) => a + (v || 0), 0);
  for (const [name, v] of parts) {
    $("spent-" + name).textContent = seconds(v);
    $("spent-" + name + "-share").textContent = percent(share(v, all));
    $("spent-" + name + "-bar").value = share(v, all) || 0;
  }
};

const baseOf = (id) => replicas.find((r) => r.base_model === id || r.models.includes(id))?.base_model || id || "";
const show = () => {
  showFleet(replicas.filter((r) => !model || r.base_model === model), shadow);
  const mine = replicas.filter((r) => !model || r.base_model === model);
  $("tile-ready").textContent = mine.filter((r) => r.ready).length + " of " + mine.length;
  showDecisions(decided.filter((d) => !model || baseOf(d.model) === model), history.classes, open, toggle);
};

// toggle opens or closes a decision. While one is open, the table stands still.
const toggle = (d) => {
  open = open === d.seq ? null : d.seq;
  $("live").checked = open === null;
  show();
};

const parts = {
  history: { every: 5, read: async () => {
    let answer = await json("/debug/history?after=" + history.number);
    if (!history.take(answer)) history.take(answer = await json("/debug/history"));
    clock.set(answer.now);
    showHistory();
  } },
  state: { every: 2, read: async () => {
    const answer = await get("/readyz"), [text, ...notes] = (await answer.text()).trim().split("\n");
    ready = { ok: answer.ok, text };
    items($("notes"), notes.map((n) => n.replace(/^note: /, "")), 10);
  } },
  fleet: { every: 2, read: async () => {
    replicas = (await json("/debug/replicas")).replicas || [];
    options($("model"), [...new Set(replicas.map((r) => r.base_model).filter(Boolean))].sort(), "all");
  } },
  decisions: { every: 1, read: async () => {
    if (!$("live").checked) return;
    const id = $("find-id").value.trim(), reason = $("find-reason").value, q = new URLSearchParams({ n: "200" });
    if (id) q.set("id", id);
    if (reason) q.set("reason", reason);
    decided = (await json("/debug/explain?" + q)).decisions || [];
    options($("find-reason"), Object.keys(history.classes).sort(), "all");
    if (id && decided.length === 1) open = decided[0].seq;
  } },
  trial: { every: 5, read: async () => {
    const trial = await json("/debug/trial");
    shadow = trial.mode === "shadow";
    showTrial(trial, model);
  } },
};

let busy = false;
// turn reads what is due, and the parts that are named.
const turn = async (...now) => {
  if (busy || document.hidden || !$("unlock").hidden) return;
  busy = true;
  try {
    for (const [name, part] of Object.entries(parts)) {
      const began = performance.now();
      if (began < (part.due || 0) && !now.includes(name)) continue;
      await part.read();
      // A large fleet's answers take their time, and are asked for less often.
      part.due = began + Math.max(1000 * part.every - 500, 10 * (performance.now() - began));
      answered = clock.now();
      lost = null;
    }
    refused = "";
    show();
    document.body.dataset.updates = 1 + Number(document.body.dataset.updates || 0);
  } catch (e) {
    if (e instanceof Refused) refused = e.message;
    else if (!(e instanceof Locked)) lost = lost || e;
  } finally {
    busy = false;
    showState();
  }
};

const search = () => { open = null; $("live").checked = true; turn("decisions"); };
$("unlock").addEventListener("submit", (e) => {
  e.preventDefault();
  sessionStorage.setItem("token", $("token").value.trim());
  $("token").value = "";
  $("unlock").hidden = true;
  turn(...Object.keys(parts));
});
$("find").addEventListener("submit", (e) => { e.preventDefault(); search(); });
$("find-id").addEventListener("input", search);
$("find-reason").addEventListener("change", search);
$("live").addEventListener("change", () => { if ($("live").checked) search(); });
$("model").addEventListener("change", () => { model = $("model").value; showHistory(); show(); turn("trial"); });
addEventListener("resize", showHistory);
addEventListener("visibilitychange", () => turn());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showHistory);
turn();
setInterval(() => turn(), 1000);
