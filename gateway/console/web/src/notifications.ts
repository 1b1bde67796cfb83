import { type NotificationGroup, NotificationKind } from "@skein-feed/client";

/** Says what a group of notifications tells: "greta, noor and 3 others liked window-seat". */
export function notificationText({ kind, actors, actorCount, itemId }: NotificationGroup): string {
  return `${namesOf(actors.map((a) => a.userId), actorCount)} ${verbOf(kind, actors.map((a) => a.reaction))} ${itemId || "you"}`;
}

function verbOf(kind: NotificationKind, reactions: string[]): string {
  switch (kind) {
    case NotificationKind.FOLLOWED:
      return "followed";
    case NotificationKind.REPINNED:
      return "re-pinned";
    case NotificationKind.REACTED:
      return reactions.every((r) => r === "like") ? "liked" : "reacted to";
    default:
      return "did something that this console does not know to";
  }
}

/** Names the first two of some users, or three if there are no more, and counts the others. */
function namesOf(users: string[], total: number): string {
  const named = users.slice(0, total <= 3 ? total : 2);
  const others = total - named.length;
  if (others > 0) return `${named.join(", ")} and ${others} ${others === 1 ? "other" : "others"}`;
  return [named.slice(0, -1).join(", "), ...named.slice(-1)].filter(Boolean).join(" and ");
}

/** The number that a badge shows; empty for none. */
export function badgeText({ count, more }: { count: number; more: boolean }): string {
  return count === 0 ? "" : `${count}${more ? "+" : ""}`;
}
