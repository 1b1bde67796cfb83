import { computed, signal } from "@preact/signals";

/**
 * For how long an answer counts as the present state. The page must show nothing as good when the last answer is older than five seconds;
 * the rest of the five is for the clock, which moves twice a second, and for drawing.
 */
const freshForMs = 4_000;

/** The time, as far as the page has noticed. */
const clock = signal(Date.now());

const updateClock = () => (clock.value = Date.now());
setInterval(updateClock, 500);
// In a page that is hidden, the clock may stand still for minutes.
document.addEventListener("visibilitychange", updateClock);

/** When the service answered last, whatever it was asked; 0: it has not answered yet. */
const lastAnswer = signal(0);

/** When a call found that there is no connection, and no call was answered since. */
const lostAt = signal<number>();

/** Notes that the service has just answered a call. */
export function noteAnswer(): void {
  lastAnswer.value = Date.now();
  lostAt.value = undefined;
}

/** Notes that a call could not reach the service. */
export function noteLostConnection(): void {
  lostAt.value ??= Date.now();
}

/** Reports whether an answer that came at a time, in milliseconds, still tells the present state. A component that asks is drawn again. */
export function isFresh(at: number): boolean {
  // A clock that was set back makes answers of the future, of which nobody knows how old they are.
  return Math.abs(clock.value - at) < freshForMs;
}

/** Since when the service does not answer, in milliseconds; undefined while it does, 0 before its first answer. */
export const silentSince = computed(() => lostAt.value ?? (isFresh(lastAnswer.value) ? undefined : lastAnswer.value));
