import assert from "node:assert/strict";
import { execSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import type { DescMethod, DescMethodUnary } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import {
  AdminService,
  CounterService,
  EventService,
  type Failure,
  FeedService,
  GraphService,
  PublishWait,
  SeenService,
  Session,
  Skein,
  type WatchResponse,
  event,
  failure,
} from "@skein-feed/client";
import { Network, type Service, build, remove, serve, serveDemo } from "./service.js";

let service: Service | undefined;
let url: string;

before(async () => {
  build();
  service = await serve();
  url = service.url;
});

after(async () => {
  await service?.stop();
  remove();
});

// A stream that does not continue would wait for ever.
const stuck = { timeout: 60_000 };

const follow = (userId: string, targetUserId: string) => event("userFollowed", { userId, targetUserId });
const pin = (ownerId: string, pinId: string) => event("pinCreated", { pin: { ownerId, pinId } });

async function followers(skein: Skein, userId: string): Promise<number> {
  const { users } = await skein.graph.batchGetFollowCounts({ userIds: [userId] });
  return users[0]!.followerCount;
}

/** Returns what a call threw. */
async function thrown(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    () => assert.fail("the call succeeded"),
    (err: unknown) => err,
  );
}

async function next(stream: AsyncGenerator<WatchResponse>): Promise<WatchResponse> {
  const { value, done } = await stream.next();
  assert.ok(!done, "the stream ended");
  return value;
}

async function nextEvent(stream: AsyncGenerator<WatchResponse>): Promise<WatchResponse> {
  for (;;) {
    const message = await next(stream);
    if (message.event) return message;
  }
}

test("a session reads its own writes", async () => {
  const skein = new Skein({ baseUrl: url });
  for (let i = 1; i <= 20; i++) {
    const { position } = await skein.publish([follow(`own${i}`, "own")]);
    assert.equal(skein.session.position, position);
    assert.equal(await followers(skein, "own"), i);
  }
});

test("ids are what people type", async () => {
  const skein = new Skein({ baseUrl: url });
  const names = ["علی\u200cرضا", "നന്\u200dമ", "👩\u200d👩\u200d👧\u200d👦", "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}"];
  await skein.publish(names.map((name) => follow(name, "typed")));
  const { entries } = await skein.graph.listFollowers({ userId: "typed" });
  assert.deepEqual(entries.map((e) => e.userId).sort(), names.sort());
  const refused = await thrown(skein.publish([follow("two words", "typed")]));
  assert.match(String(refused), /without white space/);
});

test("a session demands its position of every read, and leaves the request and the demands of the caller alone", async () => {
  const skein = new Skein({ baseUrl: url });
  const { position } = await skein.publish([follow("a", "demand")]);
  const later = laterThan(position);
  skein.session.remember(later);
  const request = { userIds: ["demand"] };
  assert.equal(failure(await thrown(skein.graph.batchGetFollowCounts(request)))?.reason, "INVALID_POSITION");
  assert.deepEqual(request, { userIds: ["demand"] });
  assert.equal((await skein.graph.batchGetFollowCounts({ ...request, atLeast: position })).users[0]!.followerCount, 1);
  const scan = skein.scanFollowers({ target: { case: "userId", value: "demand" } });
  assert.equal(failure(await thrown(scan.next()))?.reason, "INVALID_POSITION");
});

test("a session keeps the latest position of a log, and takes that of another log", () => {
  const at = (log: number, epoch: number, seq: number, ...slots: number[]) =>
    Buffer.from([slots.length ? 2 : 1, log, 0, 0, 0, epoch, seq, ...slots]).toString("base64url");
  const session = new Session();
  assert.equal(session.position, "");
  for (const [noted, kept] of [
    [at(1, 1, 5), at(1, 1, 5)],
    [at(1, 1, 4), at(1, 1, 5)],
    [at(1, 1, 6, 2), at(1, 1, 6, 2)],
    [at(1, 1, 6), at(1, 1, 6, 2)],
    [at(1, 2, 1), at(1, 2, 1)],
    [at(1, 1, 9), at(1, 2, 1)],
    ["", at(1, 2, 1)],
    ["no position", at(1, 2, 1)],
    [at(1, 2, 9) + "=", at(1, 2, 1)],
    [at(1, 2, 9) + "AA", at(1, 2, 1)],
    [at(1, 2, 200), at(1, 2, 1)],
    [at(7, 1, 1), at(7, 1, 1)],
  ] as const) {
    session.remember(noted);
    assert.equal(session.position, kept, `after ${noted}`);
  }
});

