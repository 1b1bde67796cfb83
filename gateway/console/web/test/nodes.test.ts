import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import type { Browser, Page } from "playwright-core";
import { launch, open, patienceMs, picture, show } from "./browser.js";
import { type Service, crowd, remove, start, startNATS } from "./service.js";

let browser: Browser;
let nats: Service;
const nodes: Record<string, Service> = {};

before(async () => {
  browser = await launch();
  nats = await startNATS();
  await startNode("a");
  await startNode("b");
});

after(async () => {
  await browser?.close();
  for (const service of [...Object.values(nodes), nats]) await service?.stop();
  remove();
});

async function startNode(name: string): Promise<void> {
  const where = ["--data", name, "--listen", "127.0.0.1:0", "--node-addr", "127.0.0.1:0", "--archive", "off"];
  // A node that is away stays in the map for as long as the test looks for it.
  const node = ["--node", name, "--node-zone", `zone-${name}`, "--replace-after", "1h"];
  nodes[name] = await start("serve", "--nats", nats.url, ...node, ...where);
}

/** Waits until the legend says so many partitions of a state. */
async function counts(page: Page, n: number, state: string): Promise<void> {
  const line = page.getByRole("list", { name: "States of partitions" }).getByRole("listitem").filter({ hasText: new RegExp(`(^|\\D)${n} ?${state}`) });
  await line.waitFor();
}

/** Waits until the first two nodes hold so many partitions, together. */
async function held(want: number): Promise<void> {
  const of = async (name: string) => {
    const metrics = await (await fetch(`${nodes[name]!.url}/metrics`)).text();
    return Number(/^skein_cluster_partitions\{state="held"\} (\d+)$/m.exec(metrics)?.[1]);
  };
  const until = Date.now() + patienceMs;
  for (let have = 0; have !== want; have = (await of("a")) + (await of("b"))) {
    assert.ok(Date.now() < until, `${have} partitions are held, not ${want}`);
    await setTimeout(100);
  }
}

test("the map of a cluster, and what moves", async () => {
  const { page, check } = await open(browser, nodes["a"]!.url);
  await page.getByRole("navigation", { name: "Screens" }).getByRole("link", { name: "Cluster" }).click();
  await counts(page, 256, "served by all copies");
  const row = (name: string) => page.getByRole("row", { name: new RegExp(`^${name} `) });
  await row("a").getByText("answers this").waitFor();
  await row("b").getByText("zone-b").waitFor();
  const cell = (partition: number) => page.getByRole("gridcell", { name: new RegExp(`^Partition ${partition}:`) });
  assert.equal(await page.getByRole("gridcell").count(), 256);

  // By pointing, and by the keyboard.
  await cell(37).hover();
  await page.getByRole("heading", { name: "Partition 37" }).waitFor();
  await page.mouse.move(0, 0);
  await page.getByText("Point at a partition").waitFor();
  await cell(0).focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("aria-label")?.split(":")[0]), "Partition 17");
  await page.keyboard.press("Enter");
  await page.waitForURL(/partition=17/);
  await page.locator('[aria-selected="true"][aria-label^="Partition 17:"]').waitFor();

  // A third node gets a share, and its partitions stand out.
  await crowd(nodes["a"]!.url, 1);
  await startNode("c");
  await row("c").getByText("serving").waitFor();
  await page.waitForFunction(() => Number(document.querySelector(".nodes tbody tr:nth-child(3) td:nth-of-type(5)")?.textContent) > 0);
  await counts(page, 256, "served by all copies");
  await page.getByRole("link", { name: "c", exact: true }).click();
  await page.waitForURL(/node=c/);
  await page.mouse.move(0, 0);
  const given = Number(await row("c").getByRole("cell").nth(4).innerText());
  assert.ok(given > 100 && given < 256, `${given} partitions`);
  await page.waitForFunction((n) => document.querySelectorAll(".map .of").length === n, given);
  assert.equal(await page.locator(".map .other").count(), 256 - given);

  // An operator drains it, and takes that back.
  const answer = async (ask: string, verb: string) => {
    await page.getByRole("button", { name: ask }).click();
    await page.getByRole("dialog").getByRole("button", { name: verb }).click();
  };
  await answer("Drain c", "Drain");
  await row("c").getByText("drained").waitFor();
  await page.waitForFunction(() => document.querySelector(".nodes tbody tr:nth-child(3) td:nth-of-type(6)")?.textContent === "0");
  await counts(page, 256, "served by all copies");
  await answer("Undo the drain of c", "Give partitions");
  await row("c").getByText("serving").waitFor();
  await page.waitForFunction((n) => document.querySelector(".nodes tbody tr:nth-child(3) td:nth-of-type(6)")?.textContent === `${n}`, given);
  await counts(page, 256, "served by all copies");

  // The others drop what it serves, some time after: until then they would serve it again if it stopped.
  await held(512 - given);

  // It stops: the partitions that it had lack a copy.
  await nodes["c"]!.stop();
  await counts(page, given, "fewer copies");
  await row("c").getByText("away").waitFor();
  await show(page, "cluster?partition=16");
  await picture(page, "cluster");
  await show(page, "pipeline");
  await page.getByText(`Fewer than 2 nodes serve ${given} partitions`).waitFor();
  check();
  await page.context().close();
});
