// Tables and what is said of replicas and decisions. Everything from outside is set as text,
// never as markup, and is cut to a length.
import { clock, cut, large, number, percent, plural, seconds } from "./format.js";
import { mean, share } from "./history.js";
import { below, belowOf, blocksBelow, credited, endedBadly, legsOf, loadsOf, matched, partsOf, pricesOf, reasons } from "./splits.js";

export const $ = (id) => document.getElementById(id);

const most = 200; // rows of a table

// cells makes the cells of a row: a text, or [text, class].
const cells = (tr, list) => {
  for (const cell of list) {
    const td = tr.insertCell(), [text, name] = Array.isArray(cell) ? cell : [cell, ""];
    td.textContent = cut(text);
    td.className = name;
    if (td.textContent.length > 24) td.title = cut(text, 2000);
  }
  return tr;
};

// rows replaces a table's rows, and says how many it leaves out.
export const rows = (table, list, each) => {
  const body = document.createElement("tbody");
  for (const item of list.slice(0, most)) {
    const tr = body.insertRow();
    cells(tr, each(item, tr));
  }
  if (list.length > most) {
    const td = body.insertRow().insertCell();
    td.colSpan = 99;
    td.textContent = "and " + (list.length - most) + " more";
  }
  table.tBodies[0].replaceWith(body);
  return body;
};

// list replaces the items of a list.
export const items = (ul, texts, many) => {
  const left = texts.length - many, all = left > 0 ? [...texts.slice(0, many), "and " + left + " more"] : texts;
  ul.hidden = !all.length;
  ul.replaceChildren(...all.map((text) => { const li = document.createElement("li"); li.textContent = cut(text, 400); return li; }));
};

export const options = (select, values, all) => {
  const kept = select.value, wanted = [["", all], ...values.slice(0, most).map((v) => [v, cut(v, 60)])];
  if (wanted.length === select.options.length && wanted.every(([v], i) => select.options[i].value === v)) return;
  select.replaceChildren(...wanted.map(([value, text]) => new Option(text, value)));
  select.value = values.includes(kept) ? kept : "";
};

// first is the replica that a decision names first.
const first = (d) => (d.chosen || "").split(",")[0];

const stateOf = (r) => {
  if (!r.ready) return [r.why || "not ready", "bad wrap"];
  if (r.cached_tokens.suspect) return ["suspect" + (r.cached_tokens.cause ? ": " + r.cached_tokens.cause : ""), "bad wrap"];
  return ["ready", "good"];
};

const eventsOf = (r) => {
  if (!r.ready) return ["–", ""];
  const source = r.kv_events || "–", bad = ["none", "refused", "paused", "connecting"].includes(source);
  if (r.no_events) return [source + ": " + r.no_events, bad ? "bad wrap" : "wrap"];
  return source === "following" && !r.synced ? ["catching up", "warn"] : [source, bad ? "bad" : ""];
};

// problems says what is wrong with the fleet, the worst first.
export const problems = (replicas) => {
  const models = Map.groupBy(replicas.filter((r) => r.base_model), (r) => r.base_model), out = [];
  for (const [model, of] of models) if (!of.some((r) => r.ready)) out.push(["bad", "no replica of " + cut(model, 60) + " is ready"]);
  const say = (level, list, one, many) => { if (list.length) out.push([level, plural(list.length, one, many)]); };
  const dead = replicas.filter((r) => !r.ready), ready = replicas.filter((r) => r.ready);
  if (replicas.length && !ready.length) out.unshift(["bad", "no replica is ready"]);
  else if (dead.length) out.push(["bad", dead.length + " of " + plural(replicas.length, "replica is", "replicas " + (dead.length === 1 ? "is" : "are")) + " not ready"]);
  const of = (...states) => ready.filter((r) => states.includes(r.kv_events));
  say("bad", of("none"), "replica has no KV events", "replicas have no KV events");
  say("bad", of("refused", "paused"), "replica's KV events are refused", "replicas' KV events are refused");
  say("warn", of("connecting"), "replica's KV events are not connected", "replicas' KV events are not connected");
  say("warn", of("following").filter((r) => !r.synced), "replica's KV events are behind", "replicas' KV events are behind");
  say("bad", ready.filter((r) => r.cached_tokens.suspect), "replica is suspect", "replicas are suspect");
  return out;
};

