// A small video app: upload, follow, feed, like, play, counts. docs/quickstart-app.md runs it.

import { createReadStream, createWriteStream, existsSync, mkdirSync } from "node:fs";
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import { pipeline } from "node:stream/promises";
import { Skein, event, failure } from "@skein-feed/client";

const skein = new Skein({ baseUrl: process.env.SKEIN_SERVER ?? "http://127.0.0.1:7411" });
mkdirSync("videos", { recursive: true });

// Each user has a session, so that everyone sees at once what they did themselves.
const sessions = new Map<string, Skein>();
function sessionOf(user: string): Skein {
  if (!sessions.has(user)) sessions.set(user, skein.inSession());
  return sessions.get(user)!;
}

// The file stays here. skein learns that there is a video: a pin, whose attributes carry the title to every feed.
async function upload(user: string, title: string, body: IncomingMessage): Promise<unknown> {
  const id = crypto.randomUUID();
  await pipeline(body, createWriteStream(`videos/${id}`));
  const pin = { ownerId: user, pinId: id };
  await sessionOf(user).publish([event("pinCreated", { pin, attributes: new TextEncoder().encode(title) })]);
  return { id };
}

// What a user may do besides. Each action publishes one fact.
const actions = {
  follow: (userId: string, targetUserId: string) => event("userFollowed", { userId, targetUserId }),
  unfollow: (userId: string, targetUserId: string) => event("userUnfollowed", { userId, targetUserId }),
  like: (userId: string, itemId: string) => event("reacted", { userId, itemId }),
  unlike: (userId: string, itemId: string) => event("unreacted", { userId, itemId }),
  play: (userId: string, itemId: string) => event("played", { userId, itemId }),
};

// The newest videos of those whom the user follows, with counts. A video that the user has played is left out if unseen is set.
async function feed(user: string, unseen: boolean): Promise<unknown> {
  const session = sessionOf(user);
  const { entries } = await session.feed.readFeed({ readerId: user, includeOwn: true, hideSeen: unseen });
  if (entries.length === 0) return [];
  const keys = entries.map(({ itemId }) => ({ target: { case: "itemId" as const, value: itemId } }));
  const [{ counters }, { states }] = await Promise.all([
    session.counters.batchGetCounters({ keys, reactionKinds: ["like"] }),
    session.feed.batchGetViewerState({ viewerId: user, keys }),
  ]);
  return entries.map(({ itemId, ownerId, attributes }, i) => ({
    id: itemId, owner: ownerId, title: new TextDecoder().decode(attributes),
    plays: Number(counters[i]!.playCount), likes: counters[i]!.reactions[0]!.count, liked: states[i]!.reactions.includes("like"),
  }));
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url!, "http://localhost");
  const [, path, argument = ""] = url.pathname.split("/").map(decodeURIComponent);
  const user = url.searchParams.get("user") ?? ""; // who it is: yours comes from a login
  const send = (value: unknown) => response.setHeader("Content-Type", "application/json").end(JSON.stringify(value) + "\n");

  if (path === "" && request.method === "GET") {
    response.setHeader("Content-Type", "text/html; charset=utf-8").end(page);
  } else if (path === "videos" && request.method === "GET" && /^[0-9a-f-]{36}$/.test(argument) && existsSync(`videos/${argument}`)) {
    await pipeline(createReadStream(`videos/${argument}`), response.setHeader("Content-Type", "video/mp4"));
  } else if (path === "videos" && request.method === "POST") {
    send(await upload(user, url.searchParams.get("title") ?? "", request));
  } else if (path === "feed" && request.method === "GET") {
    send(await feed(user, url.searchParams.has("unseen")));
  } else if (Object.hasOwn(actions, path!) && request.method === "POST") {
    await sessionOf(user).publish([actions[path as keyof typeof actions](user, argument)]);
    send({});
  } else {
    response.writeHead(404).end();
  }
}

const page = `<!doctype html><title>Videos</title>
<p>I am <input id=user value=ann> <button onclick=show()>Show my feed</button> <label><input id=unseen type=checkbox> unseen only</label>
<p><input id=whom placeholder="user to follow"> <button onclick="act('follow', whom.value)">Follow</button>
<p><input id=title placeholder="title of a new video"> <input id=file type=file accept=video/*> <button onclick=send()>Upload</button>
<div id=list></div>
<script>
const call = async (path, options) => {
  const answer = await fetch(path + (path.includes("?") ? "&" : "?") + "user=" + encodeURIComponent(user.value), options);
  if (!answer.ok) alert(await answer.text()); else return answer.json();
};
const act = async (action, about) => { await call(action + "/" + encodeURIComponent(about), { method: "POST" }); show(); };
const send = async () => { await call("videos?title=" + encodeURIComponent(title.value), { method: "POST", body: file.files[0] }); show(); };
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
const show = async () => list.replaceChildren(...(await call("feed" + (unseen.checked ? "?unseen" : ""))).flatMap((v) => [
  make("h3", { textContent: v.owner + ": " + v.title + " (" + v.plays + " plays, " + v.likes + " likes)" }),
  make("video", { src: "videos/" + v.id, controls: true, width: 480, onended: () => act("play", v.id) }),
  make("button", { textContent: v.liked ? "Unlike" : "Like", onclick: () => act(v.liked ? "unlike" : "like", v.id) }),
]));
show();
</script>`;

createServer((request, response) => {
  answer(request, response).catch((err: unknown) => {
    const refused = failure(err);
    response.writeHead(refused ? 400 : 500).end(refused?.message ?? "the video app failed");
    if (!refused) console.error(err);
  });
}).listen(7420, "127.0.0.1");
