import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { DescMethod } from "@bufbuild/protobuf";
import { AdminService, CounterService, EventService, FeedService, GraphService, NotificationService, SeenService, Skein, failure } from "@skein-feed/client";
import type { Browser, Locator, Page } from "playwright-core";
import { roleOf } from "../src/roles.js";
import { launch, open, patienceMs, picture, show } from "./browser.js";
import { type Service, call, crowd, folder, program, remove, stableAddress, start, traffic } from "./service.js";

let browser: Browser;

before(async () => {
  browser = await launch();
});

after(async () => {
  await browser?.close();
  remove();
});

/** Waits until a text is in the page. */
async function waitForText(page: Page, text: string | RegExp): Promise<void> {
  await page.getByText(text).first().waitFor();
}

/** Every screen, and a text that tells that what it shows has come. */
const screens = [
  ["pipeline", "From the log to the stores"],
  ["phones?left=ada&right=greta", "watching"],
  ["why?reader=ada&owner=greta&pin=tomatoes", "Not in the feed"],
  ["user?id=ada&other=greta", "Publish: ada unfollows greta"],
  ["operations", "the latest first"],
  ["cluster", "no node of a cluster"],
  ["events?earliest=1&users=olga", "lucena"],
  ["try?method=FeedService/ReadFeed", "skein.v1.ReadFeedRequest"],
  ["hot", "frame-1952"],
] as const;

/** The texts of what is shown as good. */
function greenTexts(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const good = getComputedStyle(document.documentElement).getPropertyValue("--good");
    const isGood = (e: Element) => getComputedStyle(e).getPropertyValue("--tone") === good;
    return [...document.querySelectorAll(".good, .picture .dot, .flow .dots")].filter(isGood).map((e) => e.textContent || e.outerHTML);
  });
}

/** Reports whether a user follows another, as the service says. */
async function follows(url: string, userId: string, targetUserId: string): Promise<boolean> {
  const answer = await call(url, "GraphService/CheckFollows", { pairs: [{ userId, targetUserId }] });
  return JSON.stringify(answer).includes("FOLLOW_KIND_EXPLICIT");
}

/** The phone of a user. */
function phoneOf(page: Page, user: string): Locator {
  return page.getByRole("region", { name: `Phone of ${user}` });
}

/** The entry of a phone's feed that shows an item by a pin of an owner. */
function postOf(phone: Locator, item: string, owner: string): Locator {
  return phone.getByRole("listitem", { name: `${item} of ${owner}`, exact: true });
}

/** The least contrast of a text and what is behind it, among the texts of a part of the page, and that text. */
function leastContrast(of: Locator): Promise<{ contrast: number; text: string }> {
  return of.evaluate((part) => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true })!;
    const luminanceOf = (color: string) => {
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => {
        const share = v / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
    };
    const backOf = (e: Element): string => {
      const back = getComputedStyle(e).backgroundColor;
      return /rgba\(0, 0, 0, 0\)|transparent/.test(back) ? backOf(e.parentElement!) : back;
    };
    const hasText = (e: Element) => [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent!.trim() !== "");
    const isDisabled = (e: Element) => e.closest("button")?.disabled ?? false;
    const contrasts = [...part.querySelectorAll("*")]
      .filter((e) => hasText(e) && e.checkVisibility() && !isDisabled(e))
      .map((e) => {
        const [light, dark] = [luminanceOf(getComputedStyle(e).color), luminanceOf(backOf(e))].sort((a, b) => b - a);
        return { contrast: (light! + 0.05) / (dark! + 0.05), text: e.textContent! };
      });
    return contrasts.sort((a, b) => a.contrast - b.contrast)[0]!;
  });
}

