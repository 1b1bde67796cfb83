// Calls a webhook for each group of notifications that is new for a user. docs/watching.md explains it.

import { NotificationService, Skein } from "@skein-feed/client";

const skein = new Skein({ baseUrl: process.env.SKEIN_SERVER ?? "http://127.0.0.1:7411" });
const user = process.env.SKEIN_USER ?? "ann";
const hook = process.env.WEBHOOK ?? "https://example.com/hook";
const delivered = new Set<string>(); // a product uses a table with the key as its primary key

// deliver calls the webhook until it accepts the body. It gives up only if the webhook refuses the body.
async function deliver(key: string, body: string): Promise<void> {
  for (let pause = 1000; ; pause = Math.min(2 * pause, 60_000)) {
    const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
    const answer = await fetch(hook, { method: "POST", headers, body }).catch(() => undefined);
    if (answer?.ok) return;
    if (answer && answer.status < 500 && answer.status !== 429) throw new Error(`the webhook refuses ${key}: ${answer.status}`);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// The stream says that something is new, and ReadNotifications says what. The client continues a stream that broke; each stream
// begins with the present number, so this loop then reads what happened in between.
for await (const _ of skein.watchNotifications({ userId: user })) {
  for await (const group of skein.each(NotificationService.method.readNotifications, { userId: user })) {
    if (!group.unseen) break; // groups are newest first, so all others are older

    // The key names the group and its newest notification, so a group that grows gets a new key.
    const key = `${user}/${group.groupId}/${group.newestTime!.seconds}.${group.newestTime!.nanos}`;
    if (delivered.has(key)) continue;

    // If the program crashes between these two lines, it sends the same key again. The receiver must drop keys that it has seen.
    await deliver(key, JSON.stringify({ user, group: group.groupId, actors: group.actorCount }));
    delivered.add(key);
  }
}
