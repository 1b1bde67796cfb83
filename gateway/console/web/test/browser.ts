import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Browser, type Page, chromium } from "playwright-core";

/** Starts a browser with a fresh profile. It is Debian's Chromium, unless CHROMIUM names another. */
export function launch(): Promise<Browser> {
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
  args.push("--disable-component-update", "--disable-sync");
  return chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args, timeout: patienceMs });
}

/** A page of the console, and what went wrong in it. */
export interface Watched {
  page: Page;
  /** Fails if the page asked another origin, broke its policy, or threw. */
  check(): void;
}

/** For how long a test waits for what must come. It bounds a test that fails, and does not measure the machine. */
export const patienceMs = 180_000;

/** Opens the console of a service in a window of its own. */
export async function open(browser: Browser, url: string, width = 1280): Promise<Watched> {
  const context = await browser.newContext({ viewport: { width, height: 830 }, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(patienceMs);
  const wrong: string[] = [];
  page.on("pageerror", (err) => wrong.push(err.stack ?? err.message));
  page.on("console", (m) => {
    if (/Content Security Policy|Refused to/.test(m.text())) wrong.push(m.text());
  });
  page.on("request", (r) => {
    if (!r.url().startsWith(`${url}/`) && !r.url().startsWith("data:")) wrong.push(`asked ${r.url()}`);
  });
  await page.goto(`${url}/console`);
  return { page, check: () => assert.deepEqual(wrong, []) };
}

/** Shows a screen. */
export async function show(page: Page, screen: string): Promise<void> {
  await page.evaluate((hash) => (location.hash = hash), `#/${screen}`);
}

const pictures = process.env["SKEIN_PICTURES"];

/** Takes pictures of the page, light and dark, if pictures are wanted. */
export async function picture(page: Page, name: string): Promise<void> {
  if (pictures === undefined) return;
  mkdirSync(pictures, { recursive: true });
  await page.mouse.move(0, 0);
  const end = await page.evaluate(() => Math.max(...[...document.querySelectorAll(".panel")].map((p) => p.getBoundingClientRect().bottom)));
  const { width, height } = page.viewportSize()!;
  const clip = { x: 0, y: 0, width, height: Math.min(height, Math.ceil(end) + 16) };
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: join(pictures, `${name}-${colorScheme}.png`), clip });
  }
  await page.emulateMedia({ colorScheme: null });
}
