import { type DescMethod, type Message, fromJson, toJson } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel as Level } from "@bufbuild/protobuf/wkt";
import { AdminService, CounterService, EventService, FeedService, GraphService, NotificationService, SeenService } from "@skein-feed/client";
import { useState } from "preact/hooks";
import { root, skein, token } from "../api.js";
import { example } from "../example.js";
import { seconds } from "../format.js";
import { useLacks } from "../lacks.js";
import { Copy, Failed, Lacking, Panel, State, confirmed } from "../parts.js";
import { roleOf } from "../roles.js";
import { go, route } from "../route.js";
import { languages } from "../snippets.js";

const services = [FeedService, NotificationService, GraphService, SeenService, CounterService, EventService, AdminService];
const methods: DescMethod[] = services.flatMap((s) => s.methods);

/** What the console does with a method: the client makes every call of the same form. */
type Ask = (request: Message, options: { signal: AbortSignal }) => Promise<Message> & AsyncIterable<Message>;

function asker(method: DescMethod): Ask {
  const clients: Record<string, object> = {
    EventService: skein.events,
    GraphService: skein.graph,
    FeedService: skein.feed,
    NotificationService: skein.notifications,
    SeenService: skein.seen,
    CounterService: skein.counters,
    AdminService: skein.admin,
  };
  const client = clients[method.parent.name] as Record<string, Ask>;
  return client[method.localName]!;
}

function pathOf(m: DescMethod): string {
  return `${m.parent.name}/${m.name}`;
}

/** A form for every method of the API, made from its descriptor. */
export function Try() {
  const path = route.value.params.get("method") ?? "";
  const method = methods.find((m) => pathOf(m) === path) ?? methods[0]!;
  return (
    <>
      <Panel title="Try it" side={<code>{`/${method.parent.typeName}/${method.name}`}</code>}>
        <label>
          Method
          <select value={pathOf(method)} onChange={(e) => go("try", { method: e.currentTarget.value })}>
            {services.map((s) => (
              <optgroup key={s.name} label={s.name}>
                {s.methods.map((m) => (
                  <option key={m.name} value={pathOf(m)}>
                    {m.name}
                    {m.methodKind === "unary" ? "" : " (stream)"}
                  </option>
                ))}
              </optgroup>
            ))}
          </select>
        </label>
      </Panel>
      <Method key={pathOf(method)} of={method} />
    </>
  );
}

interface Answer {
  messages: string[];
  error?: unknown;
  took?: number;
}

const shown = 50;

function Method({ of: method }: { of: DescMethod }) {
  const [json, setJson] = useState(() => JSON.stringify(example(method.input), null, 2));
  const [answer, setAnswer] = useState<Answer>();
  const [stop, setStop] = useState<AbortController>();
  const send = async () => {
    const end = new AbortController();
    const began = performance.now();
    const messages: string[] = [];
    setStop(end);
    setAnswer({ messages });
    try {
      for await (const message of answers(method, json, end.signal)) {
        // Fields without a value are shown too: an empty feed has entries, and they are [].
        messages.unshift(JSON.stringify(toJson(method.output, message, { alwaysEmitImplicit: true }), null, 2));
        setAnswer({ messages: messages.slice(0, shown) });
      }
      setAnswer({ messages, took: performance.now() - began });
    } catch (error) {
      if (!end.signal.aborted) setAnswer({ messages, error, took: performance.now() - began });
    }
    setStop(undefined);
  };
  const changes = method.idempotency === Level.IDEMPOTENCY_UNKNOWN && method.methodKind === "unary";
  const submit = (e: Event) => {
    e.preventDefault();
    if (!changes) return void send();
    return confirmed({ title: `${method.name}?`, text: describeConsequence(method), verb: "Send", act: () => void send() });
  };
  const role = roleOf(method);
  const lacksRole = useLacks(role);
  return (
    <div class="columns">
      <Panel title="Request" side={changes && <State tone="busy">changes data</State>}>
        {lacksRole && <Lacking role={role} what={method.name} />}
        <form onSubmit={submit}>
          <label>
            <code>{method.input.typeName}</code> as JSON
            <textarea class="code" rows={14} spellcheck={false} value={json} onInput={(e) => setJson(e.currentTarget.value)} />
          </label>
          <button disabled={stop !== undefined || lacksRole}>Send</button>{" "}
          {stop && (
            <button type="button" class="secondary" onClick={() => stop.abort()}>
              Stop
            </button>
          )}
        </form>
        <Snippets method={method} json={json} />
      </Panel>
      <Panel title="Answer" side={answer?.took !== undefined && <span class="dim">{seconds(answer.took / 1000)}</span>}>
        <div aria-live="polite">
          <Failed error={answer?.error} />
          {answer === undefined && (
            <p class="dim">
              Send the request, and the answer appears here. The request is an example with users of the demo: change it as you like.
            </p>
          )}
          {answer?.messages.length ? <p class="dim">With every field: JSON over HTTP leaves out fields without a value, such as an empty list.</p> : null}
          {answer?.messages.map((m, i) => (
            <pre key={answer.messages.length - i}>{m}</pre>
          ))}
        </div>
      </Panel>
    </div>
  );
}

/** What a call does that changes something. */
function describeConsequence(method: DescMethod): string {
  switch (method) {
    case EventService.method.publish:
      return "Each event is a permanent fact. It is written to the log, where it stays, and changes feeds and counts at once. A later event may say the opposite, but removes nothing from the log.";
    case AdminService.method.eraseUser:
      return "The user's data are removed from the log, its archive and all stores. That cannot be undone.";
    case AdminService.method.acceptLogHole:
      return "The events of the hole are given up, and everything continues without them. That cannot be undone.";
  }
  return "This call changes what the service does or has.";
}

async function* answers(method: DescMethod, json: string, signal: AbortSignal): AsyncGenerator<Message> {
  const request = fromJson(method.input, JSON.parse(json));
  if (method.methodKind === "unary") yield await asker(method)(request, { signal });
  else yield* asker(method)(request, { signal });
}

function Snippets({ method, json }: { method: DescMethod; json: string }) {
  const [language, setLanguage] = useState("curl");
  let text: string;
  try {
    text = languages[language]!({ url: root, method, json, authorized: token.value !== "" });
  } catch (err) {
    text = `The request is not valid: ${err instanceof Error ? err.message : String(err)}`;
  }
  return (
    <div class="snippets">
      <div class="tabs" role="toolbar" aria-label="Language">
        {Object.keys(languages).map((l) => (
          <button key={l} type="button" class="quiet" aria-pressed={l === language} onClick={() => setLanguage(l)}>
            {l}
          </button>
        ))}
        <Copy text={text} what={`as ${language}`} />
      </div>
      <pre>{text}</pre>
    </div>
  );
}
