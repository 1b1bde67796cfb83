import { type BoardEntry, FollowKind, FollowKindSchema, FollowSetting, type FollowSettings } from "@skein-feed/client";
import type { ComponentChildren } from "preact";
import { skein } from "../api.js";
import { date, words } from "../format.js";
import { User } from "../parts.js";
import { route, to } from "../route.js";

/** A row of any list of a user. */
export interface Row {
  key: string;
  what: ComponentChildren;
  kind?: string;
  at?: Date | undefined;
}

/** The settings of a follow that are on, for people. */
export function settingsText(s: FollowSettings | undefined): string {
  return [s?.favorite && "favorite", s?.notify && "bell", s?.hideRepins && "no re-pins"].filter(Boolean).join(", ");
}

interface FollowLike {
  userId: string;
  kind?: FollowKind;
  settings?: FollowSettings | undefined;
  followTime?: Parameters<typeof date>[0];
  time?: Parameters<typeof date>[0];
  until?: Parameters<typeof date>[0];
}

function followRow(e: FollowLike): Row {
  const parts = [e.kind === undefined ? "" : words(FollowKindSchema, e.kind), settingsText(e.settings)];
  const end = date(e.until);
  if (end) parts.push(`until ${end.toISOString()}`);
  const text = parts.filter(Boolean).join(", ");
  const kind = text === "" ? {} : { kind: text };
  return { key: e.userId, what: <User id={e.userId} />, ...kind, at: date(e.followTime ?? e.time) };
}

function boardRow(e: BoardEntry): Row {
  const { ownerId = "", boardId = "" } = e.board ?? {};
  return {
    key: `${ownerId} ${boardId}`,
    what: (
      <>
        <User id={ownerId} /> / <span class="id">{boardId || "default"}</span> <small>{e.title}</small>
      </>
    ),
    at: date(e.time),
  };
}

interface Page {
  entries: Row[];
  next: string;
  total?: number;
}

export interface List {
  title: string;
  /** Says what would be in the list of a user that is empty. */
  empty: (userId: string) => string;
  /** What the kind and the time of a row are. */
  kindLabel: string;
  timeLabel: string;
  /** Whether the keys of its rows are users. */
  users?: boolean;
  read: (userId: string, pageToken: string, signal: AbortSignal) => Promise<Page>;
}

interface Answer<E> {
  entries: E[];
  nextPageToken: string;
  totalSize?: number;
}

/** A list of GraphService and its kin: pages of entries. */
function paged<E>(
  title: string,
  ask: (request: { userId: string; pageToken: string; pageSize: number }, options: { signal: AbortSignal }) => Promise<Answer<E>>,
  row: (entry: E) => Row,
  words: Omit<List, "title" | "read">,
): List {
  return {
    title,
    ...words,
    read: async (userId, pageToken, signal) => {
      const page = await ask({ userId, pageToken, pageSize: 50 }, { signal });
      const total = page.totalSize === undefined ? {} : { total: page.totalSize };
      return { entries: page.entries.map(row), next: page.nextPageToken, ...total };
    },
  };
}

/** The kind of reactions that the address names; empty for likes. */
export function chosenReaction(): string {
  return route.value.params.get("kind") ?? "";
}