const sessionsOf = (r) => {
  const all = r.ranks.map((k) => k.sessions).filter(Boolean), sum = (field) => all.reduce((a, s) => a + s[field], 0);
  return all.length ? number(sum("live")) + " (" + percent(sum("context_tokens") / sum("cache_tokens")) + ")" : "–";
};

// In shadow mode no request is sent by hint: those in flight are the replicas' own.
export const showFleet = (replicas, shadow) => {
  const sum = (r, field) => r.ranks.reduce((a, k) => a + (k[field] || 0), 0);
  $("fleet").classList.toggle("splits", replicas.some((r) => (r.role || "both") !== "both" || r.ranks.some((k) => k.split)));
  $("fleet").classList.toggle("tiers", replicas.some((r) => r.ranks.some((k) => k.below || k.loads)));
  $("fleet").classList.toggle("sessions", replicas.some((r) => r.ranks.some((k) => k.sessions)));
  const sorted = [...replicas].sort((a, b) => a.ready - b.ready || (a.base_model || "").localeCompare(b.base_model || "") || a.address.localeCompare(b.address));
  rows($("fleet"), sorted, (r) => [
    [r.name ? r.name + " (" + r.address + ")" : r.address, "name"], [r.base_model || "–", "name"], stateOf(r), eventsOf(r),
    [r.role || "both", "apart"], [r.transfer ? r.transfer.connector || "none" : "not known", "apart"], [partsOf(r), "apart"],
    [number(sum(r, "blocks")), "n"], [blocksBelow(r), "below"], [loadsOf(r), "below"],
    [percent(Math.max(0, ...r.ranks.map((k) => k.kv_usage_reported || 0))), "n"], [sessionsOf(r), "desk n"], [number(shadow ? sum(r, "running_reported") + sum(r, "waiting_reported") : sum(r, "in_flight")), "n"], [seconds(sum(r, "pending_prefill_seconds")), "n"],
    [number(sum(r, "waiting_reported")), "n"], [number(r.cached_tokens.predicted), "n"], [percent(r.cached_tokens.shortfall), "n"],
  ]);
};

// The splits are shown where requests might have been split within the last hour.
export const showSplits = (s, any) => {
  const counted = Object.keys(reasons).filter((why) => s.reasons[why]), all = counted.reduce((a, why) => a + s.reasons[why], 0);
  $("splits").hidden = !any;
  $("splits-more").textContent = "5 min, all models: " + number(s.reasons.split || 0) + " of " + number(all) + (all === 1 ? " request" : " requests") + ", " + large(s.moved) + " tokens moved";
  rows($("split-reasons"), counted, (why) => [[why, endedBadly({ reason: why }) ? "bad" : ""], [number(s.reasons[why]), "n"], [percent(share(s.reasons[why], all)), "n"], [reasons[why], ""]]);
  rows($("split-phases"), [["Prefill", s.prefill, "events of the replica that computes: from the decision until the prompt is computed"], ["Move", s.move, "events of the replica that answers: from then until the KV cache is there"]],
    ([name, spent, by]) => [name, [seconds(mean(spent)), "n"], [number(spent.requests), "n"], by]);
};

// The trial is shown once a hint was withheld.
export const showTrial = (t, model) => {
  const groups = (t.groups || []).filter((g) => !model || g.model === model);
  $("trial").hidden = !groups.some((g) => g.group === "unhinted" && g.requests);
  $("trial-since").textContent = (t.mode === "shadow" ? "shadow" : number(t.share, t.share % 1 ? 2 : 0) + " % hinted" + (t.share_by ? " by " + cut(t.share_by, 60) : "")) + ", since " + clock.day(Date.parse(t.since)) + " " + clock.zone();
  rows($("compared"), groups, (g) => {
    const begun = g.first_byte_seconds || {}, whole = g.answer_seconds || {};
    return [[g.model, "name"], g.group === "hinted" ? "sent" : "withheld", [number(g.requests), "n"], [number(g.failed), g.failed ? "n bad" : "n"], [percent(g.hit_rate), "n"],
      [number(g.prefilled_tokens_per_request), "n"], [seconds(begun.p50), "n"], [seconds(begun.p99), "n"], [seconds(whole.p50), "n"], [seconds(whole.p99), "n"], [number(g.usage_read), "n"]];
  });
};

