// The charts. They share a cursor: the values of all are those of one moment.
import { clock } from "./format.js";
/* global uPlot */

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const shown = {};

// alone returns the points that have no neighbour, which a line would not show.
const alone = (u, i, show, gaps) => {
  if (show || !gaps) return null;
  const v = u.data[i];
  return [...v.keys()].filter((k) => v[k] != null && v[k - 1] == null && v[k + 1] == null);
};

// chart draws lines, each {label, color, values, width?}; stacked draws them as bars on top of each other, the first at the bottom.
export const chart = (id, times, lines, { value, least, most, stacked } = {}) => {
  const target = document.getElementById(id), width = Math.max(200, target.clientWidth);
  const order = stacked ? [...lines].reverse() : lines; // the highest sums are drawn first, the lower ones over them
  const drawn = order.map((l, i) => stacked ? l.values.map((v, k) => v === null ? null : order.slice(i).reduce((a, o) => a + o.values[k], 0)) : l.values);
  const kind = [color("text"), ...order.map((l) => l.label)].join();
  if (shown[id]?.kind !== kind) {
    shown[id]?.plot.destroy();
    const chart = shown[id] = { kind };
    const axis = { stroke: color("dim"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 }, font: "12px system-ui" };
    chart.plot = new uPlot({
      width, height: 170, cursor: { y: false, sync: { key: "time" }, drag: { x: false, y: false } }, legend: { live: true },
      tzDate: (ts) => { const d = clock.date(1000 * ts); return new Date(d.getTime() + 60000 * d.getTimezoneOffset()); },
      // From 0, and of time at least ten minutes, so that few samples do not look like much.
      scales: { x: { range: (u, min, max) => { const now = clock.now() / 1000; return [Math.min(min ?? now, now - 600), Math.max(max ?? 0, now)]; } },
        y: { range: (u, min, max) => [0, most ?? Math.max((max || 0) * 1.1, least)] } },
      axes: [{ ...axis, space: 60, size: 30, values: (u, at) => at.map((t) => clock.time(1000 * t).slice(0, 5)) }, { ...axis, size: 64, values: (u, at) => at.map((v) => value(v, true)) }],
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
  shown[id].values = order.map((l) => l.values);
  if (plot.width !== width) plot.setSize({ width, height: 170 });
  plot.setData([times, ...drawn]);
};
