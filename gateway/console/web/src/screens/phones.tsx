import { type Event, FollowKind, type NotificationGroup, PublishWait, type Relationship, event } from "@skein-feed/client";
import { useEffect, useRef, useState } from "preact/hooks";
import { skein } from "../api.js";
import { DemoUsers } from "../examples.js";
import { date, plural } from "../format.js";
import { silentSince } from "../freshness.js";
import { useAsked } from "../hooks.js";
import { useLacks } from "../lacks.js";
import { badgeText, notificationText } from "../notifications.js";
import { Failed, Field, Form, Lacking, Panel, State, User, When, confirmed } from "../parts.js";
import {
  type PhoneContent,
  type Post,
  allReadFact,
  blockFact,
  followFact,
  groupReadFact,
  pinFact,
  reactionFact,
  reactionNames,
  readPhone,
  repinFact,
  seenFact,
} from "../phone.js";
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
        Name two users: each gets a phone with the feed and the notifications of the user. Pin, react, re-pin, follow, block or hide on one of the phones, and watch the
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
  const [isAllowed, setIsAllowed] = useState(false);
  const [badges, setBadges] = useState({ left: "", right: "" });
  const lacksPublish = useLacks("publish");
  const shown = route.value.params.get("show") === "right" ? "right" : "left";

  // A question before each tap would make phones useless. But the facts are permanent, so the first tap asks.
  const allow = (act: () => void) => {
    if (isAllowed) return act();
    confirmed({
      title: "Publish with the buttons of these phones?",
      text: `Each button publishes an event as ${left} or ${right} at once. An event is a permanent fact: it is written to the log, where it stays. You are asked this once.`,
      verb: "Publish",
      act: () => {
        setIsAllowed(true);
        act();
      },
    });
  };

  const phone = { logPosition: events[0]?.position ?? "", isDisabled: lacksPublish, isAllowed, allow };
  return (
    <>
      {lacksPublish && <Lacking role="publish" what="To publish with these phones" />}
      <nav class="tabs switch" aria-label="Phones">
        <a href={to("phones", { left, right })} aria-current={shown === "left" ? "true" : undefined}>
          {left} <Badge text={badges.left} />
        </a>
        <a href={to("phones", { left, right, show: "right" })} aria-current={shown === "right" ? "true" : undefined}>
          {right} <Badge text={badges.right} />
        </a>
      </nav>
      <div class="phones">
        <Phone {...phone} id={left} other={right} isChosen={shown === "left"} setBadge={(left) => setBadges((b) => ({ ...b, left }))} />
        <Phone {...phone} id={right} other={left} isChosen={shown === "right"} setBadge={(right) => setBadges((b) => ({ ...b, right }))} />
      </div>
      <PublishedEvents users={[left, right]} of={events} add={(batch) => setEvents((before) => [...batch, ...before].slice(0, maxEvents))} />
    </>
  );
}

/** How many groups of notifications are unseen. Nothing if there are none. */
function Badge({ text }: { text: string }) {
  return text === "" ? null : <span class="badge">{text}</span>;
}

interface PhoneProps {
  id: string;
  other: string;
  /** The position of the newest event of one of the two users, as far as the log is watched. */
  logPosition: string;
  /** Whether this phone is the one that a narrow screen shows. */
  isChosen: boolean;
  isDisabled: boolean;
  /** Whether the reader of the page has allowed these phones to publish. */
  isAllowed: boolean;
  /** Runs what publishes, once the reader of the page has allowed it. */
  allow: (act: () => void) => void;
  /** Reports the number at the bell. */
  setBadge: (text: string) => void;
}

