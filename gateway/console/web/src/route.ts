import { signal } from "@preact/signals";

/** What the address names after "#": a screen, and what it is about. */
export interface Route {
  screen: string;
  params: URLSearchParams;
}

function read(): Route {
  const [screen = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { screen: screen || "pipeline", params: new URLSearchParams(query) };
}

export const route = signal(read());
addEventListener("hashchange", () => (route.value = read()));

/** The address of a screen, as a link has it. Empty parameters are left out. */
export function to(screen: string, params: Record<string, string | boolean | undefined> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value) query.set(name, value === true ? "1" : value);
  return `#/${screen}${query.size > 0 ? `?${query}` : ""}`;
}

export function go(screen: string, params: Record<string, string | boolean | undefined> = {}): void {
  location.hash = to(screen, params);
}
