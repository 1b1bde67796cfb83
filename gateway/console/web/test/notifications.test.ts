import assert from "node:assert/strict";
import { test } from "node:test";
import { type NotificationGroup, NotificationKind } from "@skein-feed/client";
import { badgeText, notificationText } from "../src/notifications.js";

test("a group of notifications in words", async (t) => {
  const group = (kind: NotificationKind, itemId: string, actorCount: number, ...actors: [userId: string, reaction?: string][]) =>
    ({ kind, itemId, actorCount, actors: actors.map(([userId, reaction = ""]) => ({ userId, reaction })) }) as NotificationGroup;
  const { FOLLOWED, REACTED, REPINNED } = NotificationKind;
  for (const [name, of, want] of [
    ["one follower", group(FOLLOWED, "", 1, ["greta"]), "greta followed you"],
    ["two followers", group(FOLLOWED, "", 2, ["greta"], ["noor"]), "greta and noor followed you"],
    ["three followers", group(FOLLOWED, "", 3, ["greta"], ["noor"], ["kaia"]), "greta, noor and kaia followed you"],
    ["four followers", group(FOLLOWED, "", 4, ["greta"], ["noor"], ["kaia"], ["hugo"]), "greta, noor and 2 others followed you"],
    ["likes alone", group(REACTED, "crust", 2, ["noor", "like"], ["hugo", "like"]), "noor and hugo liked crust"],
    ["reactions of several kinds", group(REACTED, "crust", 2, ["noor", "like"], ["hugo", "wow"]), "noor and hugo reacted to crust"],
    ["more than are named", group(REACTED, "crust", 14, ["noor", "like"], ["hugo", "like"]), "noor, hugo and 12 others liked crust"],
    ["a re-pin", group(REPINNED, "crust", 1, ["noor"]), "noor re-pinned crust"],
  ] as const) {
    await t.test(name, () => assert.equal(notificationText(of), want));
  }
});

test("a badge says that there are more than were counted", () => {
  assert.equal(badgeText({ count: 0, more: false }), "");
  assert.equal(badgeText({ count: 7, more: false }), "7");
  assert.equal(badgeText({ count: 100, more: true }), "100+");
});