function Phone({ id, other, logPosition, isChosen, isDisabled, isAllowed, allow, setBadge }: PhoneProps) {
  const [failed, setFailed] = useState<unknown>();
  const [showsNotifications, setShowsNotifications] = useState(false);

  // What the phone shows is read each second, and at once when the log has an event of one of the two users or the phone has published. An
  // event that comes during a read does not abort that read, but another one follows. So a rush of events does not keep the phone from
  // showing anything.
  const [demanded, setDemanded] = useState("");
  const wanted = `${demanded} ${showsNotifications}`;
  const reading = useRef(wanted);
  useEffect(() => setDemanded(logPosition), [logPosition]);
  const { value, error, busy, again } = useAsked(
    (signal) => {
      reading.current = wanted;
      return readPhone(id, other, showsNotifications, demanded, signal);
    },
    readEveryMs,
    [id, other],
  );
  useEffect(() => {
    if (!busy && reading.current !== wanted) again();
  }, [busy, wanted]);
  const badge = value ? badgeText(value.badge) : "";
  useEffect(() => setBadge(badge), [badge]);

  const publishAllowed = async (fact: Event) => {
    setFailed(undefined);
    try {
      const { position } = await skein.publish([fact], { wait: PublishWait.VISIBLE, retryForMs: 0 });
      setDemanded(position);
    } catch (err) {
      setFailed(err);
    }
  };
  const publish: Publish = (fact) => allow(() => void publishAllowed(fact));

  // Notifications count as seen when they are shown. The newest unseen one is marked once, also if that fails.
  const unseen = showsNotifications && !isDisabled && isAllowed ? value?.groups?.find((g) => g.unseen) : undefined;
  const unseenTime = unseen && date(unseen.newestTime)?.toISOString();
  useEffect(() => {
    if (unseen) void publishAllowed(seenFact(id, unseen));
  }, [unseenTime]);
  const pressBell = () => {
    if (!showsNotifications && badge !== "" && !isDisabled) allow(() => undefined);
    setShowsNotifications(!showsNotifications);
  };

  return (
    <section class={`panel phone ${isChosen ? "chosen" : ""}`} aria-label={`Phone of ${id}`}>
      <header>
        <h2>
          <User id={id} />
        </h2>
        <button type="button" class="quiet bell" aria-pressed={showsNotifications} onClick={pressBell}>
          Notifications <Badge text={badge} />
        </button>
      </header>
      <Failed error={failed ?? error} />
      {value?.relationship && <Other id={id} of={value.relationship} publish={publish} isDisabled={isDisabled} />}
      {showsNotifications ? (
        <Notifications id={id} of={value?.groups} publish={publish} isDisabled={isDisabled} />
      ) : (
        <PhoneFeed id={id} of={value} publish={publish} isDisabled={isDisabled} />
      )}
    </section>
  );
}

function PhoneFeed({ id, of, publish, isDisabled }: { id: string; of: PhoneContent | undefined; publish: Publish; isDisabled: boolean }) {
  return (
    <>
      <NewPin id={id} publish={publish} isDisabled={isDisabled} />
      {of?.posts.length === 0 && <p class="dim">The feed is empty. The pins of {id} appear here, and those of users whom {id} follows.</p>}
      <ol class="posts" aria-label={`Feed of ${id}`}>
        {of?.posts.map((p) => (
          <PostItem key={`${p.pin.ownerId} ${p.pin.pinId}`} id={id} of={p} publish={publish} isDisabled={isDisabled} />
        ))}
      </ol>
      {of?.hidden.map(({ itemId }) => (
        <p key={itemId}>
          <span class="dim">
            You hide <span class="id">{itemId}</span>.
          </span>{" "}
          <button type="button" class="quiet" disabled={isDisabled} onClick={() => publish(event("itemShown", { userId: id, itemId }))}>
            Show again
          </button>
        </p>
      ))}
      <p>
        <a href={to("why", { reader: id, own: true })}>Why is it in the feed of {id}?</a>
      </p>
    </>
  );
}

interface NotificationsProps {
  id: string;
  of: NotificationGroup[] | undefined;
  publish: Publish;
  isDisabled: boolean;
}

/** What others did, in groups, the newest first. */
function Notifications({ id, of, publish, isDisabled }: NotificationsProps) {
  const newest = of?.[0];
  const isUnread = of?.some((g) => g.unread) ?? false;
  return (
    <>
      {of?.length === 0 && <p class="dim">Nobody did anything yet. Who follows {id}, and who reacts to a pin of {id} or re-pins it, appears here.</p>}
      {newest && isUnread && (
        <p>
          <button type="button" class="quiet" disabled={isDisabled} onClick={() => publish(allReadFact(id, newest))}>
            Mark all as read
          </button>
        </p>
      )}
      <ol class="posts" aria-label={`Notifications of ${id}`}>
        {of?.map((g) => (
          <li key={g.groupId} class={g.unread ? "unread" : ""} aria-label={notificationText(g)}>
            <div>{g.unread ? <strong>{notificationText(g)}</strong> : notificationText(g)}</div>
            <div class="line">
              <small>
                <When at={date(g.newestTime)} />
              </small>
              {g.unread && (
                <button type="button" class="quiet" disabled={isDisabled} onClick={() => publish(groupReadFact(id, g))}>
                  Mark as read
                </button>
              )}
            </div>
          </li>
        ))}
      </ol>
    </>
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