test("clients in sessions of their own know nothing of each other", async () => {
  const skein = new Skein({ baseUrl: url });
  const other = skein.inSession();
  const { position } = await skein.publish([follow("a", "sessions")]);
  assert.equal(other.session.position, "");
  assert.equal(skein.inSession(skein.session).session.position, position);
});

test("pages are read to their end", async () => {
  const skein = new Skein({ baseUrl: url });
  const fans = Array.from({ length: 7 }, (_, i) => `fan${i}`);
  await skein.publish(fans.map((fan) => follow(fan, "star")));
  const sizes: number[] = [];
  for await (const page of skein.pages(GraphService.method.listFollowers, { userId: "star", pageSize: 3 })) {
    sizes.push(page.entries.length);
  }
  assert.deepEqual(sizes, [3, 3, 1]);
  const found: string[] = [];
  for await (const entry of skein.each(GraphService.method.listFollowers, { userId: "star", pageSize: 3 })) found.push(entry.userId);
  assert.deepEqual(found, fans.toReversed());
});

test("the pages of a feed, whose token stands in a oneof, are read to their end", async () => {
  const skein = new Skein({ baseUrl: url });
  const pins = Array.from({ length: 5 }, (_, i) => `pin${i}`);
  await skein.publish([
    follow("reader", "owner"),
    ...pins.map((pinId) => event("pinCreated", { pin: { ownerId: "owner", pinId } })),
  ]);
  const found: string[] = [];
  for await (const entry of skein.each(FeedService.method.readFeed, { readerId: "reader", pageSize: 2 })) found.push(entry.pinId);
  assert.deepEqual(found, pins.toReversed());
});

test("each reads every list of the API to its end", async () => {
  const skein = new Skein({ baseUrl: url });
  const ids = ["x1", "x2", "x3"];
  await skein.publish(
    ids.flatMap((id) => [
      event("boardCreated", { board: { ownerId: id, boardId: "b" } }),
      event("boardCreated", { board: { ownerId: "lists", boardId: id } }),
      event("pinCreated", { pin: { ownerId: "lists", pinId: id } }),
      event("pinCreated", { pin: { ownerId: id, pinId: id } }),
      event("reacted", { userId: "lists", itemId: id }),
      event("reacted", { userId: id, itemId: "shared" }),
      event("itemHidden", { userId: "hides", itemId: id }),
      follow("lists", id),
      follow(id, "lists"),
      follow(id, "shared"),
      event("boardFollowed", { userId: "lists", board: { ownerId: id, boardId: "b" } }),
      event("boardFollowed", { userId: id, board: { ownerId: "lists", boardId: "x1" } }),
      event("userMuted", { userId: "mutes", targetUserId: id }),
      event("userBlocked", { userId: "blocks", targetUserId: id }),
      follow("excludes", id),
      event("boardUnfollowed", { userId: "excludes", board: { ownerId: id, boardId: "b" } }),
    ]),
  );
  for (const projection of ["graph", "seen", "counters"]) await skein.admin.verify({ projection });
  const user = { userId: "lists" };
  const requests: Record<string, object> = {
    ListFollowing: user,
    ListFollowers: user,
    ListBoardFollowers: { board: { ownerId: "lists", boardId: "x1" } },
    ListFollowedBoards: user,
    ListExcludedBoards: { userId: "excludes" },
    ListBoards: user,
    ListBlocked: { userId: "blocks" },
    ListMuted: { userId: "mutes" },
    ListMutuals: { viewerId: "lists", userId: "shared" },
    ReadFeed: { readerId: "lists" },
    ListPins: { target: { case: "ownerId", value: "lists" } },
    ListReactions: user,
    ListReactors: { itemId: "shared", viewerId: "lists" },
    ListLikes: user,
    ListHidden: { userId: "hides" },
    ListTrending: { scope: { case: "ownerId", value: "lists" } },
    ListOperations: {},
  };

  const methods: DescMethod[] = [EventService, GraphService, FeedService, SeenService, CounterService, AdminService].flatMap((s) => s.methods);
  const paged = methods.filter((m) => m.input.fields.some((f) => f.name === "page_token"));
  assert.deepEqual(paged.map((m) => m.name).filter((name) => !(name in requests)), ["GetStatus"]);
  for (const method of paged.filter((m) => m.name in requests)) {
    // The type of a method that is chosen at run time says nothing of its answer.
    const each = skein.each.bind(skein) as (method: DescMethod, request: object) => AsyncGenerator<object>;
    let count = 0;
    for await (const entry of each(method, { ...requests[method.name], pageSize: 1 })) {
      assert.ok("$typeName" in entry);
      count++;
    }
    assert.equal(count, 3, method.name);
  }
});

