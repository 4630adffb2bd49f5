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

// How long anything may take.
const PATIENCE_MS = 20_000;

const windows = [];
const pages = [];
const debuggers = [];
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

// The role and the name of what has focus, as Chromium tells them to assistive technology.
async function focused(page) {
    debuggers[page] ??= await pages[page].context().newCDPSession(pages[page]);
    const { result } = await debuggers[page].send("Runtime.evaluate", { expression: "document.activeElement" });
    const asked = { objectId: result.objectId, fetchRelatives: false };
    const { nodes: [{ role, name }] } = await debuggers[page].send("Accessibility.getPartialAXTree", asked);
    return `${role?.value} "${(name?.value ?? "").trim()}"`;
}

// The same, and what keeps it from being seen.
async function focus(page) {
    const hidden = await pages[page].evaluate(() => {
        const [element, root] = [document.activeElement, document.documentElement];
        if (element === document.body) return "nothing has focus";
        const [box, style] = [element.getBoundingClientRect(), getComputedStyle(element)];
        if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) === 0) return "it has no ring";
        const inside = box.bottom > 0 && box.right > 0 && box.top < root.clientHeight && box.left < root.clientWidth;
        return inside && box.width > 0 && box.height > 0 ? null : "it is out of sight";
    });
    let at = await focused(page);
    // A page that has just come has no roles yet.
    const end = Date.now() + PATIENCE_MS;
    while (hidden === null && at.startsWith("none ") && Date.now() < end) {
        await pages[page].evaluate(() => new Promise(requestAnimationFrame));
        at = await focused(page);
    }
    return { at, hidden };
}

// All rules of the guidelines, and those of good practice.
const GUIDELINES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"];

const commands = {
    async window({ colorScheme, width, script }) {
        const viewport = { width: width ?? 1100, height: 800 };
        const context = await browser.newContext({ colorScheme, viewport, javaScriptEnabled: script ?? true });
        context.setDefaultTimeout(PATIENCE_MS);
        return { page: await open(windows.push(context) - 1), window: windows.length - 1 };
    },
    tab: async ({ window }) => ({ page: await open(window), window }),
    goto: async ({ page, url }) => (await pages[page].goto(url)).status(),
    url: ({ page }) => pages[page].url(),
    reload: async ({ page }) => (await pages[page].reload()).status(),
    // A page is complete with its script: a click that is faster is followed without it.
    async click({ page, at }) {
        await pages[page].waitForLoadState("load");
        await pages[page].locator(at).click();
    },
    give: ({ page, at, paths }) => pages[page].locator(at).setInputFiles(paths),
    give: ({ page, at, paths }) => pages[page].locator(at).setInputFiles(paths),
    fill: ({ page, at, text }) => pages[page].locator(at).fill(text),
    check: ({ page, at, on }) => pages[page].locator(at).setChecked(on),
    choose: ({ page, at, value }) => pages[page].locator(at).selectOption(value),
    press: ({ page, key }) => pages[page].keyboard.press(key),
    type: ({ page, text }) => pages[page].keyboard.type(text),
    // Waits until `wanted` has focus, and is seen.
    async has_focus({ page, wanted }) {
        const end = Date.now() + PATIENCE_MS;
        let last;
        do {
            last = await focus(page);
            if (last.hidden === null && last.at.startsWith(wanted)) return;
        } while (Date.now() < end);
        throw new Error(`${wanted} has no focus, but ${last.at}: ${last.hidden}`);
    },
    // Goes on by Tab until `to` has focus. All that has it on the way must be seen; behind the last one is nothing, once.
    async tab_to({ page, to, most }) {
        const way = [];
        await pages[page].waitForLoadState("load");
        for (let step = 0; step < most; step += 1) {
            await pages[page].keyboard.press("Tab");
            const { at, hidden } = await focus(page);
            // Twice, if the page has renewed itself there.
            if (hidden === "nothing has focus" && way.filter((at) => at === "the end").length < 2) {
                way.push("the end");
                continue;
            }
            way.push(at);
            if (hidden) throw new Error(`${at}: ${hidden}`);
            if (at.startsWith(to)) return way.length;
        }
        throw new Error(`${to} is not among ${way.join(", ")}`);
    },
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
        // Without its style a page is another one.
        await pages[page].waitForLoadState("load");
        if (!await pages[page].evaluate(() => "axe" in globalThis)) await pages[page].evaluate(axe);
        const runOnly = rules ? { type: "rule", values: rules } : { type: "tag", values: GUIDELINES };
        const { violations } = await pages[page].evaluate((runOnly) => globalThis.axe.run(document, { runOnly }), runOnly);
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
