import "@picocss/pico/css/pico.min.css";
import "./style.css";
import { type ComponentType, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { alive, enter, leave, lost, token, wanted } from "./api.js";
import { ago } from "./format.js";
import { useAsked } from "./hooks.js";
import { Confirmation, Field, Form } from "./parts.js";
import { route, to } from "./route.js";
import { Cluster } from "./screens/cluster.js";
import { Events } from "./screens/events.js";
import { Hot } from "./screens/hot.js";
import { Operations } from "./screens/operations.js";
import { Pipeline } from "./screens/pipeline.js";
import { Try } from "./screens/try.js";
import { UserScreen } from "./screens/user.js";
import { Why } from "./screens/why.js";

/** The screens, by name in the address, as the menu shows them. */
const screens: Record<string, [title: string, screen: ComponentType]> = {
  pipeline: ["Pipeline", Pipeline],
  why: ["Why in my feed?", Why],
  user: ["User", UserScreen],
  operations: ["Operations", Operations],
  cluster: ["Cluster", Cluster],
  events: ["Events", Events],
  try: ["Try it", Try],
  hot: ["Hot", Hot],
};

function App() {
  const current = route.value.screen;
  const [title, Screen] = screens[current] ?? screens["pipeline"]!;
  useEffect(() => {
    document.title = `${title} · skein console`;
  }, [title]);
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to content
      </a>
      <header class="top">
        <strong>skein</strong>
        <nav aria-label="Screens">
          {Object.entries(screens).map(([name, [text]]) => (
            <a key={name} href={to(name)} aria-current={name === current ? "page" : undefined}>
              {text}
            </a>
          ))}
        </nav>
        <Connection />
      </header>
      <main id="main" tabIndex={-1}>
        <h1 class="hidden">{title}</h1>
        {wanted.value ? <Token /> : <Screen />}
      </main>
      <Confirmation />
    </>
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
    <div class="connection" role="status" aria-live="polite">
      {lost.value ? (
        <span class="state bad">No answer, since {ago(lost.value).replace(" ago", "")}</span>
      ) : (
        <span class="state good">{location.host}</span>
      )}
      {token.value && (
        <button type="button" class="quiet" onClick={leave}>
          Forget token
        </button>
      )}
    </div>
  );
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
