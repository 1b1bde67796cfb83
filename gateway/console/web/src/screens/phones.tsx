import { type Event, FollowKind, PublishWait, type Relationship, event } from "@skein-feed/client";
import { useEffect, useRef, useState } from "preact/hooks";
import { skein } from "../api.js";
import { DemoUsers } from "../examples.js";
import { date, plural } from "../format.js";
import { silentSince } from "../freshness.js";
import { useAsked } from "../hooks.js";
import { useLacks } from "../lacks.js";
import { Failed, Field, Form, Lacking, Panel, State, User, When, confirmed } from "../parts.js";
import { type Post, blockFact, followFact, pinFact, reactionFact, reactionNames, readPhone, repinFact } from "../phone.js";
import { go, route, to } from "../route.js";
import { EventTable, type NumberedEvent, watchEvents } from "./events.js";

/** How often a phone reads again what it shows, for the sake of users that neither phone has. */
const readEveryMs = 1_000;

/** For how many events there is room below the phones. */
const maxEvents = 50;

/** Publishes an event as one of the users. */
type Publish = (fact: Event) => void;

/** Two phones side by side, each with a user, and the events of both users. */
export function Phones() {
  const left = route.value.params.get("left") ?? "";
  const right = route.value.params.get("right") ?? "";
  return (
    <>
      <Ask key={`ask ${left} ${right}`} left={left} right={right} />
      {left && right ? <Pair key={`${left} ${right}`} left={left} right={right} /> : <Introduction />}
    </>
  );
}

function Introduction() {
  return (
    <Panel title="What this screen shows">
      <p>
        Name two users: each gets a phone with the feed of the user. Pin, react, re-pin, follow, block or hide on one of the phones, and watch the
        other one. The published events appear below.
      </p>
      <DemoUsers>
        <a href={to("phones", { left: "ada", right: "greta" })}>ada and greta</a>, <a href={to("phones", { left: "hugo", right: "zoe" })}>hugo and zoe</a>.
      </DemoUsers>
    </Panel>
  );
}

function Ask(props: { left: string; right: string }) {
  const [left, setLeft] = useState(props.left);
  const [right, setRight] = useState(props.right);
  return (
    <Panel title="Two phones">
      <Form label="Users of the phones" submit={() => go("phones", { left: left.trim(), right: right.trim() })}>
        <Field label="User of the left phone" value={left} set={setLeft} required autofocus={props.left === ""} />
        <Field label="User of the right phone" value={right} set={setRight} required />
        <button>Show</button>
      </Form>
    </Panel>
  );
}

function Pair({ left, right }: { left: string; right: string }) {
  const [events, setEvents] = useState<NumberedEvent[]>([]);
  const isAllowed = useRef(false);
  const lacksPublish = useLacks("publish");
  const shown = route.value.params.get("show") === "right" ? "right" : "left";

  // A question before each tap would make phones useless. But the facts are permanent, so the first tap asks.
  const allow = (act: () => void) => {
    if (isAllowed.current) return act();
    confirmed({
      title: "Publish with the buttons of these phones?",
      text: `Each button publishes an event as ${left} or ${right} at once. An event is a permanent fact: it is written to the log, where it stays. You are asked this once.`,
      verb: "Publish",
      act: () => {
        isAllowed.current = true;
        act();
      },
    });
  };

  const phone = { logPosition: events[0]?.position ?? "", isDisabled: lacksPublish, allow };
  return (
    <>
      {lacksPublish && <Lacking role="publish" what="To publish with these phones" />}
      <nav class="tabs switch" aria-label="Phones">
        <a href={to("phones", { left, right })} aria-current={shown === "left" ? "true" : undefined}>
          {left}
        </a>
        <a href={to("phones", { left, right, show: "right" })} aria-current={shown === "right" ? "true" : undefined}>
          {right}
        </a>
      </nav>
      <div class="phones">
        <Phone {...phone} id={left} other={right} isChosen={shown === "left"} />
        <Phone {...phone} id={right} other={left} isChosen={shown === "right"} />
      </div>
      <PublishedEvents users={[left, right]} of={events} add={(batch) => setEvents((before) => [...batch, ...before].slice(0, maxEvents))} />
    </>
  );
}

interface PhoneProps {
  id: string;
  other: string;
  /** The position of the newest event of one of the two users, as far as the log is watched. */
  logPosition: string;
  /** Whether this phone is the one that a narrow screen shows. */
  isChosen: boolean;
  isDisabled: boolean;
  /** Runs what publishes, once the reader of the page has allowed it. */
  allow: (act: () => void) => void;
}

