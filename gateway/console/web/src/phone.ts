import {
  type CountNotificationsResponse,
  type Event,
  type FeedEntry,
  FollowKind,
  type HiddenEntry,
  type NotificationGroup,
  type Relationship,
  event,
} from "@skein-feed/client";
import { skein } from "./api.js";

/** The kinds of reactions that a phone offers, and the names of their buttons. Products choose their own kinds. */
export const reactionNames = { like: "Like", wow: "Wow" };
export type Reaction = keyof typeof reactionNames;
const reactionKinds = Object.keys(reactionNames) as Reaction[];

/** An entry of the feed, with what the phone shows beside it. */
export interface Post {
  pin: FeedEntry;
  /** How many users reacted to the item, and whether the phone's user did. */
  reactions: { kind: Reaction; count: number; isOwn: boolean }[];
  /** How many pins have ever re-pinned the item, and whether the phone's user re-pins this pin now. */
  repinCount: number;
  isRepinned: boolean;
}

/** What a phone shows. */
export interface PhoneContent {
  posts: Post[];
  hidden: HiddenEntry[];
  /** How the phone's user sees the user of the other phone; undefined if both phones have the same user. */
  relationship: Relationship | undefined;
  /** How many groups of notifications the user has not seen: the number at the bell. */
  badge: CountNotificationsResponse;
  /** The newest groups of notifications. Read only while the phone shows them. */
  groups: NotificationGroup[] | undefined;
}

/** Reads what the phone of a user shows, as of the position or later. The notifications take the place of the feed when they are shown. */
export async function readPhone(
  userId: string,
  otherId: string,
  showsNotifications: boolean,
  atLeast: string,
  signal: AbortSignal,
): Promise<PhoneContent> {
  const [feed, hidden, relationships, badge, notifications] = await Promise.all([
    skein.feed.readFeed({ readerId: userId, includeOwn: true, pageSize: 20, atLeast }, { signal }),
    skein.seen.listHidden({ userId, pageSize: 10, atLeast }, { signal }),
    userId === otherId ? undefined : skein.graph.batchGetRelationships({ viewerId: userId, userIds: [otherId], atLeast }, { signal }),
    skein.notifications.countNotifications({ userId, atLeast }, { signal }),
    showsNotifications ? skein.notifications.readNotifications({ userId, pageSize: 20, atLeast }, { signal }) : undefined,
  ]);
  return {
    posts: await readPosts(userId, feed.entries, atLeast, signal),
    hidden: hidden.entries,
    relationship: relationships?.relationships[0],
    badge,
    groups: notifications?.groups,
  };
}

async function readPosts(userId: string, pins: FeedEntry[], atLeast: string, signal: AbortSignal): Promise<Post[]> {
  if (pins.length === 0) return [];
  const ownRepins = pins.map((pin) => ({ ownerId: userId, pinId: repinId(pin) }));
  const keys = [...pins.map(({ ownerId, pinId }) => ({ ownerId, pinId })), ...ownRepins];
  const [{ states }, { counters }] = await Promise.all([
    skein.feed.batchGetViewerState(
      { viewerId: userId, keys: keys.map((pin) => ({ target: { case: "pin" as const, value: pin } })), atLeast },
      { signal },
    ),
    skein.counters.batchGetCounters(
      { keys: pins.map((pin) => ({ target: { case: "itemId" as const, value: pin.itemId } })), reactionKinds, atLeast },
      { signal },
    ),
  ]);
  return pins.map((pin, i) => ({
    pin,
    reactions: reactionKinds.map((kind) => ({
      kind,
      count: counters[i]!.reactions.find((r) => r.kind === kind)?.count ?? 0,
      isOwn: states[i]!.reactions.includes(kind),
    })),
    repinCount: counters[i]!.repinCount,
    isRepinned: states[pins.length + i]!.itemId !== "", // only a living pin shows an item
  }));
}

/** The id of the pin by which the user of a phone re-pins another pin. It follows from that pin, so that the re-pin is found again. */
function repinId(pin: FeedEntry): string {
  return `${pin.ownerId}.${pin.pinId}`;
}

/** The pin that a person has typed. Ids have no white space. */
export function pinFact(userId: string, text: string): Event {
  return event("pinCreated", { pin: { ownerId: userId, pinId: text.trim().replace(/\s+/g, "-") } });
}

/** The fact that the user follows another or no longer does, whichever changes what holds. */
export function followFact(userId: string, { userId: targetUserId, following }: Relationship): Event {
  return event(following === FollowKind.NONE ? "userFollowed" : "userUnfollowed", { userId, targetUserId });
}

/** The fact that the user blocks another or no longer does, whichever changes what holds. */
export function blockFact(userId: string, { userId: targetUserId, blocking }: Relationship): Event {
  return event(blocking ? "userUnblocked" : "userBlocked", { userId, targetUserId });
}

/**
 * The fact that the user reacts to the item of a post or no longer does, whichever changes what holds. It names the pin, so that the owner
 * of the pin is notified.
 */
export function reactionFact(userId: string, { pin, reactions }: Post, kind: Reaction): Event {
  const isOwn = reactions.some((r) => r.kind === kind && r.isOwn);
  return event(isOwn ? "unreacted" : "reacted", { userId, itemId: pin.itemId, kind, pin: { ownerId: pin.ownerId, pinId: pin.pinId } });
}

/** The fact that the user re-pins a post or no longer does, whichever changes what holds. */
export function repinFact(userId: string, { pin, isRepinned }: Post): Event {
  const own = { ownerId: userId, pinId: repinId(pin) };
  const repinOf = { ownerId: pin.ownerId, pinId: pin.pinId };
  return isRepinned ? event("pinDeleted", { pin: own, repinOf }) : event("pinCreated", { pin: own, itemId: pin.itemId, repinOf });
}

/** The fact that the user has seen a group of notifications and all older ones, so that the badge does not count them. */
export function seenFact(userId: string, { newestTime }: NotificationGroup): Event {
  return event("notificationsSeen", { userId, ...(newestTime && { seenTime: newestTime }) });
}

/** The fact that the user has read one group of notifications. */
export function groupReadFact(userId: string, { groupId, newestTime }: NotificationGroup): Event {
  return event("notificationsRead", { userId, groupId, ...(newestTime && { readTime: newestTime }) });
}

/** The fact that the user has read a group of notifications and all older ones. */
export function allReadFact(userId: string, { newestTime }: NotificationGroup): Event {
  return event("notificationsRead", { userId, ...(newestTime && { readTime: newestTime }) });
}
