import "@picocss/pico/css/pico.min.css";
import "./style.css";
import { type ComponentType, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { alive, enter, isNode, leave, readStatus, token, wanted } from "./api.js";
import { time } from "./format.js";
import { silentSince } from "./freshness.js";
import { useAsked } from "./hooks.js";
import { Confirmation, Field, Form, NeedsRole } from "./parts.js";
import type { Role } from "./roles.js";
import { route, to } from "./route.js";
import { Cluster } from "./screens/cluster.js";
import { Events } from "./screens/events.js";
import { Hot } from "./screens/hot.js";
import { Operations } from "./screens/operations.js";
import { Phones } from "./screens/phones.js";
import { Pipeline } from "./screens/pipeline.js";
import { Try } from "./screens/try.js";
import { UserScreen } from "./screens/user.js";
import { Why } from "./screens/why.js";

/** The screens, by name in the address, as the menu shows them, and the role without which a screen shows nothing. */
const screens: Record<string, [title: string, screen: ComponentType, role?: Role]> = {
  pipeline: ["Pipeline", Pipeline],
  phones: ["Two phones", Phones, "read"],
  why: ["Why in my feed?", Why, "read"],
  user: ["User", UserScreen, "read"],
  operations: ["Operations", Operations, "admin"],
  cluster: ["Cluster", Cluster],
  events: ["Events", Events],
  try: ["Try it", Try],
  hot: ["Hot", Hot, "read"],
};

function App() {
  const current = route.value.screen in screens ? route.value.screen : "pipeline";
  const [title, Screen, role] = screens[current]!;
  const isSilent = silentSince.value !== undefined;
  useEffect(() => {
    document.title = `${title} · skein console`;
  }, [title]);
  // Only the status tells whether there is a cluster, and a service that comes back may be another one.
  useAsked(readStatus, 0, [isSilent, wanted.value]);
  const shown = Object.entries(screens).filter(([name]) => name !== "cluster" || isNode.value || current === "cluster");
  return (
    <div class={isSilent ? "stale" : ""}>
      <a class="skip" href="#main" onClick={skip}>
        Skip to content
      </a>
      <header class="top">
        <strong>skein</strong>
        <nav aria-label="Screens">
          {shown.map(([name, [text]]) => (
            <a key={name} href={to(name)} aria-current={name === current ? "page" : undefined}>
              {text}
            </a>
          ))}
        </nav>
        <Connection />
      </header>
      <main id="main" tabIndex={-1}>
        <h1 class="hidden">{title}</h1>
        {wanted.value ? (
          <Token />
        ) : role ? (
          <NeedsRole key={current} role={role} what={title}>
            <Screen />
          </NeedsRole>
        ) : (
          <Screen />
        )}
      </main>
      <Confirmation />
    </div>
  );
}

function skip(e: Event): void {
  e.preventDefault(); // the address is for screens
  document.getElementById("main")?.focus();
}

/** Whether the service answers. */
function Connection() {
  useAsked(alive, 2000, []);
  return (
    <div class="connection">
      <span role="status" aria-live="polite">
        <ConnectionState since={silentSince.value} />
      </span>
      {token.value && (
        <button type="button" class="quiet" onClick={leave}>
          Forget token
        </button>
      )}
    </div>
  );
}

function ConnectionState({ since }: { since: number | undefined }) {
  if (since === undefined) return <span class="state good">{location.host}</span>;
  if (since === 0) return <span class="state">Waiting for an answer</span>;
  return <span class="state bad">No answer since {time(new Date(since)).slice(11)} UTC</span>;
}

/** Asks for the token that the service wants. */
function Token() {
  const [text, setText] = useState("");
  const [answer, setAnswer] = useState("");
  const submit = async () => setAnswer(await enter(text.trim()));
  return (
    <section class="panel token">
      <h2>Who are you?</h2>
      <p>
        The service answers callers with a token: <code>skein token new --name ops --role admin,read,offline</code> makes one. This page keeps it in
        memory alone, and sends it to this service alone.
      </p>
      <Form label="Token" submit={submit}>
        <Field label="Token" type="password" value={text} set={setText} required />
        <button>Use it</button>
      </Form>
      <p class="failed" role="alert">
        {answer}
      </p>
    </section>
  );
}

render(<App />, document.getElementById("app")!);
