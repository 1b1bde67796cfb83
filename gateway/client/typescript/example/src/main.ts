import { type FeedEntry, FollowKind, type ReadFeedResponse, Skein, event, failure } from "@skein-feed/client";

const people = ["ann", "bob", "cid", "dora"];
const refreshMs = 2_000;

const skein = new Skein({ baseUrl: import.meta.env.VITE_SKEIN ?? "http://127.0.0.1:7411" });

const element = <E extends HTMLElement>(id: string) => document.getElementById(id) as E;
const me = element<HTMLSelectElement>("me");
const text = element<HTMLInputElement>("text");
const feed = element<HTMLUListElement>("feed");
const older = element<HTMLButtonElement>("older");

// Where the feed on the page begins and ends.
let newest = "";
let next = "";

/** Shows who there is to follow. */
async function showPeople(): Promise<void> {
  const others = people.filter((id) => id !== me.value);
  const [{ relationships }, { users }] = await Promise.all([
    skein.graph.batchGetRelationships({ viewerId: me.value, userIds: others }),
    skein.graph.batchGetFollowCounts({ userIds: others }),
  ]);
  const items = relationships.map(({ userId, following }, i) => {
    const follows = following === FollowKind.EXPLICIT;
    const button = document.createElement("button");
    button.textContent = follows ? "Unfollow" : "Follow";
    button.onclick = () => run(() => follow(userId, !follows));
    const item = document.createElement("li");
    item.append(`${userId} `, small(`${users[i]!.followerCount} followers`), button);
    return item;
  });
  element("people").replaceChildren(...items);
}

/** Both reads come after the publish, so they show the follow: they are calls of one session. */
async function follow(targetUserId: string, begins: boolean): Promise<void> {
  await skein.publish([event(begins ? "userFollowed" : "userUnfollowed", { userId: me.value, targetUserId })]);
  await Promise.all([showPeople(), showFeed()]);
}

async function post(): Promise<void> {
  const pin = { ownerId: me.value, pinId: crypto.randomUUID() };
  await skein.publish([event("pinCreated", { pin, attributes: new TextEncoder().encode(text.value) })]);
  text.value = "";
  await showNewer();
}

/** Shows the feed from its top. */
async function showFeed(): Promise<void> {
  const page = await skein.feed.readFeed({ readerId: me.value, includeOwn: true });
  feed.replaceChildren(...page.entries.map(entry));
  newest = page.newestToken;
  showEnd(page);
}

/** Shows what is new above the feed on the page. */
async function showNewer(): Promise<void> {
  const page = await skein.feed.readFeed({ readerId: me.value, includeOwn: true, start: { case: "newerThan", value: newest } });
  if (page.nextPageToken !== "") return showFeed(); // more than a page is new
  feed.prepend(...page.entries.map(entry));
  newest = page.newestToken;
}

async function showOlder(): Promise<void> {
  const page = await skein.feed.readFeed({ readerId: me.value, includeOwn: true, start: { case: "pageToken", value: next } });
  feed.append(...page.entries.map(entry));
  showEnd(page);
}

function showEnd(page: ReadFeedResponse): void {
  next = page.nextPageToken;
  older.hidden = next === "";
}

function entry({ ownerId, attributes, createTime }: FeedEntry): HTMLLIElement {
  const at = new Date(Number(createTime?.seconds ?? 0n) * 1000);
  const item = document.createElement("li");
  item.append(`${ownerId}: ${new TextDecoder().decode(attributes)} `, small(at.toLocaleTimeString()));
  return item;
}

function small(content: string): HTMLElement {
  const found = document.createElement("small");
  found.textContent = content;
  return found;
}

// One action at a time: what is shown is then never older than what was shown before.
let last = Promise.resolve();

/** Runs an action after those before it, and shows why it failed. */
function run(action: () => Promise<void>): Promise<void> {
  last = last.then(action).then(
    () => showProblem(""),
    (err: unknown) => showProblem(failure(err)?.message ?? String(err)),
  );
  return last;
}

function showProblem(problem: string): void {
  element("problem").textContent = problem;
}

function begin(): void {
  void run(async () => {
    await Promise.all([showPeople(), showFeed()]);
  });
}

me.append(...people.map((id) => new Option(id)));
me.value = localStorage.getItem("me") ?? people[0]!;
me.onchange = () => {
  localStorage.setItem("me", me.value);
  begin();
};
element("post").onsubmit = (submitted) => {
  submitted.preventDefault();
  void run(post);
};
older.onclick = () => run(showOlder);
begin();

async function refresh(): Promise<void> {
  if (!document.hidden) await run(showNewer);
  setTimeout(refresh, refreshMs);
}
setTimeout(refresh, refreshMs);
