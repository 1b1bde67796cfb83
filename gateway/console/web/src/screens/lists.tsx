import { type BoardEntry, FollowKind, FollowKindSchema } from "@skein-feed/client";
import type { ComponentChildren } from "preact";
import { skein } from "../api.js";
import { date, words } from "../format.js";
import { User } from "../parts.js";

/** A row of any list of a user. */
export interface Row {
  key: string;
  what: ComponentChildren;
  kind?: string;
  at?: Date | undefined;
}

function followRow(e: { userId: string; kind?: FollowKind; followTime?: Parameters<typeof date>[0]; time?: Parameters<typeof date>[0] }): Row {
  const kind = e.kind === undefined ? {} : { kind: words(FollowKindSchema, e.kind) };
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
  users = false,
): List {
  return {
    title,
    users,
    read: async (userId, pageToken, signal) => {
      const page = await ask({ userId, pageToken, pageSize: 50 }, { signal });
      const total = page.totalSize === undefined ? {} : { total: page.totalSize };
      return { entries: page.entries.map(row), next: page.nextPageToken, ...total };
    },
  };
}

/** The lists of a user, by name in the address. */
export const lists: Record<string, List> = {
  following: paged("Following", (r, o) => skein.graph.listFollowing(r, o), followRow, true),
  followers: paged("Followers", (r, o) => skein.graph.listFollowers(r, o), followRow, true),
  boards: paged("Boards", (r, o) => skein.graph.listBoards(r, o), boardRow),
  pins: {
    title: "Pins",
    read: async (userId, pageToken, signal) => {
      const page = await skein.feed.listPins({ target: { case: "ownerId", value: userId }, pageToken, pageSize: 50 }, { signal });
      const rows = page.entries.map((e) => ({
        key: e.pinId,
        what: <span class="id">{e.pinId}</span>,
        kind: [e.boardId || "default", e.itemId === e.pinId ? "" : `shows ${e.itemId}`].filter(Boolean).join(", "),
        at: date(e.createTime),
      }));
      return { entries: rows, next: page.nextPageToken, total: page.totalSize };
    },
  },
  followedBoards: paged("Boards followed", (r, o) => skein.graph.listFollowedBoards(r, o), boardRow),
  excludedBoards: paged("Boards excluded", (r, o) => skein.graph.listExcludedBoards(r, o), boardRow),
  blocked: paged("Blocked", (r, o) => skein.graph.listBlocked(r, o), followRow, true),
  muted: paged("Muted", (r, o) => skein.graph.listMuted(r, o), followRow, true),
  likes: paged(
    "Likes",
    (r, o) => skein.feed.listLikes(r, o),
    (e) => ({ key: e.itemId, what: <span class="id">{e.itemId}</span>, at: date(e.likeTime) }),
  ),
  served: {
    title: "Served",
    read: async (userId, _, signal) => {
      const { itemIds } = await skein.seen.listServed({ userId }, { signal });
      return { entries: itemIds.map((id) => ({ key: id, what: <span class="id">{id}</span> })), next: "", total: itemIds.length };
    },
  },
  seen: {
    title: "Seen of the feed",
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
