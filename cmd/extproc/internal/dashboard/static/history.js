// The router's samples: what was counted in each five seconds, by model. Everything shown is
// a quotient of sums, divided once.
export class History {
  constructor() { this.clear(); }

  clear() { Object.assign(this, { since: "", number: 0, samples: [], totals: {}, bounds: [], classes: {}, every: 5 }); }

  // take adds an answer of /debug/history, and reports whether it continues what is there:
  // after a restart of the router it does not.
  take(answer) {
    if (this.since && this.since !== answer.since) {
      this.clear();
      return false;
    }
    Object.assign(this, { since: answer.since, every: answer.every_seconds, bounds: answer.first_token_bounds, totals: answer.totals || {}, classes: answer.classes || {} });
    for (const s of answer.samples || []) {
      if (s.number <= this.number) continue;
      this.number = s.number;
      this.samples.push({ at: Date.parse(s.at) / 1000, models: s.models || {}, router: s.router, splits: s.splits });
    }
    const oldest = Date.parse(answer.now) / 1000 - 3600;
    this.samples = this.samples.filter((s) => s.at >= oldest);
    return true;
  }

  // sum adds up samples for a model, "" = all.
  sum(samples, model) {
    const total = { hit: 0, prompt: 0, flight: null, tokens: this.bounds.map(() => 0).concat(0), decisions: {}, seconds: samples.length * this.every,
      splits: { reasons: {}, moved: 0, prefill: { seconds: 0, requests: 0 }, move: { seconds: 0, requests: 0 } } };
    const times = ["ttft", "queue", "prefill", "decode", "router"];
    for (const t of times) total[t] = { seconds: 0, requests: 0 };
    const add = (to, spent) => { if (spent) { to.seconds += spent.seconds; to.requests += spent.requests; } };
    for (const s of samples) {
      add(total.router, s.router);
      if (s.splits) {
        for (const [why, n] of Object.entries(s.splits.reasons || {})) total.splits.reasons[why] = (total.splits.reasons[why] || 0) + n;
        total.splits.moved += s.splits.moved_tokens || 0;
        add(total.splits.prefill, s.splits.prefill);
        add(total.splits.move, s.splits.move);
      }
      total.flight = 0;
      for (const [name, p] of Object.entries(s.models)) {
        if (model && name !== model) continue;
        total.hit += p.hit_tokens || 0;
        total.prompt += p.prompt_tokens || 0;
        total.flight += p.in_flight || 0;
        for (const t of times.slice(0, 4)) add(total[t], p[t]);
        (p.first_tokens || []).forEach((n, i) => { total.tokens[i] += n; });
        for (const [c, n] of Object.entries(p.decisions || {})) total.decisions[c] = (total.decisions[c] || 0) + n;
      }
    }
    return total;
  }

  // last returns the samples of the seconds before the router's time now.
  last(seconds, now) { return this.samples.filter((s) => s.at > now - seconds); }

  // bins returns the sums of equal spans of time, in their order, null for one without a sample.
  bins(model) {
    if (!this.samples.length) return [];
    const from = this.samples[0].at, width = this.samples.at(-1).at - from > 1200 ? 60 : 15;
    const by = Map.groupBy(this.samples, (s) => Math.floor(s.at / width)), out = [];
    for (let i = Math.floor(from / width); i <= Math.floor(this.samples.at(-1).at / width); i++) {
      out.push({ at: (i + 0.5) * width, sum: by.has(i) ? this.sum(by.get(i), model) : null });
    }
    return out;
  }

  // quantile estimates a share q of the first tokens' times, within vLLM's buckets.
  quantile(tokens, q) {
    const all = tokens.reduce((a, b) => a + b, 0);
    let before = 0;
    for (let i = 0; all > 0 && i < tokens.length; i++) {
      if (before + tokens[i] >= q * all && tokens[i] > 0) {
        const low = i ? this.bounds[i - 1] : 0, high = this.bounds[i] ?? low;
        return low + (high - low) * (q * all - before) / tokens[i];
      }
      before += tokens[i];
    }
    return null;
  }

  // total adds up what was saved since the start, of a model or of all.
  total(model) {
    const of = Object.entries(this.totals).filter(([name]) => !model || name === model).map(([, t]) => t);
    const saved = of.filter((t) => t.saved_prefill_seconds !== undefined);
    return { tokens: of.reduce((a, t) => a + t.hit_tokens, 0), seconds: saved.length ? saved.reduce((a, t) => a + t.saved_prefill_seconds, 0) : null };
  }
}

// mean divides a sum of times once.
export const mean = (spent) => spent.requests > 0 ? spent.seconds / spent.requests : null;
export const share = (part, whole) => whole > 0 ? part / whole : null;

// classes are those of decisions, from the best, with a word for each.
export const classes = [["warm", "warm"], ["moved", "moved by load"], ["cold", "cold"], ["withheld", "hint withheld"], ["passed", "no hint due"], ["failed", "no hint, failed"]];
