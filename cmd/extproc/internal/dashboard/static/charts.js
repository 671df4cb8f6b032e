// The charts. They share a cursor: the values of all are those of one moment.
import { clock, number } from "./format.js";
/* global uPlot */

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const shown = {};

// alone returns the points that have no neighbour, which a line would not show.
const alone = (u, i, show, gaps) => {
  if (show || !gaps) return null;
  const v = u.data[i];
  return [...v.keys()].filter((k) => v[k] != null && v[k - 1] == null && v[k + 1] == null);
};

// exact writes a number with the digits that a step between ticks needs, so that each tick says its own value.
const exact = (v, step) => { let digits = 0; while (digits < 6 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++; return number(v, digits); };
// ticks write the values of an axis, in percent, in times (all in one unit) or as numbers.
export const ticks = {
  percent: (at, step) => at.map((v) => exact(100 * v, 100 * step) + " %"),
  seconds: (at, step) => at.map((v) => at.at(-1) < 1 ? exact(1000 * v, 1000 * step) + " ms" : exact(v, step) + " s"),
  number: (at, step) => at.map((v) => exact(v, step)),
};

// chart draws lines, each {label, color, values, width?}; stacked draws them as bars on top of each other, the first at the bottom.
export const chart = (id, from, times, lines, { value, tick = ticks.number, least, most, stacked, whole } = {}) => {
  const target = document.getElementById(id), width = Math.max(200, target.clientWidth);
  const order = stacked ? [...lines].reverse() : lines; // the highest sums are drawn first, the lower ones over them
  const drawn = order.map((l, i) => stacked ? l.values.map((v, k) => v === null ? null : order.slice(i).reduce((a, o) => a + o.values[k], 0)) : l.values);
  const kind = [color("text"), ...order.map((l) => l.label)].join();
  if (shown[id]?.kind !== kind) {
    shown[id]?.plot.destroy();
    const chart = shown[id] = { kind, from };
    const axis = { stroke: color("dim"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 }, font: "12px system-ui" };
    chart.plot = new uPlot({
      width, height: 170, cursor: { y: false, sync: { key: "time" }, drag: { x: false, y: false } }, legend: { live: true },
      tzDate: (ts) => { const d = clock.date(1000 * ts); return new Date(d.getTime() + 60000 * d.getTimezoneOffset()); },
      // From 0, and in all charts from the first sample on, at least ten minutes, so that few samples do not look like much.
      scales: { x: { range: (u, min, max) => { const now = clock.now() / 1000, from = shown[id].from ?? now; return [from, Math.max(max ?? 0, now, from + 600)]; } },
        y: { range: (u, min, max) => [0, most ?? Math.max((max || 0) * 1.1, least)] } },
      axes: [{ ...axis, space: 60, size: 30, values: (u, at, i, space, step) => at.map((t) => clock.time(1000 * t).slice(0, step < 60 ? 8 : 5)) },
        { ...axis, size: 64, ...whole && { incrs: [1, 2, 5].flatMap((n) => [n, 10 * n, 100 * n, 1000 * n, 10000 * n]).sort((a, b) => a - b) }, values: (u, at, i, space, step) => tick(at, step) }],
      // Without a cursor the values are the latest.
      series: [{ label: "Time", value: (u, t) => clock.time(1000 * (t ?? u.data[0].at(-1))) }, ...order.map((l, i) => ({
        label: l.label, stroke: stacked ? undefined : color(l.color), fill: stacked ? color(l.color) : undefined, width: stacked ? 0 : l.width || 1.5, spanGaps: false,
        paths: stacked ? uPlot.paths.bars({ size: [0.96] }) : undefined, points: stacked ? { show: false } : { filter: alone, size: 4, fill: color(l.color), stroke: color(l.color) },
        value: (u, v, s, k) => value(chart.values[i].at(k ?? -1)),
      }))],
    }, [times, ...drawn], target);
    target.plot = chart.plot;
  }
  const { plot } = shown[id];
  shown[id].from = from;
  shown[id].values = order.map((l) => l.values);
  if (plot.width !== width) plot.setSize({ width, height: 170 });
  plot.setData([times, ...drawn]);
};
