import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch, open, picture, show } from "./browser.js";
import { type Service, build, call, crowd, folder, program, remove, start, traffic } from "./service.js";

const schemes = ["light", "dark"] as const;
let browser: Browser;

before(async () => {
  build();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  remove();
});

/** Waits until a text is in the page. */
async function says(page: Page, text: string | RegExp): Promise<void> {
  await page.getByText(text).first().waitFor();
}

describe("the world of the demo", () => {
  let demo: Service;
  before(async () => {
    demo = await start("demo", "--port", "0");
    await crowd(demo.url, 150);
  });
  after(() => demo?.stop());

  for (const scheme of schemes) {
    test(`the pipeline moves, ${scheme}`, async () => {
      const { page, check } = await open(browser, demo.url, scheme);
      const busy = traffic(demo.url);
      await page.getByRole("img", { name: /The log takes [\d.]+ events a second .* graph is ready/ }).waitFor();
      for (const store of ["graph", "inbox", "seen", "counters"]) await page.getByRole("rowheader", { name: store }).waitFor();
      await page.locator(".flow .dots").first().waitFor({ state: "attached" });
      await page.waitForFunction(() => (document.querySelector(".graph")?.getAttribute("points") ?? "").split(" ").length > 12);
      await says(page, "Nothing is wrong.");
      await picture(page, `pipeline-${scheme}`);
      await busy.stop();
      check();
      await page.context().close();
    });
  }

  for (const scheme of schemes) {
    test(`why a pin is in a feed, or not, ${scheme}`, async () => {
      const { page, check } = await open(browser, demo.url, scheme);
      await page.getByRole("link", { name: "Why in my feed?" }).click();
      await page.getByLabel("Reader").fill("ada");
      await page.getByRole("button", { name: "Ask" }).click();
      await page.getByRole("row", { name: /frame-1952/ }).getByRole("link", { name: "Why?" }).click();
      await says(page, /^In the feed: entry \d/);
      await page.getByLabel("Owner of the pin").fill("greta");
      await page.getByLabel("Pin", { exact: true }).fill("tomatoes");
      await page.getByRole("button", { name: "Ask" }).click();
      await says(page, "Not in the feed");
      await says(page, "ada follows greta, but excludes this board.");
      await picture(page, `why-${scheme}`);
      check();
      await page.context().close();
    });

    test(`how users see each other, ${scheme}`, async () => {
      const { page, check } = await open(browser, demo.url, scheme);
      await show(page, "user?id=zoe&other=hana");
      const unfollow = page.getByRole("button", { name: "zoe unfollows hana" });
      const follow = page.getByRole("button", { name: "zoe follows hana" });
      await follow.or(unfollow).waitFor();
      if (await unfollow.isVisible()) await unfollow.click();
      await follow.click();
      await unfollow.waitFor();
      await page.getByRole("table", { name: "Following" }).getByRole("link", { name: "hana" }).waitFor();
      await show(page, "user?id=ada&other=greta");
      await page.getByRole("button", { name: "ada unfollows greta" }).waitFor();
      await page.getByRole("table", { name: "Following" }).getByRole("link", { name: "greta" }).waitFor();
      await picture(page, `user-${scheme}`);
      for (const [list, entry] of [["Boards excluded", "garden"], ["Muted", "chen"], ["Blocked", "ivan"]] as const) {
        await page.getByRole("navigation", { name: "Lists" }).getByRole("link", { name: list }).click();
        await page.getByRole("table", { name: list }).getByText(entry).waitFor();
      }
      check();
      await page.context().close();
    });

    test(`a rebuild is watched from its start to its end, ${scheme}`, async () => {
      const { page, check } = await open(browser, demo.url, scheme);
      await show(page, "operations");
      const begin = async (what: string, share: string) => {
        await page.getByRole("combobox", { name: "What" }).selectOption({ label: what });
        await page.getByRole("combobox", { name: "Projection" }).selectOption("graph");
        await page.getByRole("combobox", { name: "Share of a core" }).selectOption({ label: share });
        await page.getByRole("button", { name: what, exact: true }).click();
        await page.getByRole("dialog").getByRole("button", { name: what }).click();
      };
      await begin("Rebuild", "25 %");
      const first = page.locator(".operations li").first();
      await first.getByText("running").waitFor();
      await first.getByRole("progressbar", { name: "Progress of rebuild graph" }).waitFor();
      await first.getByText(/ of [\d,]+ (envelopes|events)/).waitFor();
      await picture(page, `operations-${scheme}`);
      await first.getByText(/^(succeeded|failed)$/).waitFor({ timeout: 180_000 });
      assert.match(await first.innerText(), /succeeded/);
      await show(page, "pipeline");
      await page.getByText(/generation [2-9]/).waitFor();
      await show(page, "operations");
      await begin("Verify", "10 %");
      await first.getByText("running").waitFor();
      await first.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Cancel it" }).click();
      await first.getByText("cancelled").waitFor();
      check();
      await page.context().close();
    });

    test(`events, live and rejected, ${scheme}`, async () => {
      const { page, check } = await open(browser, demo.url, scheme);
      await show(page, "events?kinds=user_followed,liked&users=zoe");
      await page.getByRole("status").getByText("watching").waitFor();
      let liked = { eventId: "", liked: { userId: "zoe", itemId: "crust" } };
      const followed = { userFollowed: { userId: "zoe", targetUserId: "greta" } };
      const played = { played: { userId: "zoe", itemId: "crust" } };
      const live = page.getByRole("table", { name: "Live events" });
      let attempts = 0;
      // An event published before the stream stands is not shown, and the same id would not be published twice.
      await assertLater(async () => {
        liked = { ...liked, eventId: `once-${scheme}-${attempts++}` };
        await call(demo.url, "EventService/Publish", { events: [liked, followed, played], wait: "PUBLISH_WAIT_VISIBLE" });
        return (await live.getByText("user_followed").count()) > 0;
      });
      await live.getByText("liked").first().waitFor();
      // A used event id with another content is rejected, and kept.
      const other = { ...liked, liked: { userId: "zoe", itemId: "kite" } };
      await call(demo.url, "EventService/Publish", { events: [other], wait: "PUBLISH_WAIT_VISIBLE" });
      assert.equal(await live.getByText("played").count(), 0);
      await page.getByRole("button", { name: "Refresh" }).click();
      await says(page, "EVENT_ID_REUSED");
      const rejected = page.locator("details", { hasText: `once-${scheme}` });
      await rejected.getByText(/^\d+ bytes$/).click();
      await rejected.getByText(/"itemId": "kite"/).waitFor();
      await picture(page, `events-${scheme}`);
      check();
      await page.context().close();
    });

    test(`any method may be tried, ${scheme}`, async () => {
      const { page, check } = await open(browser, demo.url, scheme);
      await show(page, "try");
      const names = await page.getByLabel("Method").locator("option").evaluateAll((all) => all.map((o) => (o as HTMLOptionElement).value));
      assert.ok(names.length > 35, `${names.length} methods`);
      for (const name of names) {
        await page.getByLabel("Method").selectOption(name);
        for (const language of ["TypeScript", "Go", "curl"]) {
          await page.getByRole("button", { name: language, exact: true }).click();
          const text = await page.locator(".snippets pre").innerText();
          assert.doesNotMatch(text, /not valid|undefined/, `${name} in ${language}`);
        }
      }
      await show(page, "try?method=FeedService/ReadFeed");
      await page.getByRole("button", { name: "Send" }).click();
      await says(page, /FEED_COMPLETENESS_COMPLETE/);
      await picture(page, `try-${scheme}`);
      await show(page, "try?method=GraphService/ScanFollowers");
      await page.getByRole("button", { name: "Send" }).click();
      await says(page, /"resumeToken"/);
      for (const [method, answer] of [["FeedService/ReadFeed", "FEED_COMPLETENESS_COMPLETE"], ["GraphService/ScanFollowers", "resumeToken"]] as const) {
        await show(page, `try?method=${method}`);
        await page.getByText(`/skein.v1.${method}`, { exact: true }).waitFor();
        const command = await page.locator(".snippets pre").innerText();
        assert.ok(execFileSync("bash", ["-c", command], { encoding: "utf8" }).includes(answer), command);
      }
      check();
      await page.context().close();
    });

    test(`lists by heat, ${scheme}`, async () => {
      const { page, check } = await open(browser, demo.url, scheme);
      await page.getByRole("link", { name: "Hot" }).click();
      await page.getByRole("row", { name: /frame-1952/ }).waitFor();
      await page.getByLabel("Owner").fill("greta");
      await page.getByRole("button", { name: "Show" }).click();
      await page.getByRole("row", { name: /^1 crust .*100 %/ }).waitFor();
      await show(page, "hot");
      await page.getByRole("row", { name: /frame-1952/ }).waitFor();
      await picture(page, `hot-${scheme}`);
      check();
      await page.context().close();
    });
  }

  test("the keyboard alone, and a narrow screen", async () => {
    const { page, check } = await open(browser, demo.url, "light", 390);
    await page.getByText("Nothing is wrong.").or(page.getByText("docs/runbook.md")).first().waitFor(); // an earlier test had events rejected
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Skip to content");
    for (let i = 0; i < 3; i++) await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), "User");
    await page.keyboard.press("Enter");
    await page.getByLabel("User id").fill("ada");
    await page.keyboard.press("Enter");
    await page.getByRole("table", { name: "Following" }).waitFor();
    const fits = async (screen: string) => {
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(wider, 0, `${screen} scrolls sideways`);
    };
    await fits("user");
    await picture(page, "narrow");
    for (const [screen, sign] of [
      ["pipeline", "From the log to the stores"],
      ["why?reader=ada&owner=greta&pin=tomatoes", "Not in the feed"],
      ["operations", "succeeded"],
      ["cluster", "no node of a cluster"],
      ["events", "EVENT_ID_REUSED"],
      ["try?method=FeedService/ReadFeed", "skein.v1.ReadFeedRequest"],
      ["hot", "frame-1952"],
    ] as const) {
      await show(page, screen);
      await says(page, sign);
      await fits(screen);
    }
    check();
    await page.context().close();
  });
});

