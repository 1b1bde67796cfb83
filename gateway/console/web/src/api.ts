import { Code, ConnectError } from "@connectrpc/connect";
import { signal } from "@preact/signals";
import { Session, Skein, failure } from "@skein-feed/client";

/** Where the API is: the page is one level below it. */
export const root = new URL("..", document.baseURI).href.replace(/\/$/, "");

/** The token of the caller. It is kept in memory alone: a reload of the page forgets it. */
export const token = signal("");

/** Whether the service wants a token, or another one. */
export const wanted = signal(false);

/** Since when the service does not answer; undefined while it does. */
export const lost = signal<Date>();

/** A session that demands no position: the console shows how things are, also where a store is behind. */
class Undemanding extends Session {
  override note(): void {}
}

export const skein = new Skein({ baseUrl: root, token: () => token.value, timeoutMs: 15_000 }, new Undemanding());

/** Notes what the outcome of a call says about the service, and returns or throws it. */
export async function observed<T>(call: Promise<T>): Promise<T> {
  try {
    const answer = await call;
    lost.value = undefined;
    return answer;
  } catch (err) {
    note(err);
    throw err;
  }
}

function note(err: unknown): void {
  const why = failure(err);
  if (why !== undefined) {
    lost.value = undefined;
    if (why.code === Code.Unauthenticated) wanted.value = true;
  } else if (isLost(err)) {
    lost.value ??= new Date();
  }
}

/** Reports whether a call got no answer of the service: the connection broke, or something in between answered. */
function isLost(err: unknown): boolean {
  if (err instanceof ConnectError) return ![Code.Canceled, Code.DeadlineExceeded, Code.Unauthenticated, Code.PermissionDenied].includes(err.code);
  return err instanceof TypeError; // of fetch
}

/** Tries a token. Returns why the service does not know it; empty: it does, and each screen says what the token may not. */
export async function enter(text: string): Promise<string> {
  token.value = text;
  try {
    await observed(skein.admin.getStatus({ pageSize: 1 }));
  } catch (err) {
    if (failure(err)?.code !== Code.PermissionDenied) {
      token.value = "";
      return explain(err).text;
    }
  }
  wanted.value = false;
  return "";
}

export function leave(): void {
  token.value = "";
  wanted.value = true;
}

/** Asks whether the process answers at all. Nobody needs a token for that. */
export async function alive(signal: AbortSignal): Promise<void> {
  const answer = await fetch(`${root}/healthz`, { signal });
  if (!answer.ok) throw new ConnectError(`/healthz: ${answer.status} ${answer.statusText}`, Code.Unavailable);
}

/** Returns the text of /metrics. */
export async function metricsText(signal: AbortSignal): Promise<string> {
  const headers: HeadersInit = token.value ? { Authorization: `Bearer ${token.value}` } : {};
  const answer = await fetch(`${root}/metrics`, { headers, signal });
  if (answer.ok) return answer.text();
  // A screen asks for metrics and calls a method at once: whichever is refused first must show that a token is wanted.
  if (answer.status === 401) wanted.value = true;
  const code = { 401: Code.Unauthenticated, 403: Code.PermissionDenied }[answer.status] ?? Code.Unknown;
  throw new ConnectError(`/metrics: ${answer.status} ${answer.statusText}`, code);
}

/** Says what went wrong, and the reason for programs where the service gave one. */
export function explain(err: unknown): { text: string; reason?: string } {
  const why = failure(err);
  if (why !== undefined) {
    const fields = why.violations.map((v) => `${v.field}: ${v.description}`);
    return { text: [why.message, ...fields.filter((f) => !why.message.includes(f))].join("; "), reason: why.reason };
  }
  if (isLost(err)) return { text: `The service does not answer: ${ConnectError.from(err).rawMessage}.` };
  return { text: err instanceof Error ? err.message : String(err) };
}
