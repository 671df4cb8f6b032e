// Numbers, times and texts as people read them. "–" stands for a value that is not known.
const known = (v) => v !== undefined && v !== null && !Number.isNaN(v);

export const number = (v, digits = 0) => known(v) ? v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) : "–";
export const percent = (v) => known(v) ? number(100 * v, 1) + " %" : "–";
export const seconds = (v) => !known(v) ? "–" : v === 0 ? "0 ms" : v < 1 ? number(1000 * v, v < 0.01 ? 2 : 0) + " ms" : number(v, 2) + " s";
export const rate = (v) => known(v) ? number(v, v < 10 ? 2 : 0) + " /s" : "–";

// large shortens a number of tokens.
export const large = (v) => {
  if (!known(v)) return "–";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (v >= size) return number(v / size, v < 100 * size ? 1 : 0) + " " + unit;
  return number(v);
};

// span is a time of seconds to days, in its two largest units.
export const span = (v) => {
  if (!known(v)) return "–";
  if (v < 60) return number(v, v < 10 ? 1 : 0) + " s";
  for (const [name, size, part, of] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    if (v >= size) return Math.floor(v / size) + " " + name + " " + Math.floor(v % size / of) + " " + part;
  }
};

// cut bounds a text from outside.
export const cut = (text, most = 200) => {
  const all = String(text ?? "");
  return all.length > most ? all.slice(0, most) + "…" : all;
};

export const plural = (n, one, many) => n === 1 ? "1 " + one : n + " " + many;

// clock is the router's: its time now, and its offset from UTC, which every time on the
// page is shown in.
export const clock = {
  offset: 0, // minutes
  ahead: 0, // ms that the router's clock is ahead of performance.now()
  set(now) {
    this.ahead = Date.parse(now) - performance.now();
    const zone = /([+-])(\d\d):(\d\d)$/.exec(now);
    this.offset = zone ? (zone[1] + "1") * (60 * zone[2] + +zone[3]) : 0;
  },
  now() { return this.ahead + performance.now(); }, // ms
  zone() {
    const m = Math.abs(this.offset), two = (n) => String(n).padStart(2, "0");
    return "UTC" + (m ? (this.offset < 0 ? "−" : "+") + two(Math.floor(m / 60)) + ":" + two(m % 60) : "");
  },
  // date returns a Date whose fields in UTC are those of the router's clock.
  date(ms) { return new Date(ms + 60000 * this.offset); },
  time(ms) { return this.date(ms).toISOString().slice(11, 19); },
  // since names the day only if it is not today.
  since(ms) { return this.day(ms).slice(this.day(ms).slice(0, 10) === this.day(this.now()).slice(0, 10) ? 11 : 0, 16); },
  day(ms) { return this.date(ms).toISOString().slice(0, 10) + " " + this.time(ms); },
};
