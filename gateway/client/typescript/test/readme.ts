import { FeedService, Skein, event, failure } from "@skein-feed/client";

const skein = new Skein({ baseUrl: process.env.SKEIN_SERVER ?? "http://127.0.0.1:7411" });

// A fact. It is on disk when publish returns, and every later read of this client contains it.
await skein.publish([event("userFollowed", { userId: "you", targetUserId: "greta" })]);

// The feed, page by page as it is read.
for await (const entry of skein.each(FeedService.method.readFeed, { readerId: "you", pageSize: 20 })) {
  console.log(`${entry.ownerId} pinned ${entry.pinId}`);
}

// Errors carry a reason for programs.
try {
  await skein.publish([event("userFollowed", { userId: "you", targetUserId: "you" })]);
} catch (err) {
  if (failure(err)?.reason !== "SELF_RELATION") throw err;
  console.log("nobody follows themselves");
}

// What happens from now on. The first message says where that is, and has no event.
for await (const { event: happened } of skein.watch({ kinds: ["reacted"] })) {
  if (happened?.kind.case === "reacted") {
    console.log(`${happened.kind.value.userId} likes ${happened.kind.value.itemId}`);
    break;
  }
  await skein.publish([event("reacted", { userId: "you", itemId: "crust" })]);
}