/** Tries until it holds. */
async function assertLater(holds: () => Promise<boolean>): Promise<void> {
  for (const end = Date.now() + 30_000; Date.now() < end; ) if (await holds()) return;
  assert.fail("it never held");
}

test("a token is wanted, refused, and taken", async () => {
  for (const [name, role] of [["ops", "admin,read,offline"], ["app", "read"]] as const) {
    execFileSync(program, ["token", "new", "--name", name, "--role", role, "--tokens", "tokens", "--out", `${name}.token`], { cwd: folder, stdio: "ignore" });
  }
  const token = (name: string) => readFileSync(join(folder, `${name}.token`), "utf8").trim();
  const service = await start("serve", "--ephemeral", "--tokens", "tokens");
  const { page, check } = await open(browser, service.url);
  const enter = async (text: string) => {
    await page.getByLabel("Token", { exact: true }).last().fill(text);
    await page.getByRole("button", { name: "Use it" }).click();
  };
  await says(page, "Who are you?");
  await picture(page, "token");
  await enter("skein_no_token_of_this_service");
  await page.getByRole("alert").filter({ hasText: "token" }).waitFor();
  await enter(token("app"));
  await says(page, "From the log to the stores");
  await show(page, "operations");
  await says(page, "ROLE_MISSING");
  await page.getByRole("button", { name: "Forget token" }).click();
  await enter(token("ops"));
  await says(page, "None was started.");
  const kept = await page.evaluate(() => `${document.cookie}${JSON.stringify({ ...localStorage, ...sessionStorage })}${location.href}`);
  assert.doesNotMatch(kept, new RegExp(token("ops")));
  await page.reload();
  await says(page, "Who are you?");
  await page.context().close();
  await service.stop();
  check();
});

test("the service goes away, and comes back", async () => {
  const args = (listen: string) => ["serve", "--data", "data", "--listen", listen] as const;
  let service = await start(...args("127.0.0.1:0"));
  const { page, check } = await open(browser, service.url);
  await says(page, "From the log to the stores");
  await service.stop();
  await page.getByRole("status").getByText(/No answer/).waitFor();
  await says(page, "The service does not answer");
  service = await start(...args(new URL(service.url).host));
  await page.getByRole("status").getByText(new URL(service.url).host).waitFor();
  await page.getByRole("alert").waitFor({ state: "detached" });
  await says(page, "Nothing is wrong.");
  await page.context().close();
  await service.stop();
  check();
});

test("no console where none is wanted", async () => {
  const service = await start("serve", "--ephemeral", "--no-console");
  assert.equal((await fetch(`${service.url}/console/`)).status, 404);
  await service.stop();
});
