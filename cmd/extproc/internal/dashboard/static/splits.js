// Prompts that other replicas compute, and blocks below the GPU: shown only where there are any.
import { cut, large, number, seconds } from "./format.js";

// reasons are those of prefill and decode on two replicas, the split first.
export const reasons = {
  split: "another replica computed the prompt",
  local_warm: "the cache has most of the prompt, or it is short",
  local_idle: "the replica that answers is done at least as soon, at no higher price",
  prefill_busy: "the other replicas had too much to do",
  no_partner: "no other replica can hand a KV cache over",
  own_params: "the body has transfer parameters of its own",
  off: "the request's form or the policy allows no split",
  prefill_failed: "the prefill was not answered; the replica that answers computed the prompt",
  prefill_slow: "the prefill was not answered in time; the replica that answers computed the prompt",
  prefill_refused: "the prefill was refused",
  no_params: "the prefill's answer had no parameters; the replica that answers computed the prompt",
  client_gone: "the client left during the prefill",
};

// endedBadly reports whether a prefill elsewhere was begun and brought nothing.
export const endedBadly = (s) => !!s && ["prefill_failed", "prefill_slow", "prefill_refused", "no_params", "client_gone"].includes(s.reason);

const listed = (texts) => texts.filter(Boolean).join(", ") || "–";

// partsOf says what a replica has done in split requests.
export const partsOf = (r) => {
  const sum = (field) => r.ranks.reduce((a, k) => a + (k.split?.[field] || 0), 0), [under, computed, answered, moved] = ["under_way", "computed", "answered", "moved_tokens"].map(sum);
  return listed([under && "computes " + number(under), computed && "computed " + number(computed), answered && "answered " + number(answered), moved && large(moved) + " tokens moved here"]);
};

const places = [["cpu", "CPU"], ["storage", "storage"], ["shared", "shared"]];

// blocksBelow says how many blocks a replica holds below its GPU.
export const blocksBelow = (r) => listed(places.map(([key, name]) => {
  const n = r.ranks.reduce((a, k) => a + (k.below?.[key + "_blocks"] || 0), 0);
  return n && name + " " + number(n);
}));

// loadsOf says in what time a replica loads a token, by what is learned for its first rank that has loaded any.
export const loadsOf = (r) => {
  const loads = r.ranks.find((k) => k.loads)?.loads || {};
  return listed(places.map(([key, name]) => loads[key] && name + " " + number(1e6 * loads[key].seconds_each_token, 1) + " µs"));
};

// found is the number of tokens of a stretch that are expected to be found.
const found = (s) => Math.round(s.tokens * s.credit);

// matched sums a part of a match: the tokens on the GPU by default, and those that are on their way to it.
export const matched = (match, count = (s) => s.credit && s.tokens, among = ["gpu", "coming"]) => (match || []).filter((s) => among.includes(s.place)).reduce((a, s) => a + count(s), 0);

// credited is what of the tokens on the GPU is expected to be found.
export const credited = (match) => matched(match, found);

const loaded = (s) => found(s) * s.seconds_each_token;

// below is the number of tokens below the GPU that are expected to be found, or another sum over their stretches.
export const below = (match, count = found) => matched(match, count, places.map(([key]) => key));

// belowOf says where tokens of a prompt lie below a candidate's GPU, and in what time they load.
export const belowOf = (match) => listed(places.map(([key, name]) => {
  const s = (match || []).find((s) => s.place === key);
  return s && name + " " + number(found(s)) + " (" + seconds(loaded(s)) + ")";
}));

// legsOf says which replica computes the prompt of a decision and which one answers, and how long the parts took.
export const legsOf = (d) => {
  const s = d.split, tokens = below(d.match);
  const loads = tokens ? "Loads " + number(tokens) + " tokens from below its GPU, in " + seconds(below(d.match, loaded)) + ". " : "";
  if (!s?.reason) return loads;
  const t = s.times || {}, done = s.reason === "split", began = done || endedBadly(s);
  const parts = [
    [began && s.prefill, s.prefill + (done ? " computes, " : " was to compute, ") + s.decode + " answers"],
    [done, number(s.predicted_moved_tokens || 0) + " tokens to move" + (s.moved_tokens ? " of the prompt's " + number(s.moved_tokens) : "")],
    [s.prefill_cached_tokens !== undefined, number(s.prefill_cached_tokens) + " of " + number(s.predicted_prefill_cached_tokens || 0) + " predicted tokens were cached on " + s.prefill],
    [t.prefill_computed_seconds, "prefill computed after " + seconds(t.prefill_computed_seconds)], [t.prefill_answered_seconds, "answered after " + seconds(t.prefill_answered_seconds)],
    [t.moved_seconds, "KV cache moved in " + seconds(t.moved_seconds)],
  ];
  return loads + cut("Prefill and decode: " + s.reason + " (" + (reasons[s.reason] || "") + ")" + parts.filter(([is]) => is).map(([, text]) => "; " + text).join("") + ".", 900);
};

// pricesOf are the rows of both prices of a decision.
export const pricesOf = (s) => {
  if (!s?.decode) return [];
  const row = (replica, cached, p) => [[replica, "name"], [number(cached || 0), "n"], [seconds(p.queue), "n"], [seconds(p.prefill), "n"], [seconds(p.handover || 0), "n"], [seconds(p.decoding), "n"], [number(p.later, 3), "n"], [number(p.harm, 3), "n"], [number(p.total, 4), "n"]];
  return [row(s.decode, s.decode_cached_tokens, s.local), ...s.prefill && s.remote ? [row(s.prefill, s.predicted_prefill_cached_tokens, s.remote)] : []];
};
