// Drives Chromium for the tests of the management pages: driver.mjs PLACE, where PLACE has node_modules. Reads one command as
// JSON from each line, and writes one answer: what was asked for, or the error, and what the pages complained of meanwhile.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [place, chromiumPath] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${place}/`));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const browser = await chromium.launch({
    executablePath: chromiumPath,
    // Chromium has no sandbox for root.
    chromiumSandbox: process.getuid() !== 0,
    // A name that its owner leads to this computer, as in an attack by rebinding; no other name leads anywhere.
    args: ["--host-resolver-rules=MAP rebound.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"],
});

const windows = [];
const pages = [];
let complaints = [];

// A page that is refused is what a test may ask for; anything else that fails to load is not.
const refused = new Set();
let tolerated = null;
function complain(text, url) {
    complaints.push({ text, url });
}
function drained() {
    const told = complaints.filter(({ text, url }) => !(tolerated !== null && text.includes(tolerated))
        && !(refused.has(url) && text.startsWith("Failed to load resource")));
    complaints = [];
    return told.map(({ text, url }) => `${text} (${url})`);
}

async function open(window) {
    const page = await windows[window].newPage();
    page.on("console", (message) => {
        if (message.type() === "error") complain(message.text(), message.location().url);
    });
    page.on("pageerror", (error) => complain(String(error), page.url()));
    page.on("response", (response) => {
        const status = response.status();
        if (response.request().isNavigationRequest() && status >= 400 && status < 500) refused.add(response.url());
    });
    return pages.push(page) - 1;
}

const commands = {
    async window({ colorScheme, width, script }) {
        const viewport = { width: width ?? 1100, height: 800 };
        const context = await browser.newContext({ colorScheme, viewport, javaScriptEnabled: script ?? true });
        context.setDefaultTimeout(20_000);
        return { page: await open(windows.push(context) - 1), window: windows.length - 1 };
    },
    tab: async ({ window }) => ({ page: await open(window), window }),
    goto: async ({ page, url }) => (await pages[page].goto(url)).status(),
    url: ({ page }) => pages[page].url(),
    reload: async ({ page }) => (await pages[page].reload()).status(),
    click: ({ page, at }) => pages[page].locator(at).click(),
    fill: ({ page, at, text }) => pages[page].locator(at).fill(text),
    check: ({ page, at, on }) => pages[page].locator(at).setChecked(on),
    press: ({ page, key }) => pages[page].keyboard.press(key),
    // When it was seen, in milliseconds of this computer's clock.
    async sees({ page, at }) {
        await pages[page].locator(at).first().waitFor();
        return Date.now();
    },
    gone: ({ page, at }) => pages[page].locator(at).first().waitFor({ state: "hidden" }),
    count: ({ page, at }) => pages[page].locator(at).count(),
    text: ({ page, at }) => pages[page].locator(at).innerText(),
    evaluate: ({ page, script }) => pages[page].evaluate(script),
    look: ({ page, colorScheme, width }) => Promise.all([
        pages[page].emulateMedia({ colorScheme }),
        pages[page].setViewportSize({ width, height: 800 }),
    ]),
    async picture({ page, path }) {
        await pages[page].screenshot({ path, fullPage: true });
    },
    cookies: ({ window }) => windows[window].cookies(),
    tolerate({ text }) {
        tolerated = text;
    },
    // What axe-core finds serious or critical. Asked of the debugger, since the pages' policy lets no such script in.
    async judge({ page, rules }) {
        await pages[page].evaluate(axe);
        const options = rules ? { runOnly: { type: "rule", values: rules } } : {};
        const { violations } = await pages[page].evaluate((options) => globalThis.axe.run(document, options), options);
        return violations.filter(({ impact }) => impact === "serious" || impact === "critical")
            .flatMap(({ id, help, nodes }) => nodes.map((node) => `${id}: ${help}: ${node.html}: ${node.failureSummary}`));
    },
};

for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    let answer;
    try {
        answer = { value: (await commands[command.do](command)) ?? null };
    } catch (error) {
        const page = pages[command.page];
        answer = { error: `${error}\n${page ? `${page.url()}\n${await page.innerText("body").catch(() => "")}` : ""}` };
    }
    process.stdout.write(`${JSON.stringify({ ...answer, complaints: drained() })}\n`);
}
await browser.close();
