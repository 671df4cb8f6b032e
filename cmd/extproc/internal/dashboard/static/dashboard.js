// The operator's page: reads the router's own JSON pages once a second or so and
// shows them. Everything from outside is set as text, never as markup.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const number = (v, digits = 0) => v === undefined || v === null ? "–" : v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const percent = (v) => v === undefined || v === null ? "–" : number(100 * v, 1) + " %";
  const seconds = (v) => v === undefined || v === null ? "–" : v < 1 ? number(1000 * v, v < 0.01 ? 2 : 0) + " ms" : number(v, 2) + " s";
  const first = (d) => (d.chosen || "").split(",")[0]; // of the ranked list
  let model = "", chosen = null, history = [];

  // The admin token stays in this tab's storage, and goes to this router alone.
  const token = () => sessionStorage.getItem("token");
  const get = async (path) => {
    const answer = await fetch(path, { cache: "no-store", headers: token() ? { Authorization: "Bearer " + token() } : {} });
    if (answer.status === 401) {
      $("token-wrong").hidden = !token();
      sessionStorage.removeItem("token");
      $("unlock").hidden = false;
      throw new Error("the admin token is needed");
    }
    if (!answer.ok && answer.status !== 503) throw new Error(path + ": " + answer.status);
    return answer;
  };

  // rows replaces a table's rows; a cell is a text, or [text, class].
  const rows = (table, list, each) => {
    const body = document.createDocumentFragment();
    for (const item of list) {
      const tr = document.createElement("tr");
      for (const cell of each(item, tr)) {
        const td = document.createElement("td");
        const [text, name] = Array.isArray(cell) ? cell : [cell, ""];
        td.textContent = text;
        td.className = name;
        tr.append(td);
      }
      body.append(tr);
    }
    $(table).tBodies[0].replaceChildren(body);
  };

  const options = (select, values, all) => {
    const kept = select.value;
    const wanted = [["", all], ...values.map((v) => [v, v])];
    if (wanted.length === select.options.length && wanted.every(([v], i) => select.options[i].value === v)) return;
    select.replaceChildren(...wanted.map(([value, text]) => new Option(text, value)));
    select.value = values.includes(kept) ? kept : "";
  };

  const charts = {};
  const chart = (id, times, lines, color, least) => {
    const target = $(id), data = [times, lines];
    const width = Math.max(200, target.clientWidth);
    if (!charts[id]) {
      const dim = getComputedStyle(document.documentElement).getPropertyValue("--dim");
      const line = getComputedStyle(document.documentElement).getPropertyValue("--line");
      const axis = { stroke: dim, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
      charts[id] = new uPlot({ width, height: 170, legend: { show: false }, cursor: { y: false },
        // From 0, and of time at least ten minutes, so that few samples do not look like much.
        scales: { x: { range: (u, min, max) => [Math.min(min ?? Infinity, Date.now() / 1000 - 600), Math.max(max ?? 0, Date.now() / 1000)] },
          y: { range: (u, min, max) => [0, id === "chart-hit" ? 1 : Math.max((max || 0) * 1.1, least)] } },
        axes: [{ ...axis }, { ...axis, size: 56 }],
        series: [{}, { stroke: color, width: 1.5, spanGaps: true, points: { show: false } }] }, data, target);
      return;
    }
    if (charts[id].width !== width) charts[id].setSize({ width, height: 170 });
    charts[id].setData(data);
  };

  // of sums or averages the models asked for at one sample.
  const of = (sample, field, mean) => {
    const points = model ? [sample.models[model]] : Object.values(sample.models);
    const values = points.filter((p) => p && p[field] !== undefined).map((p) => p[field]);
    if (!values.length) return null;
    const sum = values.reduce((a, b) => a + b, 0);
    return mean ? sum / values.length : sum;
  };

  const showHistory = () => {
    const times = history.map((s) => Date.parse(s.at) / 1000);
    const hit = history.map((s) => of(s, "hit_rate", true)), ttft = history.map((s) => of(s, "ttft_seconds", true));
    const flight = history.map((s) => of(s, "in_flight", false));
    chart("chart-hit", times, hit, "#12805c", 1);
    chart("chart-ttft", times, ttft, "#2563eb", 0.1);
    chart("chart-flight", times, flight, "#b54708", 4);
    const recent = (list) => { const l = list.slice(-60).filter((v) => v !== null); return l.length ? l.reduce((a, b) => a + b, 0) / l.length : null; };
    $("tile-hit").textContent = percent(recent(hit));
    $("tile-ttft").textContent = seconds(recent(ttft));
    $("tile-flight").textContent = number(flight.at(-1));
  };

  const showFleet = (replicas) => {
    const served = [...new Set(replicas.flatMap((r) => r.models))].sort();
    options($("model"), served, "all");
    const mine = replicas.filter((r) => !model || r.models.includes(model));
    $("tile-ready").textContent = mine.filter((r) => r.ready).length + " of " + mine.length;
    const sum = (r, field) => r.ranks.reduce((a, k) => a + (k[field] || 0), 0);
    rows("fleet", mine, (r) => {
      const events = r.ranks.map((k) => k.events).filter(Boolean);
      const lost = events.some((e) => !e.connected && !e.Connected);
      const paused = events.some((e) => e.paused || e.Paused);
      const state = !r.ready ? [r.why || "not ready", "bad"] : r.cached_tokens.suspect ? ["suspect", "bad"] : paused ? ["events refused", "bad"] : lost ? ["no events", "bad"] : ["ready", "good"];
      const behind = events.length ? (r.synced ? "0" : "catching up") : r.no_events || "none";
      return [r.name ? r.name + " (" + r.address + ")" : r.address, state, [number(sum(r, "blocks")), "n"], [percent(Math.max(0, ...r.ranks.map((k) => k.kv_usage_reported || 0))), "n"],
        [number(sum(r, "in_flight")), "n"], [seconds(sum(r, "pending_prefill_seconds")), "n"], [number(sum(r, "waiting_reported")), "n"], [behind, "n"],
        [number(r.cached_tokens.predicted), "n"], [percent(r.cached_tokens.shortfall), "n"]];
    });
  };

  const showCandidates = (d) => {
    $("detail").hidden = !d;
    if (!d) return;
    $("detail-id").textContent = [d.reason, d.model, d.id].filter(Boolean).join(" · ");
    rows("candidates", d.candidates || [], (c, tr) => {
      const s = c.state, v = c.score;
      if (c.replica === first(d)) tr.className = "chosen";
      return [c.replica + (c.rank ? " rank " + c.rank : ""), [number(s.matched_tokens), "n"], [number(s.reported_tokens), "n"], [number(s.in_flight), "n"], [number(s.awaiting), "n"],
        [seconds(s.pending_seconds), "n"], [number(s.speed, 2), "n"], [seconds(v.cost), "n"], String(v.verdict ?? "")];
    });
  };

  const showDecisions = (all) => {
    options($("find-reason"), [...new Set([...all.map((d) => d.reason), $("find-reason").value])].filter(Boolean).sort(), "all");
    const list = all.filter((d) => !model || d.model === model);
    const hinted = list.filter((d) => d.chosen).length;
    $("tile-hinted").textContent = list.length ? percent(hinted / list.length) : "–";
    rows("decisions", list.slice(0, 50), (d, tr) => {
      tr.tabIndex = 0;
      tr.dataset.seq = d.seq;
      const open = () => { chosen = d; showCandidates(d); $("detail").scrollIntoView({ block: "nearest" }); };
      tr.addEventListener("click", open);
      tr.addEventListener("keydown", (e) => { if (e.key === "Enter") open(); });
      if (chosen && chosen.seq === d.seq) tr.className = "chosen";
      const best = (d.candidates || []).find((c) => c.replica === first(d));
      return [new Date(d.at).toLocaleTimeString("en", { hour12: false }), [d.reason, d.chosen ? "good" : "dim"], d.model || "", first(d) || "–", [number(d.prompt_tokens), "n"],
        [number(d.predicted_cached_tokens), "n"], [seconds(best && best.score.cost), "n"], [seconds(d.took_ns / 1e9), "n"], d.id || ""];
    });
  };

  const decisions = async () => {
    const id = $("find-id").value.trim(), reason = $("find-reason").value;
    const q = new URLSearchParams({ n: "200" });
    if (id) q.set("id", id);
    if (reason) q.set("reason", reason);
    const found = (await (await get("/debug/explain?" + q)).json()).decisions || [];
    showDecisions(found);
    if (id && found.length === 1) { chosen = found[0]; showCandidates(chosen); }
  };

  const state = async () => {
    const answer = await get("/readyz");
    const [first, ...notes] = (await answer.text()).trim().split("\n");
    $("state").textContent = first;
    $("state").className = answer.ok ? "good" : "bad";
    $("notes").hidden = !notes.length;
    $("notes").replaceChildren(...notes.map((n) => { const li = document.createElement("li"); li.textContent = n.replace(/^note: /, ""); return li; }));
  };

  const parts = [
    [state, 2], [decisions, 1],
    [async () => showFleet((await (await get("/debug/replicas")).json()).replicas || []), 2],
    [async () => { history = (await (await get("/debug/history")).json()).samples || []; showHistory(); }, 5],
  ];
  let round = 0, busy = false;
  const turn = async () => {
    if (busy || document.hidden || !$("unlock").hidden) return;
    busy = true;
    try {
      for (const [part, every] of parts) if (round % every === 0 && (part !== decisions || $("live").checked)) await part();
      document.body.dataset.updates = ++round;
    } catch (e) {
      $("state").textContent = $("unlock").hidden ? "the router does not answer" : e.message;
      $("state").className = "bad";
    } finally { busy = false; }
  };
  $("unlock").addEventListener("submit", (e) => {
    e.preventDefault();
    sessionStorage.setItem("token", $("token").value.trim());
    $("token").value = "";
    $("unlock").hidden = true;
    round = 0;
    turn();
  });
  $("find").addEventListener("submit", (e) => { e.preventDefault(); decisions(); });
  $("find-id").addEventListener("input", () => decisions());
  $("find-reason").addEventListener("change", () => decisions());
  $("model").addEventListener("change", () => { model = $("model").value; round = 0; turn(); });
  addEventListener("resize", showHistory);
  turn();
  setInterval(turn, 1000);
})();