/** The lists of a user, by name in the address. */
export const lists: Record<string, List> = {
  following: paged("Following", (r, o) => skein.graph.listFollowing(r, o), followRow, { users: true, kindLabel: "Kind", timeLabel: "Since", empty: (id) => `${id} follows nobody yet. A follow appears here as soon as it is published.` }),
  favorites: paged("Favorites", (r, o) => skein.graph.listFollowing({ ...r, only: FollowSetting.FAVORITE }, o), followRow, { users: true, kindLabel: "Kind", timeLabel: "Follows since", empty: (id) => `${id} has no favorites. Whom ${id} follows with the setting favorite appears here, the one set last first.` }),
  bell: paged("Bell", (r, o) => skein.graph.listFollowing({ ...r, only: FollowSetting.NOTIFY }, o), followRow, { users: true, kindLabel: "Kind", timeLabel: "Follows since", empty: (id) => `The bell of ${id} is for nobody. Whom ${id} follows with the setting notify appears here, the one set last first.` }),
  followers: paged("Followers", (r, o) => skein.graph.listFollowers(r, o), followRow, { users: true, kindLabel: "Kind", timeLabel: "Since", empty: (id) => `Nobody follows ${id} yet. A follower appears here as soon as the follow is published.` }),
  boards: paged("Boards", (r, o) => skein.graph.listBoards(r, o), boardRow, { kindLabel: "Kind", timeLabel: "Since", empty: (id) => `${id} has only the default board, which is not listed. A board appears here when it is created, or first mentioned.` }),
  pins: {
    title: "Pins",
    kindLabel: "Board",
    timeLabel: "Pinned",
    empty: (id) => `${id} has no pins yet. A pin appears here when it is created, and leaves when it or its board is deleted.`,
    read: async (userId, pageToken, signal) => {
      const page = await skein.feed.listPins({ target: { case: "ownerId", value: userId }, pageToken, pageSize: 50 }, { signal });
      const rows = page.entries.map((e) => ({
        key: e.pinId,
        what: <span class="id">{e.pinId}</span>,
        kind: [
          e.boardId || "default",
          e.itemId === e.pinId ? "" : `shows ${e.itemId}`,
          e.repinOf ? `re-pin of ${e.repinOf.pinId} of ${e.repinOf.ownerId}` : "",
          e.editTime ? "edited" : "",
        ].filter(Boolean).join(", "),
        at: date(e.createTime),
      }));
      return { entries: rows, next: page.nextPageToken, total: page.totalSize };
    },
  },
  followedBoards: paged("Boards followed", (r, o) => skein.graph.listFollowedBoards(r, o), boardRow, { kindLabel: "Kind", timeLabel: "Since", empty: (id) => `${id} follows no single board. Boards appear here that ${id} follows without, or besides, their owner.` }),
  excludedBoards: paged("Boards excluded", (r, o) => skein.graph.listExcludedBoards(r, o), boardRow, { kindLabel: "Kind", timeLabel: "Since", empty: (id) => `${id} excludes no board. Boards appear here that ${id} unfollows while following their owner.` }),
  blocked: paged("Blocked", (r, o) => skein.graph.listBlocked(r, o), followRow, { users: true, kindLabel: "Kind", timeLabel: "Since", empty: (id) => `${id} blocks nobody. Whom ${id} blocks appears here; a block ends all follows between the two.` }),
  muted: paged("Muted", (r, o) => skein.graph.listMuted(r, o), followRow, { users: true, kindLabel: "Kind", timeLabel: "Since", empty: (id) => `${id} mutes nobody. Whom ${id} mutes appears here; a mute hides pins from the feed and changes no follow.` }),
  reactions: paged(
    "Reactions",
    (r, o) => skein.counters.listReactions({ ...r, kind: chosenReaction() }, o),
    (e) => ({ key: e.itemId, what: <a class="id" href={to("hot", { item: e.itemId })}>{e.itemId}</a>, at: date(e.reactTime) }),
    {
      kindLabel: "Kind",
      timeLabel: "Since",
      empty: (id) => `${id} has no reaction of the kind ${chosenReaction() || "like"} yet. Items appear here to which ${id} reacts with it, newest first.`,
    },
  ),
  served: {
    title: "Served",
    kindLabel: "Kind",
    timeLabel: "Served",
    empty: (id) => `No item was served to ${id} yet. The latest 100 items appear here that a published event "served" names.`,
    read: async (userId, _, signal) => {
      const { itemIds } = await skein.seen.listServed({ userId }, { signal });
      return { entries: itemIds.map((id) => ({ key: id, what: <span class="id">{id}</span> })), next: "", total: itemIds.length };
    },
  },
  hidden: paged(
    "Hidden items",
    (r, o) => skein.seen.listHidden(r, o),
    (e) => ({ key: e.itemId, what: <span class="id">{e.itemId}</span>, at: date(e.hideTime) }),
    { kindLabel: "Kind", timeLabel: "Hidden", empty: (id) => `${id} hides no item. Items appear here that a published event "item_hidden" names; no feed of ${id} shows them.` },
  ),
  seen: {
    title: "Seen of the feed",
    kindLabel: "Kind",
    timeLabel: "Pinned",
    empty: (id) => `${id} has seen nothing of the feed. Entries appear here whose item ${id} has played, or was served lately.`,
    read: async (userId, pageToken, signal) => {
      const start = pageToken ? ({ case: "pageToken", value: pageToken } as const) : { case: undefined };
      const feed = await skein.feed.readFeed({ readerId: userId, pageSize: 50, start }, { signal });
      const itemIds = feed.entries.map((e) => e.itemId);
      const unseen = itemIds.length === 0 ? [] : (await skein.seen.filterSeen({ userId, itemIds }, { signal })).unseenIndexes;
      const seen = feed.entries.filter((_, i) => !unseen.includes(i));
      const rows = seen.map((e) => ({
        key: `${e.ownerId} ${e.pinId}`,
        what: (
          <>
            <span class="id">{e.itemId}</span> of <User id={e.ownerId} />
          </>
        ),
        at: date(e.createTime),
      }));
      return { entries: rows, next: feed.nextPageToken };
    },
  },
};