// detail is the row below an open decision: its candidates side by side.
const detail = (tr, d) => {
  const td = tr.insertCell(), box = $("detail").content.cloneNode(true);
  tr.className = "detail";
  td.colSpan = 99;
  box.querySelector(".said").textContent = cut([d.reason, d.withheld && "withheld: " + d.withheld, d.model || d.asked_model, d.id].filter(Boolean).join(" · "), 400);
  box.querySelector(".why").textContent = d.why ? cut(d.why.text + ". To do: " + d.why.do, 600) : "";
  box.querySelector(".legs").textContent = legsOf(d);
  const prices = pricesOf(d.split), candidates = box.querySelector(".candidates"), table = candidates.querySelector("table");
  box.querySelector(".prices").hidden = !prices.length;
  rows(box.querySelector(".prices table"), prices, (p) => p);
  candidates.hidden = !(d.candidates || []).length;
  table.classList.toggle("tiers", (d.candidates || []).some((c) => below(c.state.match)));
  rows(table, d.candidates || [], (c, row) => {
    const s = c.state, v = c.score;
    if (c.replica === first(d)) row.className = "chosen";
    return [[c.replica + (c.rank ? " rank " + c.rank : ""), "name"], [number(matched(s.match)), "n"], [number(matched(s.match, undefined, ["gpu"])), "n"], [belowOf(s.match), "below"], [number(s.in_flight), "n"], [number(s.awaiting), "n"],
      [seconds(s.pending_seconds), "n"], [number(s.speed, 2), "n"], [seconds(v.cost), "n"], String(v.verdict ?? ""), [c.why ? c.why.text : "", "wrap"]];
  });
  td.append(box);
};

// kept are the rows of decisions by their numbers. A row stays where it is while others come,
// so that it keeps its focus, and a click meets what was aimed at.
const kept = new Map();

const decisionRow = (d, said, toggle) => {
  const tr = document.createElement("tr"), best = (d.candidates || []).find((c) => c.replica === first(d));
  tr.tabIndex = 0;
  tr.dataset.seq = d.seq;
  tr.addEventListener("click", () => toggle(d));
  tr.addEventListener("keydown", (e) => { if (e.key === "Enter") toggle(d); });
  const apart = d.split?.reason === "split" ? d.split : null, reason = d.reason + (d.withheld ? ", withheld: " + d.withheld : endedBadly(d.split) ? ", " + d.split.reason : "");
  // If another replica than the first served, the prediction is that for the one that did.
  const served = d.served_by && d.served_by !== first(d) ? (d.candidates || []).filter((c) => c.replica === d.served_by) : null;
  const found = served && (served.length === 1 ? credited(served[0].state.match) : null);
  const predicted = apart ? apart.predicted_prefill_cached_tokens || 0 : served ? found : d.withheld && !d.served_by && d.actual_cached_tokens !== undefined ? null : d.predicted_cached_tokens, actual = apart ? apart.prefill_cached_tokens : d.actual_cached_tokens;
  return cells(tr, [clock.time(Date.parse(d.at)), [reason, "class-" + said], [d.model || "–", "name"],
    [(apart ? apart.prefill + " → " : "") + (first(d) || "–"), "name"], [number(d.prompt_tokens), "n"], [number(predicted), "n"], [number(actual), "n"], [seconds(best && best.score.cost), "n"], [seconds(d.took_ns / 1e9), "n"], [d.id || "", "name"]]);
};

// showDecisions shows the decisions, and the details of the one with the number open below
// its row. toggle is called with the decision whose row was chosen.
export const showDecisions = (list, classOf, open, toggle) => {
  const body = $("decisions").tBodies[0], wanted = [], before = new Map(kept);
  kept.clear();
  for (const d of list.slice(0, 50)) {
    const said = d.withheld ? "withheld" : classOf[d.reason] || "failed", sign = [d.at, d.actual_cached_tokens, d.split?.reason, d.split?.prefill_cached_tokens, d.served_by, said].join();
    let row = before.get(d.seq);
    if (row?.sign !== sign) row = { sign, tr: decisionRow(d, said, toggle) };
    if (d.seq !== open) row.below = null;
    else if (!row.below) detail(row.below = document.createElement("tr"), d);
    row.tr.className = row.below ? "chosen" : "";
    row.tr.setAttribute("aria-expanded", !!row.below);
    kept.set(d.seq, row);
    wanted.push(row.tr, ...row.below ? [row.below] : []);
  }
  let at = body.firstChild;
  for (const tr of wanted) {
    if (tr === at) at = at.nextSibling;
    else body.insertBefore(tr, at);
  }
  for (let next; at; at = next) {
    next = at.nextSibling;
    at.remove();
  }
};
