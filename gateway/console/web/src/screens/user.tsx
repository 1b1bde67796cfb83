import { FollowKind, type FollowSettings, PublishWait, type Relationship, event } from "@skein-feed/client";
import { useState } from "preact/hooks";
import { skein } from "../api.js";
import { DemoUserLinks, DemoUsers } from "../examples.js";
import { date } from "../format.js";
import { useAsked, usePaged } from "../hooks.js";
import { useLacks } from "../lacks.js";
import { TableCell, Failed, Field, Form, Lacking, Panel, ReadOn, State, Strip, User, When, confirmed } from "../parts.js";
import { go, route, to } from "../route.js";
import { type Row, chosenReaction, lists, settingsText } from "./lists.js";

/** One user, or how two see each other. */
export function UserScreen() {
  const id = route.value.params.get("id") ?? "";
  const other = route.value.params.get("other") ?? "";
  const [round, setRound] = useState(0);
  return (
    <>
      <Ask key={`${id} ${other}`} id={id} other={other} />
      {id === "" && <Introduction />}
      {id && other && <Between id={id} other={other} round={round} changed={() => setRound((n) => n + 1)} />}
      {id && <Counts id={id} round={round} />}
      {id && <Lists id={id} round={round} />}
    </>
  );
}

function Introduction() {
  return (
    <Panel title="What this screen shows">
      <p>
        Name a user by the id that your application gives: the counts and the lists of the user appear here. Name another user as well: you see how
        the two see each other, and may publish that one follows the other.
      </p>
      <DemoUsers>
        <DemoUserLinks screen="user" name="id" />; <a href={to("user", { id: "ada", other: "greta" })}>ada and greta</a>.
      </DemoUsers>
    </Panel>
  );
}

function Ask(props: { id: string; other: string }) {
  const [id, setId] = useState(props.id);
  const [other, setOther] = useState(props.other);
  return (
    <Panel title="User">
      <Form label="User" submit={() => go("user", { id: id.trim(), other: other.trim() })}>
        <Field label="User id" value={id} set={setId} required autofocus />
        <Field label="Another, to compare" value={other} set={setOther} placeholder="none" />
        <button>Show</button>
      </Form>
    </Panel>
  );
}

function Counts({ id, round }: { id: string; round: number }) {
  const { value, error } = useAsked(
    async (signal) => {
      const [follows, counters] = await Promise.all([
        skein.graph.batchGetFollowCounts({ userIds: [id] }, { signal }),
        skein.counters.batchGetCounters({ keys: [{ target: { case: "userId", value: id } }] }, { signal }),
      ]);
      return { ...follows.users[0]!, pins: counters.counters[0]!.pinCount, plays: counters.counters[0]!.playCount };
    },
    0,
    [id, round],
  );
  const isUnknown = value && value.followerCount + value.followingCount + value.boardCount + value.mutedCount + value.blockedCount === 0 && !value.pins;
  return (
    <Panel title={id} side={<a href={to("why", { reader: id })}>Feed of {id}</a>}>
      <Failed error={error} />
      {isUnknown && (
        <p class="dim">
          No relation, board or pin of <span class="id">{id}</span> is known. A user needs no registration: the first event that names the user is enough.
        </p>
      )}
      {value && (
        <Strip
          of={[
            ["Followers", value.followerCount, `${value.implicitFollowerCount} by a board alone`],
            ["Following", value.followingCount, `${value.implicitFollowingCount} by a board alone`],
            ["Boards", value.boardCount],
            ["Pins", value.pins],
            ["Boards followed", value.followedBoardCount],
            ["Boards excluded", value.excludedBoardCount],
            ["Blocked", value.blockedCount],
            ["Muted", value.mutedCount],
            ["Plays", value.plays],
          ]}
        />
      )}
    </Panel>
  );
}

/** A fact that may be published, in words, and what changes it again. */
interface Fact {
  text: string;
  opposite: string;
  event: Parameters<typeof skein.publish>[0][number];
}

const settingNames = { favorite: "favorite", notify: "bell", hideRepins: "no re-pins" };
type Setting = keyof typeof settingNames;

/** The fact that a setting of a follow is turned on or off, and the others stay. */
function settingFact(userId: string, targetUserId: string, before: FollowSettings | undefined, setting: Setting): Fact {
  const { hideRepins = false, notify = false, favorite = false } = before ?? {};
  const after = { hideRepins, notify, favorite };
  after[setting] = !after[setting];
  return {
    text: `${userId} sets “${settingNames[setting]}” of ${targetUserId} ${after[setting] ? "on" : "off"}`,
    opposite: "setting",
    event: event("followSettingsSet", { userId, targetUserId, ...after }),
  };
}