function Phone({ id, other, logPosition, isChosen, isDisabled, allow }: PhoneProps) {
  const [failed, setFailed] = useState<unknown>();

  // What the phone shows is read each second, and at once when the log has an event of one of the two users or the phone has published. An
  // event that comes during a read does not abort that read, but another one follows. So a rush of events does not keep the phone from
  // showing anything.
  const [demanded, setDemanded] = useState("");
  const reading = useRef("");
  useEffect(() => setDemanded(logPosition), [logPosition]);
  const { value, error, busy, again } = useAsked(
    (signal) => {
      reading.current = demanded;
      return readPhone(id, other, demanded, signal);
    },
    readEveryMs,
    [id, other],
  );
  useEffect(() => {
    if (!busy && reading.current !== demanded) again();
  }, [busy, demanded]);

  const publish: Publish = (fact) =>
    allow(async () => {
      setFailed(undefined);
      try {
        const { position } = await skein.publish([fact], { wait: PublishWait.VISIBLE, retryForMs: 0 });
        setDemanded(position);
      } catch (err) {
        setFailed(err);
      }
    });

  return (
    <section class={`panel phone ${isChosen ? "chosen" : ""}`} aria-label={`Phone of ${id}`}>
      <header>
        <h2>
          <User id={id} />
        </h2>
        <a class="side" href={to("why", { reader: id, own: true })}>
          Why in this feed?
        </a>
      </header>
      {value?.relationship && <Other id={id} of={value.relationship} publish={publish} isDisabled={isDisabled} />}
      <NewPin id={id} publish={publish} isDisabled={isDisabled} />
      <Failed error={failed ?? error} />
      {value?.posts.length === 0 && <p class="dim">The feed is empty. The pins of {id} appear here, and those of users whom {id} follows.</p>}
      <ol class="posts" aria-label={`Feed of ${id}`}>
        {value?.posts.map((p) => (
          <PostItem key={`${p.pin.ownerId} ${p.pin.pinId}`} id={id} of={p} publish={publish} isDisabled={isDisabled} />
        ))}
      </ol>
      {value?.hidden.map(({ itemId }) => (
        <p key={itemId} class="hidden-item">
          <span class="dim">
            You hide <span class="id">{itemId}</span>.
          </span>{" "}
          <button type="button" class="quiet" disabled={isDisabled} onClick={() => publish(event("itemShown", { userId: id, itemId }))}>
            Show again
          </button>
        </p>
      ))}
    </section>
  );
}

/** The user of the other phone, as this phone sees that user. */
function Other({ id, of: r, publish, isDisabled }: { id: string; of: Relationship; publish: Publish; isDisabled: boolean }) {
  const follows = r.following !== FollowKind.NONE;
  return (
    <div class="other">
      <span>
        <User id={r.userId} /> <span class="dim">{r.blocking ? "is blocked" : r.followedBy !== FollowKind.NONE ? "follows you" : ""}</span>
      </span>
      <span class="acts">
        <button type="button" class="quiet" disabled={isDisabled || r.blocking} onClick={() => publish(followFact(id, r))}>
          {follows ? "Unfollow" : "Follow"}
        </button>
        <button type="button" class="quiet" disabled={isDisabled} onClick={() => publish(blockFact(id, r))}>
          {r.blocking ? "Unblock" : "Block"}
        </button>
      </span>
    </div>
  );
}

function NewPin({ id, publish, isDisabled }: { id: string; publish: Publish; isDisabled: boolean }) {
  const [text, setText] = useState("");
  const submit = () => {
    publish(pinFact(id, text));
    setText("");
  };
  return (
    <Form label={`New pin of ${id}`} submit={submit}>
      <Field label="What to pin" value={text} set={setText} required pattern=".*\S.*" maxLength={100} />
      <button disabled={isDisabled}>Pin</button>
    </Form>
  );
}

function PostItem({ id, of: post, publish, isDisabled }: { id: string; of: Post; publish: Publish; isDisabled: boolean }) {
  const { pin } = post;
  const isOwn = pin.ownerId === id;
  return (
    <li aria-label={`${pin.itemId} of ${pin.ownerId}`}>
      <div class="line">
        <User id={pin.ownerId} />
        <small>
          <When at={date(pin.createTime)} />
        </small>
      </div>
      <p>
        <strong class="id">{pin.itemId}</strong>
        {pin.repinOf && <small>re-pin of a pin of {pin.repinOf.ownerId}</small>}
      </p>
      <div class="acts">
        {post.reactions.map(({ kind, count, isOwn: on }) => (
          <button
            key={kind}
            type="button"
            class="quiet"
            aria-pressed={on}
            disabled={isDisabled}
            onClick={() => publish(reactionFact(id, post, kind))}
          >
            {reactionNames[kind]} {count}
          </button>
        ))}
        {isOwn ? (
          <span class="dim">{plural(post.repinCount, "re-pin")}</span>
        ) : (
          <>
            <button type="button" class="quiet" aria-pressed={post.isRepinned} disabled={isDisabled} onClick={() => publish(repinFact(id, post))}>
              Re-pin {post.repinCount}
            </button>
            <button
              type="button"
              class="quiet"
              disabled={isDisabled}
              onClick={() => publish(event("itemHidden", { userId: id, itemId: pin.itemId }))}
            >
              Hide
            </button>
          </>
        )}
      </div>
    </li>
  );
}

/** The events of the users, as the log has them. */
function PublishedEvents({ users, of, add }: { users: string[]; of: NumberedEvent[]; add: (batch: NumberedEvent[]) => void }) {
  const lacksRole = useLacks("offline");
  const [isConnected, setIsConnected] = useState(false);
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    if (lacksRole) return undefined;
    const end = new AbortController();
    setError(undefined);
    void watchEvents({ kinds: [], users, earliest: false }, end.signal, () => setIsConnected(true), add).catch(
      (err: unknown) => !end.signal.aborted && setError(err),
    );
    return () => end.abort();
  }, [lacksRole]);
  const isWatching = isConnected && silentSince.value === undefined;
  return (
    <Panel
      title="Published events"
      side={
        !lacksRole && (
          <State tone={error ? "bad" : isWatching ? "good" : "busy"}>
            <span role="status">{error ? "ended" : isWatching ? "watching" : "waits for the service"}</span>
          </State>
        )
      }
    >
      {lacksRole ? <Lacking role="offline" what="To watch the log" /> : <Failed error={error} />}
      {!lacksRole && of.length === 0 && (
        <p class="dim">The events of the two users appear here as they are published, with these phones or by any other program.</p>
      )}
      <EventTable label="Published events" of={of} />
    </Panel>
  );
}
