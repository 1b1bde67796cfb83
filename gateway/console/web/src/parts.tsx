import { effect, signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { explain, leave, wanted } from "./api.js";
import { ago, count, time } from "./format.js";
import { isFresh } from "./freshness.js";
import { useLacks } from "./lacks.js";
import type { Role } from "./roles.js";
import { route, to } from "./route.js";

export function Panel(props: { title: string; side?: ComponentChildren; children?: ComponentChildren; class?: string }) {
  return (
    <section class={`panel ${props.class ?? ""}`}>
      <header>
        <h2>{props.title}</h2>
        {props.side && <div class="side">{props.side}</div>}
      </header>
      {props.children}
    </section>
  );
}

/** Why a call failed. */
export function Failed({ error }: { error: unknown }) {
  if (error === undefined) return null;
  const { text, reason } = explain(error);
  return (
    <p class="failed" role="alert">
      {reason && <code>{reason}</code>} {text}
    </p>
  );
}

export type Tone = "good" | "busy" | "bad" | "dim";

/** A state in a word, with a dot of a color. */
export function State({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`state ${tone}`}>{children}</span>;
}

export function Bar({ label, part }: { label: string; part: number | undefined }) {
  return <progress aria-label={label} max={1} {...(part === undefined ? {} : { value: Math.min(1, part) })} />;
}

/** A user, whose screen is one click away. */
export function User({ id }: { id: string }) {
  return (
    <a class="id" href={to("user", { id })}>
      {id}
    </a>
  );
}

export function When({ at }: { at: Date | undefined }) {
  if (at === undefined) return <span class="dim">–</span>;
  return (
    <time class="when" dateTime={at.toISOString()}>
      <span>{time(at)} UTC</span> <small>{ago(at)}</small>
    </time>
  );
}

/** What an answer said that came at a time. When it is too old to tell the present state, nothing in it is shown as good. */
export function AsOf({ at, children }: { at: number; children: ComponentChildren }) {
  const fresh = isFresh(at);
  return (
    <div class={fresh ? "" : "stale"}>
      {!fresh && (
        <p class="failed" role="alert">
          The present state is not known. What is shown here is of {time(new Date(at))} UTC.
        </p>
      )}
      {children}
    </div>
  );
}

/** Says that the token lacks a role. */
export function Lacking({ role, what }: { role: Role; what: string }) {
  return (
    <p class="failed">
      {what} needs the role <code>{role}</code>, which your token does not have.{" "}
      <button type="button" class="quiet" onClick={leave}>
        Use another token
      </button>
    </p>
  );
}

/** Shows something that needs a role, or says so. */
export function NeedsRole({ role, what, children }: { role: Role; what: string; children: ComponentChildren }) {
  if (!useLacks(role)) return <>{children}</>;
  return (
    <Panel title={what}>
      <Lacking role={role} what="This screen" />
    </Panel>
  );
}

/** A cell of a table. On a narrow screen each row is a block of lines, and the label stands before the value. */
export function TableCell({ label, class: of = "", children }: { label: string; class?: string; children?: ComponentChildren }) {
  return (
    <td class={of} data-label={label}>
      {children}
    </td>
  );
}

/** Figures in a row, each with its name. */
export function Strip({ of }: { of: [what: string, value: ComponentChildren, note?: string | undefined][] }) {
  return (
    <dl class="strip">
      {of.map(([what, value, note]) => (
        <div key={what}>
          <dt>{what}</dt>
          <dd>
            {typeof value === "number" || typeof value === "bigint" ? count(value) : value}
            {note && <small>{note}</small>}
          </dd>
        </div>
      ))}
    </dl>
  );
}

interface FieldProps extends Omit<JSX.IntrinsicElements["input"], "label" | "onInput"> {
  label: string;
  value: string;
  set: (value: string) => void;
}

/** A line of text with its label. */
export function Field({ label, set, value, ...input }: FieldProps) {
  return (
    <label>
      {label}
      <input autocomplete="off" spellcheck={false} {...(input as object)} value={value} onInput={(e) => set(e.currentTarget.value)} />
    </label>
  );
}

export function Check({ label, value, set }: { label: string; value: boolean; set: (value: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(e) => set(e.currentTarget.checked)} /> {label}
    </label>
  );
}

export function Choice(props: { label: string; value: string; of: [value: string, text: string][]; set: (value: string) => void }) {
  return (
    <label>
      {props.label}
      <select value={props.value} onChange={(e) => props.set(e.currentTarget.value)}>
        {props.of.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A form whose fields stand in a row. It never leaves the page. */
export function Form(props: { label: string; submit: () => void; children: ComponentChildren }) {
  const submit = (e: Event) => {
    e.preventDefault();
    props.submit();
  };
  return (
    <form class="row" aria-label={props.label} onSubmit={submit}>
      {props.children}
    </form>
  );
}

export function Copy({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  if (navigator.clipboard === undefined) return null; // browsers have it on https and loopback alone
  return (
    <button type="button" class="quiet" onClick={copy}>
      {done ? "Copied" : `Copy ${what}`}
    </button>
  );
}

interface Question {
  title: string;
  text: string;
  verb: string;
  act: () => void;
}

const asked = signal<Question>();

// A question belongs to the screen that asked it. On another one, and before the form for a token, nobody would know what it is about.
effect(() => {
  void route.value;
  void wanted.value;
  asked.value = undefined;
});

/** Has the reader confirm something before it is done. */
export function confirmed(question: Question): void {
  asked.value = question;
}

/** The dialog of [confirmed]. It stands once in the page. */
export function Confirmation() {
  const dialog = useRef<HTMLDialogElement>(null);
  const question = asked.value;
  useEffect(() => {
    if (question) dialog.current?.showModal();
  }, [question]);
  if (question === undefined) return null;
  const close = () => dialog.current?.close(); // which gives the focus back
  const act = () => {
    close();
    question.act();
  };
  return (
    <dialog ref={dialog} onClose={() => (asked.value = undefined)} aria-labelledby="question">
      <article>
        <h2 id="question">{question.title}</h2>
        <p>{question.text}</p>
        <footer>
          <button type="button" class="secondary" onClick={close}>
            Cancel
          </button>{" "}
          <button type="button" onClick={act}>
            {question.verb}
          </button>
        </footer>
      </article>
    </dialog>
  );
}

/** The button under a list that has more. */
export function ReadOn({ more }: { more: (() => void) | undefined }) {
  if (!more) return null;
  return (
    <button type="button" class="quiet" onClick={more}>
      Read on
    </button>
  );
}