test("each and pages say why they do not read a method", async () => {
  const skein = new Skein({ baseUrl: url });
  const refused = async (stream: AsyncGenerator<unknown>) => ((await thrown(stream.next())) as TypeError).message;
  // @ts-expect-error: a page has projections, operations and rejected events
  const ofLists = await refused(skein.each(AdminService.method.getStatus, {}));
  assert.equal(ofLists, "GetStatus answers pages with several lists, projections, rejectedEvents, operations: read its pages with pages()");
  // @ts-expect-error: it has no pages
  const ofOne = await refused(skein.each(SeenService.method.listServed, { userId: "a" }));
  assert.equal(ofOne, "ListServed has no pages: call it with the generated client");
  // @ts-expect-error: it is a stream
  const ofStream = await refused(skein.pages(GraphService.method.scanFollowers, {}));
  assert.equal(ofStream, "ScanFollowers has no pages, and is a stream: call it with the generated client");
  const ofFunction = await refused(skein.each(skein.counters.listTrending as unknown as DescMethodUnary as never, {}));
  assert.equal(ofFunction, "a method is given by its description, such as GraphService.method.listFollowers, and not by a function of a generated client");
  assert.match(await refused(skein.each(undefined as never, {})), /description.*not by undefined$/);
});

test("an error of the network says where no answer came from, and why", async () => {
  const web = createServer((_, response) => response.writeHead(404, { "Content-Type": "text/html" }).end("<p>Not here</p>"));
  web.listen(0, "127.0.0.1");
  await once(web, "listening");
  const address = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
  const message = async (baseUrl: string) => ((await thrown(new Skein({ baseUrl }).graph.listFollowers({ userId: "a" }))) as ConnectError).message;
  assert.equal(await message(address), `[unimplemented] HTTP 404 from ${address}: is this the address of skein?`);
  web.close();
  web.closeAllConnections();
  await once(web, "close");
  assert.equal(await message(address), `[unavailable] no answer from ${address}: connect ECONNREFUSED ${address.slice("http://".length)}`);
  const unwatched = await thrown(new Skein({ baseUrl: address }).watch({}, { retryForMs: 0 }).next());
  assert.match((unwatched as ConnectError).message, /^\[unavailable\] no answer from .*ECONNREFUSED/);
  // localhost may be two addresses, and then there are two reasons.
  const local = address.replace("127.0.0.1", "localhost");
  assert.match(await message(local), /^\[unavailable\] no answer from http:\/\/localhost:\d+: connect ECONNREFUSED \S+:\d+/);
});

