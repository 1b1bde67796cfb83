import type { DescEnum } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";

export function bytes(n: number | bigint): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Number(n);
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

export function count(n: number | bigint): string {
  return n.toLocaleString("en-US");
}

/** A number a second. */
export function rate(perSecond: number | undefined): string {
  if (perSecond === undefined) return "–";
  return perSecond >= 100 || Number.isInteger(perSecond) ? count(Math.round(perSecond)) : perSecond.toFixed(1);
}

/** How long something takes. */
export function seconds(s: number | undefined): string {
  if (s === undefined || !Number.isFinite(s)) return "–";
  if (s === 0) return "0 s";
  if (s < 0.01) return `${(s * 1000).toFixed(1)} ms`;
  if (s < 1) return `${(s * 1000).toFixed(0)} ms`;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.round(s / 86400)} days`;
}

export function date(t: Timestamp | undefined): Date | undefined {
  return t && timestampDate(t);
}

/** A time to the second, in UTC, as the log has it. */
export function time(at: Date | undefined): string {
  return at === undefined ? "–" : at.toISOString().slice(0, 19).replace("T", " ");
}

/** How long ago something was. */
export function ago(at: Date, now = Date.now()): string {
  const s = Math.max(0, (now - at.getTime()) / 1000);
  if (s < 2) return "just now";
  if (s < 60) return `${Math.round(s)} s ago`;
  if (s < 3600) return `${Math.round(s / 60)} min ago`;
  if (s < 48 * 3600) return `${Math.round(s / 3600)} h ago`;
  return s < 730 * 86400 ? `${Math.round(s / 86400)} days ago` : `${Math.round(s / 31_557_600)} years ago`;
}

/** A value of an enum for people: "catching up" of PROJECTION_STATE_CATCHING_UP. */
export function words(of: DescEnum, value: number): string {
  return name(of, value).toLowerCase().replaceAll("_", " ");
}

/** A value of an enum without the prefix that all its values have. */
export function name(of: DescEnum, value: number): string {
  const found = of.value[value]?.name ?? `${value}`;
  const prefix = (of.sharedPrefix ?? "").toUpperCase();
  return found.startsWith(prefix) ? found.slice(prefix.length) : found;
}

export function plural(n: number | bigint, one: string, more = `${one}s`): string {
  return `${count(n)} ${Number(n) === 1 ? one : more}`;
}
