import { useEffect, useRef, useState } from "preact/hooks";
import { token } from "./api.js";

export interface Asked<T> {
  /** The last answer; it stays while a later one is awaited, and when that fails. */
  value?: T | undefined;
  /** When that answer came, in milliseconds; 0: none did. */
  at: number;
  error?: unknown;
  busy: boolean;
}

/**
 * Asks at once, again whenever one of `of` changes, and then every `everyMs` while the page is visible (0 means once). An answer that
 * comes after `of` has changed is dropped.
 */
export function useAsked<T>(ask: (signal: AbortSignal) => Promise<T>, everyMs: number, of: unknown[]): Asked<T> & { again: () => void } {
  const [state, setState] = useState<Asked<T>>({ at: 0, busy: true });
  const [round, setRound] = useState(0);
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => setState({ at: 0, busy: true }), of);
  useEffect(() => {
    const end = new AbortController();
    let timer: number | undefined;
    const go = async () => {
      timer = undefined;
      if (!document.hidden || everyMs === 0) {
        setState((s) => ({ ...s, busy: true }));
        try {
          const value = await latest.current(end.signal);
          if (!end.signal.aborted) setState({ value, at: Date.now(), busy: false });
        } catch (error) {
          if (!end.signal.aborted) setState((s) => ({ value: s.value, at: s.at, error, busy: false }));
        }
      }
      if (everyMs > 0 && !end.signal.aborted) timer = window.setTimeout(go, everyMs);
    };
    // A page that is shown again does not wait for its timer.
    const wake = () => {
      if (document.hidden || timer === undefined) return;
      clearTimeout(timer);
      void go();
    };
    document.addEventListener("visibilitychange", wake);
    void go();
    return () => {
      document.removeEventListener("visibilitychange", wake);
      end.abort();
      clearTimeout(timer);
    };
  }, [everyMs, round, token.value, ...of]);
  return { ...state, again: () => setRound((n) => n + 1) };
}

/** A list that is read page by page. `page` returns the entries after a token, and the next token. */
export function usePaged<E>(page: (token: string, signal: AbortSignal) => Promise<{ entries: E[]; next: string; total?: number }>, of: unknown[]) {
  const [more, setMore] = useState<{ entries: E[]; next: string }>();
  const [error, setError] = useState<unknown>();
  const first = useAsked((signal) => page("", signal), 0, of);
  useEffect(() => {
    setMore(undefined);
    setError(undefined);
  }, [first.value, ...of]);
  const next = more?.next ?? first.value?.next ?? "";
  const readOn = async () => {
    const before = more?.entries ?? [];
    try {
      const p = await page(next, AbortSignal.timeout(15_000));
      setMore({ entries: [...before, ...p.entries], next: p.next });
    } catch (err) {
      setError(err);
    }
  };
  return {
    entries: first.value && [...first.value.entries, ...(more?.entries ?? [])],
    total: first.value?.total,
    error: error ?? first.error,
    at: first.at,
    busy: first.busy,
    more: next === "" ? undefined : readOn,
    again: first.again,
  };
}