test("a stream that breaks says so", stuck, async () => {
  const network = await Network.to(url);
  const stream = new Skein({ baseUrl: network.url }).watch({}, { retryForMs: 0 });
  await next(stream);
  network.cut();
  assert.match(((await thrown(stream.next())) as ConnectError).message, /^\[unavailable\] no answer from http:\S+: \S/);
  network.close();
});

test("an address that fetch would not take is refused at once", () => {
  for (const baseUrl of ["localhost:7411", "127.0.0.1:7411", "", "/api"]) {
    assert.throws(() => new Skein({ baseUrl }), { name: "TypeError", message: /^baseUrl must begin with http:\/\/ or https:\/\/, .*; it is "/ }, baseUrl);
  }
});

test("an edit of a pin is in the feed, at the place of the pin", async () => {
  const skein = new Skein({ baseUrl: url });
  const [first, second] = ["first", "second"].map((pinId) => ({ ownerId: "edits", pinId }));
  await skein.publish([
    follow("reads-edits", "edits"),
    event("pinCreated", { pin: first!, attributes: new Uint8Array([1]) }),
    event("pinCreated", { pin: second! }),
  ]);
  await skein.publish([event("pinEdited", { pin: first!, attributes: new Uint8Array([2]) })], { wait: PublishWait.VISIBLE });
  const { entries } = await skein.feed.readFeed({ readerId: "reads-edits" });
  assert.deepEqual(entries.map((e) => [e.pinId, [...e.attributes], e.editTime !== undefined]), [["second", [], false], ["first", [2], true]]);
});

test("messages can be turned into JSON", async () => {
  const skein = new Skein({ baseUrl: url });
  const created = event("pinCreated", { pin: { ownerId: "json", pinId: "p" }, attributes: new Uint8Array([1, 2]) });
  assert.deepEqual(JSON.parse(JSON.stringify(created)).pinCreated.attributes, "AQI=");
  const { position } = await skein.publish([follow("reads", "json"), created], { wait: PublishWait.VISIBLE });
  const page = await skein.feed.readFeed({ readerId: "reads" });
  const [entry] = page.entries;
  const json = JSON.parse(JSON.stringify({ entry, at: entry!.createTime, position }));
  assert.deepEqual([json.entry.pinId, json.entry.attributes, json.at, json.position], ["p", "AQI=", json.entry.createTime, position]);
  assert.equal(Math.floor(Date.parse(json.at) / 1000), Number(entry!.createTime!.seconds));
  const { counters } = await skein.counters.batchGetCounters({ keys: [{ target: { case: "userId", value: "json" } }] });
  assert.equal(JSON.parse(JSON.stringify(counters))[0].pinCount, 1);
  assert.deepEqual(JSON.parse(JSON.stringify(await skein.feed.readFeed({ readerId: "nobody" }))).entries, []);
  const streamed = await nextEvent(skein.watch({ after: "EARLIEST" }));
  assert.match(JSON.parse(JSON.stringify(streamed)).eventTime, /^2\d{3}-/);
  // A message still is its fields alone.
  assert.ok(!Object.keys(entry!).includes("toJSON"));
  assert.equal(structuredClone(entry)!.pinId, "p");
});

test("a Date is a time, and what is none is refused", async () => {
  const skein = new Skein({ baseUrl: url });
  const at = new Date(Date.now() - 60_000);
  const read = event("feedRead", { userId: "dates", readTime: at });
  assert.ok(read.kind.case === "feedRead");
  assert.equal(timestampDate(read.kind.value.readTime!).getTime(), at.getTime());
  const init = { occurredAt: at, source: "dates", offset: 1n, kind: { case: "played", value: { userId: "dates", itemId: "i" } } } as const;
  await skein.publish([{ kind: { case: "feedRead", value: { userId: "dates", readTime: at } } }, init], { wait: PublishWait.VISIBLE });
  assert.equal(init.occurredAt, at);
  assert.equal(timestampDate((await skein.feed.readFeed({ readerId: "dates" })).readTime!).getTime(), at.getTime());
  // The generated client takes the same in plain JavaScript.
  const later = new Date(at.getTime() + 1000);
  const request = { events: [{ eventId: "dates", kind: { case: "feedRead", value: { userId: "dates", readTime: later } } }], wait: PublishWait.VISIBLE };
  await skein.events.publish(request as never);
  assert.equal(timestampDate((await skein.feed.readFeed({ readerId: "dates" })).readTime!).getTime(), later.getTime());

  for (const [readTime, message] of [
    ["2026-01-01", 'feedRead.readTime must be a Date, or a Timestamp with seconds and nanos; it is "2026-01-01"'],
    [1767225600000, "feedRead.readTime must be a Date, or a Timestamp with seconds and nanos; it is 1767225600000"],
    [{}, "feedRead.readTime must be a Date, or a Timestamp with seconds and nanos; it is an object without them"],
    [new Date(NaN), "feedRead.readTime is an invalid Date"],
  ] as const) {
    assert.throws(() => event("feedRead", { userId: "dates", readTime: readTime as Date }), { name: "TypeError", message });
  }
  const wrong = [init, { ...init, occurredAt: "now" as unknown as Date }];
  assert.equal(((await thrown(skein.publish(wrong))) as TypeError).message.split(" ")[0], "events[1].occurredAt");
  assert.deepEqual(event("feedRead", { readTime: timestampFromDate(at) }).kind, event("feedRead", { readTime: at }).kind);
});

test("calls are binary, or JSON where that is wanted", async () => {
  const { fetch } = globalThis;
  const types: string[] = [];
  globalThis.fetch = async (input, init) => {
    const response = await fetch(input, init);
    types.push(`${new Headers(init?.headers).get("Content-Type")} ${response.headers.get("Content-Type")}`);
    return response;
  };
  try {
    for (const options of [{}, { json: true }]) {
      const skein = new Skein({ baseUrl: url, ...options });
      await skein.publish([follow("format", "star")]);
      assert.equal((await skein.inSession(skein.session).graph.batchGetFollowCounts({ userIds: ["format"] })).users[0]!.followingCount, 1);
      const stream = skein.watch();
      await next(stream);
      await stream.return();
    }
  } finally {
    globalThis.fetch = fetch;
  }
  const pair = (type: string) => `application/${type} application/${type}`;
  assert.deepEqual(types, ["proto", "proto", "connect+proto", "json", "json", "connect+json"].map(pair));
  assert.throws(() => new Skein({ transport: createGrpcTransport({ baseUrl: url }), json: true }), /json belongs to baseUrl/);
});

test("an error has a reason, the fields at fault, and what belongs to the reason", async () => {
  const skein = new Skein({ baseUrl: url });
  const refused = failure(await thrown(skein.publish([follow("ann", "bob"), follow("ann", "ann")])));
  assert.equal(refused?.reason, "SELF_RELATION");
  assert.equal(refused.code, Code.InvalidArgument);
  assert.deepEqual(
    refused.violations.map((v) => [v.field, v.reason]),
    [["events[1].user_followed.target_user_id", "SELF_RELATION"]],
  );
  assert.equal(refused.retryDelayMs, undefined);
  const later = new ConnectError("of a later version", Code.Aborted);
  later.details.push({ type: "google.rpc.ErrorInfo", value: Buffer.from("\x0a\x03NEW\x12\x05skein\x1a\x06\x0a\x01a\x12\x01b", "latin1") });
  assert.deepEqual([failure(later)?.reason, failure(later)?.metadata], ["UNSPECIFIED", { a: "b" }]);
  assert.equal(failure(new ConnectError("of somebody else", Code.Unavailable)), undefined);
  assert.equal(failure(new Error("no call at all")), undefined);
});

/** The reason selects the type of the metadata. */
export function selects(refused: Failure): string | undefined {
  if (refused.reason !== "POSITION_TRIMMED") return undefined;
  // @ts-expect-error: this belongs to another reason
  void refused.metadata.role;
  return refused.metadata.earliest;
}

test("the same event id again is named as a repeat", async () => {
  const skein = new Skein({ baseUrl: url });
  const play = event("played", { userId: "ann", itemId: "repeated" });
  const options = { wait: PublishWait.VISIBLE };
  const first = await skein.publish([play], options);
  assert.deepEqual([first.repeatsKnown, first.repeatedIndexes], [true, []]);
  const second = await skein.publish([play], options);
  assert.deepEqual([second.repeatsKnown, second.repeatedIndexes, second.eventIds], [true, [0], [play.eventId]]);
});

test("a publish whose answer was lost is tried again, and does not count twice", async () => {
  const network = await Network.to(url);
  try {
    const skein = new Skein({ baseUrl: network.url });
    network.answersToLose = 2;
    const played = { kind: { case: "played" as const, value: { userId: "ann", itemId: "lost" } } };
    const published = await skein.publish([played], { wait: PublishWait.VISIBLE });
    assert.equal(network.answersToLose, 0);
    assert.deepEqual([published.repeatsKnown, published.repeatedIndexes], [true, [0]]);
    assert.ok(!("eventId" in played), "the event of the caller was changed");
    const { counters } = await skein.counters.batchGetCounters({ keys: [{ target: { case: "itemId", value: "lost" } }] });
    assert.equal(counters[0]!.playCount, 1n);
  } finally {
    network.close();
  }
});

test("a publish that is refused, or ended by its caller, is not tried again", async () => {
  const network = await Network.to(url);
  network.close();
  const skein = new Skein({ baseUrl: network.url });
  await assert.rejects(skein.publish([follow("ann", "bob")], { retryForMs: 0 }), ConnectError);
  const ending = new AbortController();
  const publishing = thrown(skein.publish([follow("ann", "bob")], { retryForMs: Infinity, signal: ending.signal }));
  ending.abort();
  assert.equal(ConnectError.from(await publishing).code, Code.Canceled);
});

test("a stream continues after the last event where it breaks", stuck, async () => {
  const network = await Network.to(url);
  const skein = new Skein({ baseUrl: url });
  const stream = new Skein({ baseUrl: network.url }).watch({ kinds: ["reacted"] });
  try {
    assert.equal((await next(stream)).event, undefined); // says where the stream begins
    const like = (itemId: string) => event("reacted", { userId: "watch", itemId });
    await skein.publish([like("1"), like("2"), like("3")]);
    const seen: (string | undefined)[] = [];
    for (let i = 0; i < 5; i++) {
      const { event: happened } = await nextEvent(stream);
      seen.push(happened?.kind.case === "reacted" ? happened.kind.value.itemId : undefined);
      network.cut(); // in the middle of what was published together
      if (i === 0) await skein.publish([like("4"), like("5")]);
    }
    assert.deepEqual(seen, ["1", "2", "3", "4", "5"]);
  } finally {
    await stream.return();
    network.close();
  }
});

test("a watched feed has the final number, also where the stream breaks", stuck, async () => {
  const network = await Network.to(url);
  const skein = new Skein({ baseUrl: url });
  const stream = new Skein({ baseUrl: network.url }).watchFeed({ readerId: "badge" });
  const reaches = async (count: number) => {
    for (;;) {
      const next = await stream.next();
      assert(!next.done);
      if (next.value.count === count) return;
    }
  };
  try {
    await reaches(0);
    await skein.publish([follow("badge", "pinner"), pin("pinner", "1"), pin("pinner", "2")]);
    await reaches(2);
    network.cut();
    await skein.publish([pin("pinner", "3")]);
    await reaches(3);
  } finally {
    await stream.return();
    network.close();
  }
});

test("a stream continues where it falls silent", stuck, async () => {
  const network = await Network.to(url);
  const stream = new Skein({ baseUrl: network.url }).watch({ kinds: ["unreacted"] }, { idleTimeoutMs: 500, retryForMs: Infinity });
  try {
    const begin = await next(stream);
    network.silence();
    const resumed = await next(stream);
    assert.deepEqual([begin.event, resumed.event], [undefined, undefined]);
  } finally {
    await stream.return();
    network.close();
  }
});

test("a stream ends when its caller ends it, and fails where the service refuses it", stuck, async () => {
  const skein = new Skein({ baseUrl: url });
  const ending = new AbortController();
  const stream = skein.watch({}, { signal: ending.signal });
  await next(stream);
  const pending = thrown(stream.next());
  ending.abort();
  assert.equal(ConnectError.from(await pending).code, Code.Canceled);
  const refused = failure(await thrown(skein.watch({ after: "no position" }).next()));
  assert.equal(refused?.reason, "INVALID_POSITION");
});

test("a scan reads all followers", async () => {
  const skein = new Skein({ baseUrl: url });
  const fans = Array.from({ length: 1000 }, (_, i) => `scan${i}`);
  await skein.publish(fans.map((fan) => follow(fan, "scanned")));
  await skein.publish([follow("one-more", "scanned")]);
  const found = new Set<string>();
  for await (const { entries } of skein.scanFollowers({ target: { case: "userId", value: "scanned" } })) {
    for (const entry of entries) found.add(entry.userId);
  }
  assert.equal(found.size, 1001);
});

test("another transport carries the session, the token and the streams", async () => {
  let asked = 0;
  const skein = new Skein({
    transport: createGrpcTransport({
      baseUrl: url,
      interceptors: [
        (call) => (request) => {
          assert.equal(request.header.get("Authorization"), `Bearer ${asked}`);
          return call(request);
        },
      ],
    }),
    token: () => `${++asked}`,
  });
  await skein.publish([follow("a", "grpc")]);
  assert.equal(await followers(skein, "grpc"), 1);
  const stream = skein.watch();
  assert.equal((await next(stream)).event, undefined);
  await stream.return();
  assert.equal(asked, 3);
});

test("the example of the README prints with the demo what it says", async () => {
  const readme = readFileSync("README.md", "utf8");
  const [, shown] = /^```ts\n(.*?)^```$/ms.exec(readme)!;
  assert.equal(shown, readFileSync("test/readme.ts", "utf8"));
  const demo = await serveDemo();
  process.env.SKEIN_SERVER = demo.url;
  const lines: string[] = [];
  const log = console.log;
  console.log = (line: string) => lines.push(line);
  try {
    await import("./readme.js");
  } finally {
    console.log = log;
    await demo.stop();
  }
  const [, printed] = /^```text\n(.*?)^```$/ms.exec(readme)!;
  assert.equal(lines.join("\n") + "\n", printed);
});

test("what would be published is the client, its types, README and license", () => {
  const packed = execSync("npm pack --dry-run --json --ignore-scripts", { encoding: "utf8" });
  const { filename, files } = JSON.parse(packed)[0] as { filename: string; files: { path: string }[] };
  assert.ok(readFileSync("README.md", "utf8").includes(`/${filename}\n`), `the README does not install ${filename}`);
  const names = files.map((f) => f.path);
  for (const name of ["README.md", "LICENSE", "package.json", "dist/index.js", "dist/index.d.ts", "dist/gen/skein/v1/event_pb.js"]) {
    assert.ok(names.includes(name), `${name} is missing`);
  }
  const others = names.filter((name) => !/^dist\/.*\.(js|d\.ts)$|^(README\.md|LICENSE|package\.json)$/.test(name));
  assert.deepEqual(others, []);
  assert.equal(readFileSync("LICENSE", "utf8"), readFileSync("../../../LICENSE", "utf8"));
});

/** Returns a position of the same log that it will not reach in this test. */
function laterThan(position: string): string {
  const bytes = Buffer.from(position, "base64url");
  return Buffer.concat([bytes.subarray(0, 6), Buffer.from([0xff, 0xff, 0xff, 0x7f])]).toString("base64url");
}