describe("with the users of the demo", () => {
  let demo: Service;
  before(async () => {
    demo = await start("demo", "--port", "0");
    await crowd(demo.url, 60);
  });
  after(() => demo?.stop());

  test("the pipeline moves, in words that need no glossary", async () => {
    const { page, check } = await open(browser, demo.url);
    const busy = traffic(demo.url);
    await page.getByRole("img", { name: /The log takes [\d.]+ events a second .* graph is ready/ }).waitFor();
    for (const store of ["graph", "inbox", "seen", "counters"]) await page.getByRole("rowheader", { name: store }).waitFor();
    await page.locator(".flow .dots").first().waitFor({ state: "attached" });
    const points = process.env["SKEIN_PICTURES"] === undefined ? 3 : 20;
    await page.waitForFunction((n) => (document.querySelector(".graph")?.getAttribute("points") ?? "").split(" ").length >= n, points);
    await waitForText(page, /\d % from memory alone/);
    await waitForText(page, "Nothing is wrong.");
    assert.doesNotMatch(await page.locator("main").innerText(), /envelope|merged|epoch|slot|fold\b|\d of \d+$/im);
    await picture(page, "pipeline");
    await busy.stop();
    check();
    await page.context().close();
  });

  test("the demo opens two phones, and what one does the other shows", async () => {
    const address = demo.printed.map((line) => /http\S+\/console\/\S*/.exec(line)?.[0]).find((found) => found !== undefined);
    assert.equal(address, `${demo.url}/console/#/phones?left=ada&right=greta`);
    const { page, check } = await open(browser, demo.url);
    await page.goto(address);
    const [ada, greta] = [phoneOf(page, "ada"), phoneOf(page, "greta")];
    const published = page.getByRole("table", { name: "Published events" });
    await postOf(ada, "crust", "greta").waitFor();
    await page.getByRole("status").getByText("watching").waitFor();

    // The first button asks, and nothing is published before the answer.
    await ada.getByLabel("What to pin").fill("  lamp post ");
    await ada.getByRole("button", { name: "Pin", exact: true }).click();
    await page.getByRole("dialog").getByText("You are asked this once.").waitFor();
    assert.equal(await published.getByText("pin_created").count(), 0);
    await page.getByRole("dialog").getByRole("button", { name: "Publish" }).click();
    await postOf(ada, "lamp-post", "ada").waitFor();
    await postOf(greta, "lamp-post", "ada").waitFor();
    await published.getByRole("row", { name: /pin_created.*lamp-post/ }).waitFor();

    await postOf(greta, "lamp-post", "ada").getByRole("button", { name: "Like 0" }).click();
    await postOf(ada, "lamp-post", "ada").getByRole("button", { name: "Like 1", pressed: false }).waitFor();
    await postOf(greta, "lamp-post", "ada").getByRole("button", { name: "Like 1", pressed: true }).waitFor();
    await published.getByRole("row", { name: /reacted.*"pin":\{"ownerId":"ada","pinId":"lamp-post"\}/ }).waitFor();
    await postOf(greta, "lamp-post", "ada").getByRole("button", { name: "Re-pin 0" }).click();
    await postOf(ada, "lamp-post", "greta").getByText("re-pin of a pin of ada").waitFor();
    await postOf(ada, "lamp-post", "ada").getByText("1 re-pin", { exact: true }).waitFor();
    await published.getByRole("row", { name: /pin_created.*"repinOf":\{"ownerId":"ada","pinId":"lamp-post"\}/ }).waitFor();
    await picture(page, "phones");
    await postOf(greta, "lamp-post", "ada").getByRole("button", { name: "Re-pin 1", pressed: true }).click();
    await postOf(ada, "lamp-post", "greta").waitFor({ state: "detached" });
    await postOf(greta, "lamp-post", "ada").getByRole("button", { name: "Like 1", pressed: true }).click();
    await postOf(ada, "lamp-post", "ada").getByRole("button", { name: "Like 0" }).waitFor();

    // A hidden item leaves one feed. The other user learns nothing of it.
    await postOf(greta, "lamp-post", "ada").getByRole("button", { name: "Hide" }).click();
    await postOf(greta, "lamp-post", "ada").waitFor({ state: "detached" });
    await published.getByRole("row", { name: /item_hidden.*lamp-post/ }).waitFor();
    await postOf(ada, "lamp-post", "ada").waitFor();
    await greta.getByRole("button", { name: "Show again" }).click();
    await postOf(greta, "lamp-post", "ada").waitFor();

    // The bell has what happened before, without whom ada mutes and blocks.
    await ada.getByRole("button", { name: /^Notifications \d+$/ }).click();
    const notifications = ada.getByRole("list", { name: "Notifications of ada" });
    await notifications.getByRole("listitem", { name: /greta.* window-seat$/ }).waitFor();
    await notifications.getByRole("listitem", { name: /noor.* re-pinned window-seat$/ }).waitFor();
    await notifications.getByRole("listitem", { name: /followed you$/ }).first().waitFor();
    assert.doesNotMatch(await notifications.innerText(), /ivan|chen/);
    await ada.locator(".badge").waitFor({ state: "detached" });
    await picture(page, "notifications");
    await ada.getByRole("button", { name: "Notifications" }).click();

    // Other programs publish, too, also for users that neither phone has.
    await call(demo.url, "EventService/Publish", { events: [{ pinCreated: { pin: { ownerId: "noor", pinId: "comet" } } }] });
    await postOf(ada, "comet", "noor").waitFor();
    assert.equal(await published.getByText("comet").count(), 0);
    check();
    await page.context().close();
  });

  test("what one phone does is a notification on the other", async () => {
    const { page, check } = await open(browser, demo.url);
    await show(page, "phones?left=otto&right=pia");
    const [otto, pia] = [phoneOf(page, "otto"), phoneOf(page, "pia")];
    const bellOf = (phone: Locator, badge: string) => phone.getByRole("button", { name: `Notifications ${badge}`, exact: true });
    const published = page.getByRole("table", { name: "Published events" });
    await page.getByRole("status").getByText("watching").waitFor();
    await otto.getByLabel("What to pin").fill("bench");
    await otto.getByRole("button", { name: "Pin", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Publish" }).click();
    await postOf(otto, "bench", "otto").waitFor();
    await pia.getByRole("button", { name: "Follow", exact: true }).click();
    await bellOf(otto, "1").waitFor();
    await postOf(pia, "bench", "otto").getByRole("button", { name: "Like 0" }).click();
    await bellOf(otto, "2").waitFor();
    await postOf(pia, "bench", "otto").getByRole("button", { name: "Re-pin 0" }).click();
    await bellOf(otto, "3").waitFor();

    // To look at the notifications clears the badge. What comes while they are shown is seen at once, too.
    await bellOf(otto, "3").click();
    const group = (text: string) => otto.getByRole("listitem", { name: text, exact: true });
    for (const text of ["pia followed you", "pia liked bench", "pia re-pinned bench"]) await group(text).waitFor();
    await published.getByRole("row", { name: /notifications_seen.*otto/ }).waitFor();
    await otto.locator(".badge").waitFor({ state: "detached" });
    await postOf(pia, "bench", "otto").getByRole("button", { name: "Wow 0" }).click();
    await group("pia reacted to bench").or(group("pia liked bench")).waitFor();
    await otto.locator(".badge").waitFor({ state: "detached" });

    // Groups are read one by one, or all at once.
    await group("pia followed you").getByRole("button", { name: "Mark as read" }).click();
    await group("pia followed you").getByRole("button").waitFor({ state: "detached" });
    await group("pia re-pinned bench").getByRole("button", { name: "Mark as read" }).waitFor();
    await otto.getByRole("button", { name: "Mark all as read" }).click();
    await otto.getByRole("button", { name: /^Mark/ }).first().waitFor({ state: "detached" });

    // Notifications end with their facts, and a block hides those that stand until it ends.
    await postOf(pia, "bench", "otto").getByRole("button", { name: /^Re-pin/, pressed: true }).click();
    await group("pia re-pinned bench").waitFor({ state: "detached" });
    await otto.getByRole("button", { name: "Block" }).click();
    await otto.getByText("Nobody did anything yet.").waitFor();
    await otto.getByRole("button", { name: "Unblock" }).click();
    await otto.getByRole("listitem", { name: /^pia (liked|reacted to) bench$/ }).waitFor();
    assert.equal(await group("pia followed you").count(), 0); // the block ended the follow
    check();
    await page.context().close();
  });

  test("a block on one phone empties both, and its end restores no follow", async () => {
    const follows = [["rosa", "ines"], ["ines", "rosa"]].map(([userId, targetUserId]) => ({ userFollowed: { userId, targetUserId } }));
    const pins = ["rosa", "ines"].map((ownerId) => ({ pinCreated: { pin: { ownerId, pinId: `note-of-${ownerId}` } } }));
    await call(demo.url, "EventService/Publish", { events: [...follows, ...pins], wait: "PUBLISH_WAIT_VISIBLE" });
    const { page, check } = await open(browser, demo.url);
    await show(page, "phones?left=rosa&right=ines");
    const [rosa, ines] = [phoneOf(page, "rosa"), phoneOf(page, "ines")];
    await postOf(ines, "note-of-rosa", "rosa").waitFor();
    await postOf(rosa, "note-of-ines", "ines").waitFor();
    await rosa.getByText("follows you").waitFor();

    await ines.getByRole("button", { name: "Block" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Publish" }).click();
    await postOf(ines, "note-of-rosa", "rosa").waitFor({ state: "detached" });
    await postOf(rosa, "note-of-ines", "ines").waitFor({ state: "detached" });
    await rosa.getByText("follows you").waitFor({ state: "detached" });
    assert.ok(await ines.getByRole("button", { name: "Follow", exact: true }).isDisabled());

    await ines.getByRole("button", { name: "Unblock" }).click();
    await ines.getByRole("button", { name: "Follow", exact: true }).click();
    await postOf(ines, "note-of-rosa", "rosa").waitFor();
    await rosa.getByText("follows you").waitFor();
    await rosa.getByRole("button", { name: "Follow", exact: true }).waitFor(); // rosa no longer follows ines
    assert.equal(await postOf(rosa, "note-of-ines", "ines").count(), 0);
    await ines.getByRole("button", { name: "Unfollow" }).click();
    await postOf(ines, "note-of-rosa", "rosa").waitFor({ state: "detached" });
    check();
    await page.context().close();
  });

  test("a phone shows why an event was refused", async () => {
    const { page, check } = await open(browser, demo.url);
    await show(page, "phones?left=hugo&right=zoe");
    const hugo = phoneOf(page, "hugo");
    await postOf(hugo, "frame-1952", "hugo").waitFor();
    await hugo.getByLabel("What to pin").fill("a\u202eb"); // a bidirectional control is in no id
    await hugo.getByRole("button", { name: "Pin", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Publish" }).click();
    await hugo.getByRole("alert").getByText("INVALID_FIELD").waitFor();
    check();
    await page.context().close();
  });

  test("one phone at a time on a narrow screen, by the keyboard alone", async () => {
    const { page, check } = await open(browser, demo.url, 390);
    await show(page, "phones?left=ines&right=olga");
    const [ines, olga] = [phoneOf(page, "ines"), phoneOf(page, "olga")];
    await postOf(ines, "saturn", "noor").or(postOf(ines, "lucena", "olga")).or(postOf(ines, "crust", "greta")).first().waitFor();
    assert.equal(await olga.isVisible(), false);
    const press = async (target: Locator, key: string) => {
      await target.waitFor();
      for (let tabs = 0; !(await target.evaluate((e) => e === document.activeElement)); tabs++) {
        assert.ok(tabs < 200, `the keyboard does not reach ${await target.textContent()}`);
        await page.keyboard.press("Tab");
      }
      await page.keyboard.press(key);
    };
    await press(page.getByRole("navigation", { name: "Phones" }).getByRole("link", { name: "olga" }), "Enter");
    await olga.waitFor();
    assert.equal(await ines.isVisible(), false);
    await press(postOf(olga, "lucena", "olga").getByRole("button", { name: "Wow 0" }), "Space");
    await press(page.getByRole("dialog").getByRole("button", { name: "Publish" }), "Enter");
    const wow = postOf(olga, "lucena", "olga").getByRole("button", { name: "Wow 1", pressed: true });
    await wow.waitFor();
    assert.ok(await wow.evaluate((e) => e === document.activeElement), "the focus stays where it was");
    await page.getByRole("table", { name: "Published events" }).getByText("reacted").waitFor();
    check();
    await page.context().close();
  });

  test("phones are legible in both color schemes", async () => {
    const { page, check } = await open(browser, demo.url);
    await show(page, "phones?left=ada&right=zoe");
    await postOf(phoneOf(page, "ada"), "crust", "greta").waitFor();
    await phoneOf(page, "zoe").getByRole("button", { name: /^Notifications/ }).click();
    await phoneOf(page, "zoe").getByText("Nobody did anything yet.").or(phoneOf(page, "zoe").getByRole("listitem").first()).waitFor();
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      for (const user of ["ada", "zoe"]) {
        const { contrast, text } = await leastContrast(phoneOf(page, user));
        assert.ok(contrast >= 4.5, `${colorScheme}: the contrast of “${text}” is ${contrast.toFixed(2)}`);
      }
    }
    check();
    await page.context().close();
  });

  test("a pin is in a feed, or the reasons are given why it is not", async () => {
    const { page, check } = await open(browser, demo.url);
    await page.getByRole("link", { name: "Why in my feed?" }).click();
    await page.getByLabel("Reader").fill("ada");
    await page.getByRole("button", { name: "Ask" }).click();
    await page.getByRole("row", { name: /frame-1952/ }).getByRole("link", { name: "Why?" }).click();
    await waitForText(page, /^In the feed: entry \d/);
    await page.getByLabel("Owner of the pin").fill("greta");
    await page.getByLabel("Pin", { exact: true }).fill("tomatoes");
    await page.getByRole("button", { name: "Ask" }).click();
    await waitForText(page, "Not in the feed");
    await waitForText(page, "ada follows greta, but excludes this board.");
    await picture(page, "why");
    check();
    await page.context().close();
  });

  test("a follow is published after it was confirmed as a permanent fact", async () => {
    const { page, check } = await open(browser, demo.url);
    await show(page, "user?id=visitor&other=hana");
    const follow = page.getByRole("button", { name: "Publish: visitor follows hana" });
    const unfollow = page.getByRole("button", { name: "Publish: visitor unfollows hana" });
    const dialog = page.getByRole("dialog");
    await follow.click();
    await dialog.getByText("This is a permanent fact.").waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await dialog.waitFor({ state: "detached" });
    assert.equal(await follows(demo.url, "visitor", "hana"), false);
    await follow.click();
    await dialog.getByRole("button", { name: "Publish" }).click();
    await unfollow.waitFor();
    await page.getByRole("table", { name: "Following" }).getByRole("link", { name: "hana" }).waitFor();
    assert.equal(await follows(demo.url, "visitor", "hana"), true);
    await unfollow.click();
    await dialog.getByText("Publish “visitor unfollows hana”?").waitFor();
    await dialog.getByRole("button", { name: "Publish" }).click();
    await follow.waitFor();

    await show(page, "user?id=ada&other=greta");
    await page.getByRole("button", { name: "Publish: ada unfollows greta" }).waitFor();
    await page.getByRole("table", { name: "Following" }).getByRole("link", { name: "greta" }).waitFor();
    await picture(page, "user");
    for (const [list, entry] of [["Boards excluded", "garden"], ["Muted", "chen"], ["Blocked", "ivan"]] as const) {
      await page.getByRole("navigation", { name: "Lists" }).getByRole("link", { name: list }).click();
      await page.getByRole("table", { name: list }).getByText(entry).waitFor();
    }
    check();
    await page.context().close();
  });

  test("a question ends with its screen", async () => {
    const { page, check } = await open(browser, demo.url);
    await show(page, "hot");
    await waitForText(page, "Lists by heat");
    for (const [screen, button] of [
      ["operations", "Rebuild"],
      ["user?id=visitor&other=greta", "Publish: visitor follows greta"],
      ["try?method=EventService/Publish", "Send"],
    ] as const) {
      await show(page, screen);
      await page.getByRole("button", { name: button, exact: true }).click();
      await page.getByRole("dialog").waitFor();
      await page.goBack();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await waitForText(page, "Lists by heat");
    }
    assert.equal(await follows(demo.url, "visitor", "greta"), false);
    check();
    await page.context().close();
  });

  test("a rebuild is watched from its start to its end", async () => {
    const { page, check } = await open(browser, demo.url);
    await show(page, "operations");
    const begin = async (what: string, share: string) => {
      await page.getByRole("combobox", { name: "What" }).selectOption({ label: what });
      await page.getByRole("combobox", { name: "Projection" }).selectOption("graph");
      await page.getByRole("combobox", { name: "Share of a core" }).selectOption({ label: share });
      await page.getByRole("button", { name: what, exact: true }).click();
      await page.getByRole("dialog").getByRole("button", { name: what }).click();
    };
    await begin("Rebuild", "10 %");
    const first = page.locator(".operations li").first();
    await first.getByText("running").waitFor();
    await first.getByRole("progressbar", { name: "Progress of rebuild graph" }).waitFor();
    await first.getByText(/ of [\d,]+ (messages of the log|events|partitions)/).waitFor();
    await picture(page, "operations");
    await first.getByText("succeeded").or(first.getByText("failed")).waitFor();
    assert.match(await first.innerText(), /succeeded/);
    await waitForTimes(first);
    await show(page, "pipeline");
    await page.getByText(/build [2-9]/).waitFor();
    await show(page, "operations");
    // So slow a verification cannot end before it is cancelled.
    await page.getByRole("combobox", { name: "Share of a core" }).evaluate((e) => (e as HTMLSelectElement).add(new Option("0.01 %", "0.0001")));
    await begin("Verify", "0.01 %");
    await first.getByText("verify graph").waitFor();
    await first.getByText("running").waitFor();
    await first.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel it" }).click();
    await first.getByText("cancelled").waitFor();
    check();
    await page.context().close();
  });

  test("any method may be tried", async () => {
    const { page, check } = await open(browser, demo.url);
    await show(page, "try");
    const select = page.getByLabel("Method");
    await select.waitFor();
    const names = await select.locator("option").evaluateAll((all) => all.map((o) => (o as HTMLOptionElement).value));
    assert.ok(names.length > 35, `${names.length} methods`);
    const path = (name: string) => page.getByText(`/skein.v1.${name}`, { exact: true });
    const snippet = page.locator(".snippets pre");
    const marks = { TypeScript: "new Skein(", Go: "client.Dial(", curl: "curl -s" };
    for (const name of names) {
      await select.selectOption(name);
      await path(name).waitFor();
      for (const [language, mark] of Object.entries(marks)) {
        await page.getByRole("button", { name: language, exact: true }).click();
        await snippet.getByText(mark).waitFor();
        assert.doesNotMatch(await snippet.innerText(), /not valid|undefined/, `${name} in ${language}`);
      }
    }
    await show(page, "try?method=FeedService/ReadFeed");
    await path("FeedService/ReadFeed").waitFor();
    await page.getByRole("button", { name: "Send" }).click();
    await waitForText(page, /FEED_COMPLETENESS_COMPLETE/);
    await picture(page, "try");
    // An empty feed has entries, and there are none.
    await page.getByLabel("as JSON").fill('{ "readerId": "nobody" }');
    await page.getByRole("button", { name: "Send" }).click();
    await waitForText(page, /"entries": \[\]/);
    await show(page, "try?method=GraphService/ScanFollowers");
    await path("GraphService/ScanFollowers").waitFor();
    await page.getByRole("button", { name: "Send" }).click();
    await waitForText(page, /"resumeToken"/);
    for (const [method, answer] of [["FeedService/ReadFeed", "FEED_COMPLETENESS_COMPLETE"], ["GraphService/ScanFollowers", "resumeToken"]] as const) {
      await show(page, `try?method=${method}`);
      await path(method).waitFor();
      const command = await page.locator(".snippets pre", { hasText: `/skein.v1.${method}` }).innerText();
      assert.ok(execFileSync("bash", ["-c", command], { encoding: "utf8" }).includes(answer), command);
    }
    await show(page, "try?method=EventService/Publish");
    await path("EventService/Publish").waitFor();
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("dialog").getByText("Each event is a permanent fact.").waitFor();
    check();
    await page.context().close();
  });

  test("lists by heat", async () => {
    const { page, check } = await open(browser, demo.url);
    await page.getByRole("link", { name: "Hot" }).click();
    await page.getByRole("row", { name: /frame-1952/ }).waitFor();
    await page.getByLabel("Owner").fill("greta");
    await page.getByRole("button", { name: "Show" }).click();
    await page.getByRole("row", { name: /^1 crust .*100 %/ }).waitFor();
    await show(page, "hot");
    await page.getByRole("row", { name: /frame-1952/ }).waitFor();
    await picture(page, "hot");
    await show(page, "hot?owner=greta&item=crust");
    await page.getByRole("navigation", { name: "Kinds of reactions" }).getByRole("link", { name: "save 2" }).click();
    await page.getByRole("table", { name: "Who reacts" }).getByText("mina").waitFor();
    await page.getByLabel("As this user sees it").fill("ada");
    await page.getByRole("button", { name: "Show" }).last().click();
    await page.getByRole("table", { name: "Who reacts" }).getByText("ivan").waitFor({ state: "detached" });
    await waitForText(page, "2 in all");
    await show(page, "user?id=ada&list=reactions&kind=_bookmark");
    await page.getByRole("table", { name: "Reactions" }).getByText("rokkaku").waitFor();
    check();
    await page.context().close();
  });

  test("screens that wait for a name offer the users of the demo, and say what will appear", async () => {
    const { page, check } = await open(browser, demo.url);
    const offered = page.getByText("This service has the users of the demo.");
    await show(page, "why");
    await waitForText(page, "What this screen shows");
    await offered.getByRole("link", { name: "ada", exact: true }).click();
    await page.getByRole("table", { name: "Feed" }).getByText("frame-1952").waitFor();
    await show(page, "why");
    await offered.getByRole("link", { name: "ada does not see a pin of greta" }).click();
    await waitForText(page, "ada follows greta, but excludes this board.");
    await show(page, "why?reader=nobody");
    await waitForText(page, "It shows the pins of those whom nobody follows");
    await show(page, "user");
    await waitForText(page, "What this screen shows");
    await offered.getByRole("link", { name: "greta", exact: true }).click();
    await waitForText(page, "Feed of greta");
    await show(page, "user?id=nobody");
    await waitForText(page, "the first event that names the user is enough");
    await waitForText(page, "nobody follows nobody yet. A follow appears here as soon as it is published.");
    await show(page, "hot?owner=zoe");
    await waitForText(page, "No item here has heat yet.");
    check();
    await page.context().close();
  });

  test("times are absolute, and relative besides", async () => {
    const { page, check } = await open(browser, demo.url);
    for (const screen of ["why?reader=ada", "user?id=ada"]) {
      await show(page, screen);
      await waitForTimes(page.getByRole("table", { name: /Feed|Following/ }));
    }
    check();
    await page.context().close();
  });

  test("there is no screen of a cluster where there is none", async () => {
    const { page, check } = await open(browser, demo.url);
    await waitForText(page, "From the log to the stores");
    const menu = page.getByRole("navigation", { name: "Screens" });
    assert.deepEqual(await menu.getByRole("link").allInnerTexts(), ["Pipeline", "Two phones", "Why in my feed?", "User", "Operations", "Events", "Try it", "Hot"]);
    await show(page, "cluster"); // by a link from elsewhere
    await waitForText(page, "With several nodes, this screen shows them");
    check();
    await page.context().close();
  });

  test("the keyboard alone, on a narrow screen", async () => {
    const { page, check } = await open(browser, demo.url, 390);
    await waitForText(page, "From the log to the stores");
    const focused = async (text: string) => {
      await page.keyboard.press("Tab");
      await page.waitForFunction((want) => document.activeElement?.textContent === want, text);
    };
    for (const text of ["Skip to content", "Pipeline", "Two phones", "Why in my feed?", "User"]) await focused(text);
    await page.keyboard.press("Enter");
    await page.getByLabel("User id").fill("ada");
    await page.keyboard.press("Enter");
    await page.getByRole("table", { name: "Following" }).waitFor();
    check();
    await page.context().close();
  });

  test("a narrow screen shows everything, and the tab of the screen", async () => {
    const { page, check } = await open(browser, demo.url, 390);
    for (const [screen, sign] of screens) {
      await show(page, screen);
      await waitForText(page, sign);
      const outside = await page.evaluate(() => {
        const width = document.documentElement.clientWidth;
        const isOutside = (e: Element) => {
          const { left, right } = e.getBoundingClientRect();
          return left < 0 || right > width;
        };
        const shown = [...document.querySelectorAll("nav a, th, td, dt, dd, button, input, select")].filter((e) => (e as HTMLElement).checkVisibility());
        const scrolling = [...document.querySelectorAll("html, .panel, .wide, .top nav")].filter((e) => e.scrollWidth > e.clientWidth);
        return [...shown.filter((e) => !e.closest("thead") && isOutside(e)), ...scrolling].map((e) => `${e.tagName} ${e.className} ${e.textContent?.slice(0, 60)}`);
      });
      assert.deepEqual(outside, [], screen);
      const tab = page.getByRole("navigation", { name: "Screens" }).locator("[aria-current]");
      assert.equal(await tab.count(), 1, screen);
      await picture(page, `narrow-${screen.split("?")[0]}`);
    }
    check();
    await page.context().close();
  });

  test("nothing is green five seconds after the last answer", async () => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 830 }, reducedMotion: "reduce" });
    const page = await context.newPage();
    page.setDefaultTimeout(patienceMs);
    await page.clock.install();
    await page.goto(`${demo.url}/console`);
    await waitForText(page, "Nothing is wrong.");
    assert.ok((await greenTexts(page)).length > 3);

    // While the status alone is late, the process answers, but nobody knows whether anything is wrong.
    let isHeld = true;
    await page.route(/GetStatus/, (route) => (isHeld ? undefined : route.continue()));
    await page.getByText("Nothing is wrong.").waitFor({ state: "detached" });
    await waitForText(page, "The present state is not known.");
    assert.deepEqual(await page.locator("main").evaluate(() => document.querySelectorAll("main > .stale").length), 1);
    isHeld = false;
    await page.reload();
    await waitForText(page, "Nothing is wrong.");

    // The clock of the page stands still after the service does, so no answer is later than this moment.
    demo.kill("SIGSTOP");
    try {
      // A page that is late has passed the time, and refuses. Its clock stands still from then on, so the second attempt succeeds.
      const pause = async () => page.clock.pauseAt(new Date(await page.evaluate(() => Date.now() + 100)));
      await pause().catch(pause);
      await page.clock.runFor(5_000);
      assert.deepEqual(await greenTexts(page), []);
      await page.getByRole("status").getByText(/^No answer since \d\d:\d\d:\d\d UTC$/).waitFor();
      assert.equal(await page.getByText("Nothing is wrong.").count(), 0);
      await picture(page, "stopped");
      for (const [screen] of screens) {
        await show(page, screen);
        await page.waitForFunction((hash) => document.querySelector(`nav [aria-current][href^="${hash}"]`), `#/${screen.split("?")[0]}`);
        await page.clock.runFor(1_000);
        assert.deepEqual(await greenTexts(page), [], screen);
      }
    } finally {
      demo.kill("SIGCONT");
    }
    await page.clock.resume();
    await show(page, "pipeline");
    await waitForText(page, "Nothing is wrong.");
    await page.getByRole("status").getByText(new URL(demo.url).host).waitFor();
    await context.close();
  });

  // The last test, because the service has something wrong from then on: a program that published a rejected event.
  test("events are shown as they are published, and those that were rejected", async () => {
    const { page, check } = await open(browser, demo.url);
    await show(page, "events?kinds=user_followed,reacted&users=zoe");
    await waitForText(page, "Events appear here as they are published");
    await page.getByRole("status").getByText("watching").waitFor();
    const liked = { eventId: "used-once", reacted: { userId: "zoe", itemId: "crust" } };
    const followed = { userFollowed: { userId: "zoe", targetUserId: "greta" } };
    const played = { played: { userId: "zoe", itemId: "crust" } };
    await call(demo.url, "EventService/Publish", { events: [played, liked, followed], wait: "PUBLISH_WAIT_VISIBLE" });
    const live = page.getByRole("table", { name: "Live events" });
    await live.getByText("reacted").waitFor();
    await live.getByText("user_followed").waitFor();
    assert.equal(await live.getByText("played").count(), 0); // it came before the others
    // A used event id with another content is rejected, and kept.
    const other = { ...liked, reacted: { userId: "zoe", itemId: "kite" } };
    await call(demo.url, "EventService/Publish", { events: [other], wait: "PUBLISH_WAIT_VISIBLE" });
    await page.getByRole("button", { name: "Refresh" }).click();
    await waitForText(page, "EVENT_ID_REUSED");
    const rejected = page.locator("details", { hasText: "used-once" });
    await rejected.getByText(/^\d+ bytes$/).click();
    await rejected.getByText(/"itemId": "kite"/).waitFor();
    await picture(page, "events");
    check();
    await page.context().close();
  });
});

/** Waits until the times in a part of the page are absolute and relative. */
async function waitForTimes(of: Locator): Promise<void> {
  const time = of.locator("time").first();
  await time.getByText(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/).waitFor();
  await time.getByText(/ago|just now/).waitFor();
}

describe("with tokens", () => {
  let service: Service;
  const tokens: Record<string, string> = {};
  before(async () => {
    for (const [name, role] of [["ops", "admin,read,offline"], ["app", "read"], ["jobs", "offline"]] as const) {
      execFileSync(program, ["token", "new", "--name", name, "--role", role, "--tokens", "tokens", "--out", `${name}.token`], { cwd: folder, stdio: "ignore" });
      tokens[name] = readFileSync(join(folder, `${name}.token`), "utf8").trim();
    }
    service = await start("serve", "--ephemeral", "--tokens", "tokens");
  });
  after(() => service?.stop());

  async function enter(page: Page, token: string): Promise<void> {
    await page.getByRole("textbox", { name: "Token" }).fill(token);
    await page.getByRole("button", { name: "Use it" }).click();
  }

  test("a token is wanted, refused, and taken", async () => {
    const { page, check } = await open(browser, service.url);
    await waitForText(page, "Who are you?");
    await picture(page, "token");
    await enter(page, "skein_no_token_of_this_service");
    await page.getByRole("alert").filter({ hasText: "token" }).waitFor();
    await enter(page, tokens["ops"]!);
    await waitForText(page, "From the log to the stores");
    await show(page, "operations");
    await waitForText(page, "No operation was started.");
    const kept = await page.evaluate(() => `${document.cookie}${JSON.stringify({ ...localStorage, ...sessionStorage })}${location.href}`);
    assert.doesNotMatch(kept, new RegExp(tokens["ops"]!));
    await page.reload();
    await waitForText(page, "Who are you?");
    check();
    await page.context().close();
  });

  test("a form says that it needs a role before it is submitted", async () => {
    const { page, check } = await open(browser, service.url);
    await waitForText(page, "Who are you?");
    await enter(page, tokens["app"]!);
    await waitForText(page, "From the log to the stores");
    await show(page, "operations");
    await waitForText(page, "This screen needs the role admin, which your token does not have.");
    assert.equal(await page.getByRole("button", { name: "Rebuild" }).count(), 0);
    await picture(page, "role");
    await show(page, "user?id=a&other=b");
    await waitForText(page, "To publish a follow or unfollow needs the role publish");
    assert.ok(await page.getByRole("button", { name: "Publish: a follows b" }).isDisabled());
    await show(page, "phones?left=a&right=b");
    await waitForText(page, "To publish with these phones needs the role publish");
    await waitForText(page, "To watch the log needs the role offline");
    assert.ok(await phoneOf(page, "a").getByRole("button", { name: "Follow" }).isDisabled());
    await show(page, "try?method=AdminService/StartRebuild");
    await waitForText(page, "StartRebuild needs the role admin");
    assert.ok(await page.getByRole("button", { name: "Send" }).isDisabled());
    await page.getByRole("button", { name: "Use another token" }).click();
    await enter(page, tokens["jobs"]!);
    await show(page, "hot");
    await waitForText(page, "This screen needs the role read");
    check();
    await page.context().close();
  });

  test("the console knows the role of every method", async () => {
    const methods: DescMethod[] = [EventService, GraphService, FeedService, NotificationService, SeenService, CounterService, AdminService].flatMap((s) => s.methods);
    for (const [name, role] of [["app", "read"], ["jobs", "offline"]] as const) {
      const skein = new Skein({ baseUrl: service.url, token: tokens[name]! });
      const clients = { EventService: skein.events, GraphService: skein.graph, FeedService: skein.feed, NotificationService: skein.notifications, SeenService: skein.seen, CounterService: skein.counters, AdminService: skein.admin };
      for (const method of methods) {
        const client = clients[method.parent.name as keyof typeof clients] as unknown as Record<string, (request: object) => Promise<object> & AsyncIterable<object>>;
        const answer = client[method.localName]!({});
        const refused = await (method.methodKind === "unary" ? answer : answer[Symbol.asyncIterator]().next()).then(() => undefined, failure);
        assert.equal(refused?.reason === "ROLE_MISSING", roleOf(method) !== role, `${method.name} with the role ${role}`);
      }
    }
  });
});

describe("with an empty log", () => {
  let service: Service;
  const args = ["serve", "--data", "data", "--listen", "127.0.0.1:0"] as const;
  before(async () => {
    service = await start(...args);
  });
  after(() => service?.stop());

  test("empty screens say what will appear", async () => {
    const { page, check } = await open(browser, service.url);
    await waitForText(page, "The log is empty");
    for (const [screen, text] of [
      ["operations", "No operation was started. One appears here as soon as it is"],
      ["events", "Events appear here as they are published, the newest first."],
      ["events", "No event of the log was malformed."],
      ["hot", "No item here has heat yet."],
      ["try", "Send the request, and the answer appears here."],
      ["why", "Name a reader: the feed of the reader appears here"],
      ["phones", "Name two users: each gets a phone"],
      ["phones?left=ann&right=bob", "The feed is empty. The pins of ann appear here"],
      ["phones?left=ann&right=bob", "The events of the two users appear here as they are published"],
      ["user", "Name a user by the id that your application gives"],
      ["user", "starts a service with users to try this with"],
    ] as const) {
      await show(page, screen);
      await waitForText(page, text);
    }
    assert.equal(await page.getByText("users of the demo").count(), 0);
    check();
    await page.context().close();
  });

  test("the service goes away, and comes back", async () => {
    const url = await stableAddress(() => service.url);
    const { page, check } = await open(browser, url);
    await waitForText(page, "From the log to the stores");
    await service.stop();
    await page.getByRole("status").getByText(/No answer/).waitFor();
    await waitForText(page, "The service does not answer");
    service = await start(...args);
    await page.getByRole("status").getByText(new URL(url).host).waitFor();
    await page.getByRole("alert").waitFor({ state: "detached" });
    await waitForText(page, "Nothing is wrong.");
    check();
    await page.context().close();
  });
});
