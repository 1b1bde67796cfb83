import {
  AbsenceReason,
  type ExplainPinResponse,
  FeedCompleteness,
  type FeedEntry,
  FeedOrder,
  FollowSetting,
  PinDelivery,
} from "@skein-feed/client";
import { useState } from "preact/hooks";
import { skein } from "../api.js";
import { DemoUserLinks, DemoUsers } from "../examples.js";
import { date } from "../format.js";
import { useAsked, usePaged } from "../hooks.js";
import { TableCell, Check, Choice, Failed, Field, Form, Panel, ReadOn, State, User, When } from "../parts.js";
import { go, route, to } from "../route.js";

const flags = { own: "Own pins", seen: "Hide what was seen", once: "Once per item", plays: "Served does not count as seen" };
type Flag = keyof typeof flags;

/** Whose feed, with which options, and which pin is asked about: as the address has them. */
interface Question {
  reader: string;
  owner: string;
  pin: string;
  order: string;
  only: string;
  options: Record<Flag, boolean>;
}

function asked(): Question {
  const p = route.value.params;
  const text = (name: string) => p.get(name) ?? "";
  const options = Object.fromEntries(Object.keys(flags).map((f) => [f, p.has(f)])) as Record<Flag, boolean>;
  return { reader: text("reader"), owner: text("owner"), pin: text("pin"), order: text("order"), only: text("only"), options };
}

function link({ options, ...q }: Question) {
  return { ...q, ...options };
}

/** The settings of follows by which a feed can be chosen, as the address has them. */
const settings: Record<string, FollowSetting> = { favorite: FollowSetting.FAVORITE, notify: FollowSetting.NOTIFY };

/** The question as ReadFeed and ExplainPin take it. */
function request(q: Question) {
  return {
    readerId: q.reader,
    order: q.order === "heat" ? FeedOrder.TRENDING : FeedOrder.NEWEST,
    includeOwn: q.options.own,
    hideSeen: q.options.seen,
    onePerItem: q.options.once,
    ignoreServed: q.options.plays,
    only: settings[q.only] ?? FollowSetting.UNSPECIFIED,
  };
}

/** The feed of a reader, and why a pin is in it or not. */
export function Why() {
  const q = asked();
  return (
    <>
      <Ask key={JSON.stringify(q)} of={q} />
      {q.reader === "" && <Introduction />}
      {q.reader && (
        <div class="columns">
          <Feed of={q} />
          {q.owner && q.pin ? <Explained of={q} /> : <Panel title="Why?"><p class="dim">Choose “Why?” at an entry, or name any pin above with its owner. The reasons appear here.</p></Panel>}
        </div>
      )}
    </>
  );
}

function Introduction() {
  return (
    <Panel title="What this screen shows">
      <p>
        Name a reader: the feed of the reader appears here, as <code>ReadFeed</code> answers it. Name a pin and its owner as well: you learn whether
        that pin is in the feed, at which rank, or every reason why it is not.
      </p>
      <DemoUsers>
        the feeds of <DemoUserLinks screen="why" name="reader" />; why{" "}
        <a href={to("why", { reader: "ada", owner: "greta", pin: "tomatoes" })}>ada does not see a pin of greta, whom ada follows</a>.
      </DemoUsers>
    </Panel>
  );
}

function Ask({ of }: { of: Question }) {
  const [q, set] = useState(of);
  const part = (name: "reader" | "owner" | "pin" | "order" | "only") => (value: string) => set({ ...q, [name]: value.trim() });
  return (
    <Panel title="Why is it in my feed, or not?">
      <Form label="Question" submit={() => go("why", link(q))}>
        <Field label="Reader" value={q.reader} set={part("reader")} required autofocus />
        <Field label="Owner of the pin" value={q.owner} set={part("owner")} placeholder="any" />
        <Field label="Pin" value={q.pin} set={part("pin")} placeholder="any" />
        <Choice label="Order" value={q.order} set={part("order")} of={[["", "newest first"], ["heat", "by heat"]]} />
        <Choice label="Only" value={q.only} set={part("only")} of={[["", "all follows"], ["favorite", "favorites"], ["notify", "the bell"]]} />
        <button>Ask</button>
        <fieldset class="checks">
          <legend class="hidden">Options of the feed</legend>
          {(Object.keys(flags) as Flag[]).map((f) => (
            <Check key={f} label={flags[f]} value={q.options[f]} set={(on) => set({ ...q, options: { ...q.options, [f]: on } })} />
          ))}
        </fieldset>
      </Form>
    </Panel>
  );
}