/** How two users see each other, and what may be changed about it. */
function Between(props: { id: string; other: string; round: number; changed: () => void }) {
  const { id, other } = props;
  const [failed, setFailed] = useState<unknown>();
  const { value, error } = useAsked(
    async (signal) => {
      const [there, back] = await Promise.all([
        skein.graph.batchGetRelationships({ viewerId: id, userIds: [other] }, { signal }),
        skein.graph.batchGetRelationships({ viewerId: other, userIds: [id] }, { signal }),
      ]);
      return { there: there.relationships[0]!, back: back.relationships[0]! };
    },
    0,
    [id, other, props.round],
  );
  const lacksRole = useLacks("publish");
  const ask = (fact: Fact) => {
    confirmed({
      title: `Publish “${fact.text}”?`,
      text: `This is a permanent fact. It is written to the log, where it stays, and changes feeds and counts at once. A later ${fact.opposite} changes the relation again, but removes nothing from the log.`,
      verb: "Publish",
      act: () => void publish(fact),
    });
  };
  const publish = async (fact: Fact) => {
    setFailed(undefined);
    try {
      await skein.publish([fact.event], { wait: PublishWait.VISIBLE, retryForMs: 0 });
      props.changed();
    } catch (err) {
      setFailed(err);
    }
  };
  return (
    <Panel title={`${id} and ${other}`} side={<a href={to("user", { id: other, other: id })}>Turn around</a>}>
      <Failed error={failed ?? error} />
      {lacksRole && <Lacking role="publish" what="To publish a follow or unfollow" />}
      {value && (
        <div class="columns" aria-live="polite">
          <Side from={id} target={other} of={value.there} ask={ask} disabled={lacksRole} />
          <Side from={other} target={id} of={value.back} ask={ask} disabled={lacksRole} />
        </div>
      )}
    </Panel>
  );
}

interface SideProps {
  from: string;
  target: string;
  of: Relationship;
  ask: (fact: Fact) => void;
  disabled: boolean;
}

function Side(props: SideProps) {
  const { from, target, of: r } = props;
  const follows = r.following !== FollowKind.NONE;
  const users = { userId: from, targetUserId: target };
  const change: Fact = follows
    ? { text: `${from} unfollows ${target}`, opposite: "follow", event: event("userUnfollowed", users) }
    : { text: `${from} follows ${target}`, opposite: "unfollow", event: event("userFollowed", users) };
  return (
    <div class="side-of">
      <h3>
        <User id={from} /> <span class="dim">→</span> {target}
      </h3>
      <p>
        <State tone={follows ? "good" : "dim"}>
          {follows ? (
            <>
              follows{r.following === FollowKind.IMPLICIT ? " by a board alone" : ""} since <When at={date(r.followTime)} />
            </>
          ) : (
            "does not follow"
          )}
        </State>
      </p>
      {r.muting && (
        <p>
          <State tone="busy">
            mutes {target}
            {r.muteUntil && (
              <>
                {" "}
                until <When at={date(r.muteUntil)} />
              </>
            )}
          </State>
        </p>
      )}
      {r.settings && (
        <p>
          <State tone="good">{settingsText(r.settings)}</State>
        </p>
      )}
      {r.blocking && (
        <p>
          <State tone="bad">blocks {target}: no follow between the two holds</State>
        </p>
      )}
      <p>
        <button type="button" class={follows ? "secondary" : ""} disabled={props.disabled} onClick={() => props.ask(change)}>
          Publish: {change.text}
        </button>{" "}
        {follows &&
          (Object.keys(settingNames) as Setting[]).map((setting) => (
            <button
              key={setting}
              type="button"
              class="secondary"
              aria-label={`Publish: ${settingFact(from, target, r.settings, setting).text}`}
              disabled={props.disabled}
              onClick={() => props.ask(settingFact(from, target, r.settings, setting))}
            >
              {settingNames[setting]}: {r.settings?.[setting] ? "turn off" : "turn on"}
            </button>
          ))}{" "}
        <a href={to("why", { reader: from })}>Feed of {from}</a>
      </p>
    </div>
  );
}

/** Asks for the kind of the reactions that are listed: products choose their own kinds. */
function ReactionKind({ id, other }: { id: string; other: string }) {
  const [kind, setKind] = useState(chosenReaction());
  return (
    <Form label="Kind of reactions" submit={() => go("user", { id, other, list: "reactions", kind: kind.trim() })}>
      <Field label="Kind" value={kind} set={setKind} placeholder="like" />
      <button>Show</button>
    </Form>
  );
}

/** One list of the user at a time. */
function Lists({ id, round }: { id: string; round: number }) {
  const chosen = route.value.params.get("list") ?? "following";
  const other = route.value.params.get("other") ?? "";
  const list = lists[chosen] ?? lists["following"]!;
  const { entries, total, error, busy, more } = usePaged<Row>((page, signal) => list.read(id, page, signal), [id, chosen, chosenReaction(), round]);
  return (
    <Panel title={list.title} side={total !== undefined && <span class="dim">{total} in all</span>}>
      <nav class="tabs" aria-label="Lists">
        {Object.entries(lists).map(([name, l]) => (
          <a key={name} href={to("user", { id, other, list: name })} aria-current={l === list ? "true" : undefined}>
            {l.title}
          </a>
        ))}
      </nav>
      {list === lists["reactions"] && <ReactionKind key={chosenReaction()} id={id} other={other} />}
      <Failed error={error} />
      {entries?.length === 0 && <p class="dim">{list.empty(id)}</p>}
      {entries && entries.length > 0 && (
        <table class="stack" aria-busy={busy} aria-label={list.title}>
          <tbody>
            {entries.map((r) => (
              <tr key={r.key}>
                <td>{r.what}</td>
                <TableCell label={list.kindLabel} class="dim">
                  {r.kind}
                </TableCell>
                <TableCell label={list.timeLabel}>{r.at && <When at={r.at} />}</TableCell>
                <td class="number">{r.key !== id && list.users && <a href={to("user", { id, other: r.key })}>compare</a>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <ReadOn more={more} />
    </Panel>
  );
}