function Feed({ of: q }: { of: Question }) {
  const { entries, error, busy, more } = usePaged<FeedEntry>(
    async (pageToken, signal) => {
      const start = pageToken ? ({ case: "pageToken", value: pageToken } as const) : { case: undefined };
      const page = await skein.feed.readFeed({ ...request(q), pageSize: 20, start }, { signal });
      return { entries: page.entries, next: page.nextPageToken };
    },
    [q.reader, q.order, JSON.stringify(q.options)],
  );
  return (
    <Panel title={`Feed of ${q.reader}`}>
      <Failed error={error} />
      {entries?.length === 0 && <p class="dim">
          The feed is empty. It shows the pins of those whom {q.reader} follows, less what the options hide:{" "}
          <a href={to("user", { id: q.reader })}>whom {q.reader} follows</a>.
        </p>}
      {entries && entries.length > 0 && (
        <table class="stack" aria-label="Feed" aria-busy={busy}>
          <thead>
            <tr>
              <th class="number">#</th>
              <th>Pin</th>
              <th>Owner</th>
              <th>Board</th>
              <th>Pinned</th>
              <th>
                <span class="hidden">Explanation</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {entries.map((e, i) => (
              <Entry key={`${e.ownerId} ${e.pinId}`} of={e} rank={i + 1} question={q} />
            ))}
          </tbody>
        </table>
      )}
      <ReadOn more={more} />
    </Panel>
  );
}

function Entry({ of: e, rank, question: q }: { of: FeedEntry; rank: number; question: Question }) {
  const chosen = q.owner === e.ownerId && q.pin === e.pinId;
  return (
    <tr class={chosen ? "chosen" : ""}>
      <TableCell label="#" class="number dim">
        {rank}
      </TableCell>
      <TableCell label="Pin" class="id">
        {e.pinId}
        {e.itemId !== e.pinId && <small>shows {e.itemId}</small>}
        {e.repinOf && <small>re-pin of {e.repinOf.pinId} of {e.repinOf.ownerId}</small>}
        {e.editTime && <small>edited <When at={date(e.editTime)} /></small>}
      </TableCell>
      <TableCell label="Owner">
        <User id={e.ownerId} />
      </TableCell>
      <TableCell label="Board" class="id">
        {e.boardId || <span class="dim">default</span>}
      </TableCell>
      <TableCell label="Pinned">
        <When at={date(e.createTime)} />
      </TableCell>
      <td class="number">
        <a href={to("why", link({ ...q, owner: e.ownerId, pin: e.pinId }))} aria-current={chosen ? "true" : undefined}>
          Why?
        </a>
      </td>
    </tr>
  );
}

/** What a reason means, for people. */
const reasons: Record<AbsenceReason, (q: Question) => string> = {
  [AbsenceReason.UNSPECIFIED]: () => "For a reason that this console does not know.",
  [AbsenceReason.NOT_LIVING]: () => "The pin does not live: it was never created, was deleted, or ended with its board or owner.",
  [AbsenceReason.OWN_PIN]: (q) => `The pin is ${q.reader}'s own, and the feed shows no own pins.`,
  [AbsenceReason.NOT_FOLLOWED]: (q) => `${q.reader} follows neither ${q.owner} nor the board of the pin.`,
  [AbsenceReason.BOARD_EXCLUDED]: (q) => `${q.reader} follows ${q.owner}, but excludes this board.`,
  [AbsenceReason.OWNER_MUTED]: (q) => `${q.reader} mutes ${q.owner}.`,
  [AbsenceReason.BLOCKED]: (q) => `A block stands between ${q.reader} and ${q.owner}.`,
  [AbsenceReason.PLAYED]: (q) => `${q.reader} has played the item, and the feed hides what was seen.`,
  [AbsenceReason.SERVED]: (q) => `The item is among the last 100 that were served to ${q.reader}, and the feed hides what was seen.`,
  [AbsenceReason.NOT_RANKED]: () => "The pin is not among the newest that are ranked by heat, or came after the position of the scores.",
  [AbsenceReason.ITEM_SHOWN]: () => "Another pin of the same item comes first, and the feed shows each item once.",
  [AbsenceReason.REPINS_HIDDEN]: (q) => `The pin is a re-pin, and ${q.reader} hides the re-pins of ${q.owner}, or the feed is that of the bell.`,
  [AbsenceReason.NOT_SELECTED]: (q) =>
    `The feed has only ${q.only === "notify" ? "whom the bell is for" : "favorites"}, and ${q.owner} is not among the 500 that ${q.reader} set last.`,
  [AbsenceReason.REPIN_OF_MUTED]: (q) => `The pin repeats a pin of a user whom ${q.reader} mutes.`,
  [AbsenceReason.REPIN_OF_BLOCKED]: (q) => `The pin repeats a pin of a user, and a block stands between ${q.reader} and that user.`,
  [AbsenceReason.REPIN_OF_DELETED]: () => "The pin repeats a pin of a user who was deleted.",
  [AbsenceReason.HIDDEN]: (q) => `${q.reader} hides the item.`,
  [AbsenceReason.REPIN_OF_UNAVAILABLE]: (q) => `The pin repeats a pin that is not available to ${q.reader}.`,
};

const deliveries: Record<PinDelivery, string> = {
  [PinDelivery.UNSPECIFIED]: "",
  [PinDelivery.PUSHED]: "It is pushed: it is brought to the reader's inbox in memory, once a page has begun one.",
  [PinDelivery.PULLED]: "It is pulled: a page merges the owner's outbox with the inbox. The owner has many followers, or is the reader.",
};

function Explained({ of: q }: { of: Question }) {
  const { value, error } = useAsked(
    (signal) => skein.feed.explainPin({ ...request(q), pin: { ownerId: q.owner, pinId: q.pin } }, { signal }),
    0,
    [JSON.stringify(q)],
  );
  return (
    <Panel title={`${q.pin} of ${q.owner}`} class="explained">
      <div aria-live="polite">
        <Failed error={error} />
        {value && <Verdict of={value} question={q} />}
      </div>
    </Panel>
  );
}

function Verdict({ of: e, question: q }: { of: ExplainPinResponse; question: Question }) {
  const pin = e.pin;
  return (
    <>
      <p class="verdict">
        {e.inFeed ? <State tone="good">In the feed: entry {e.rank}</State> : <State tone="bad">Not in the feed</State>}
      </p>
      {e.inFeed && <p>{deliveries[e.delivery]}</p>}
      <ul class="reasons">
        {e.reasons.map((r) => (
          <li key={r}>
            {(reasons[r] ?? reasons[AbsenceReason.UNSPECIFIED])(q)}
            <code>{AbsenceReason[r]}</code>
          </li>
        ))}
      </ul>
      {e.completeness !== FeedCompleteness.COMPLETE && (
        <p class="failed">
          {e.completeness === FeedCompleteness.REBUILDING
            ? "A part of the feed is being rebuilt, so the pin may be missing for that alone."
            : "The seen projection does not answer, or is behind. So items that were seen may not be hidden, and items that no longer count as seen may be."}
        </p>
      )}
      {pin?.living && (
        <dl class="facts">
          <dt>Board</dt>
          <dd class="id">{pin.boardId || "default"}</dd>
          <dt>Item</dt>
          <dd class="id">{pin.itemId}</dd>
          {pin.repinOf && (
            <>
              <dt>Re-pin of</dt>
              <dd class="id">
                {pin.repinOf.pinId} of <User id={pin.repinOf.ownerId} />
              </dd>
            </>
          )}
          <dt>Pinned</dt>
          <dd>
            <When at={date(pin.createTime)} />
          </dd>
          {pin.editTime && (
            <>
              <dt>Edited</dt>
              <dd>
                <When at={date(pin.editTime)} />
              </dd>
            </>
          )}
        </dl>
      )}
      <p>
        <a href={to("user", { id: q.reader, other: q.owner })}>
          {q.reader} and {q.owner}
        </a>
      </p>
    </>
  );
}
