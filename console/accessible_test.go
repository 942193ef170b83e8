package console_test

import (
	"github.com/chromedp/chromedp"
)

// checks look at a page as axe-core does: names of all controls and pictures, order of
// headings, landmarks, ids, tables, contrast (WCAG 2.2 AA: 4.5 to 1, and 3 to 1 for large text), width on a phone, and
// that focus shows.
const checks = `(() => {
const wrong = [];
const visible = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== "hidden";
const name = (e) => (e.getAttribute("aria-label") || [...(e.labels || [])].map((l) => l.textContent).join(" ") ||
  (e.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent || "").join(" ") ||
  (e.matches("input") ? "" : e.textContent) || [...e.querySelectorAll("img")].map((i) => i.alt).join(" ")).trim();
const what = (e) => e.outerHTML.slice(0, 120);
for (const e of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, nav, [role=region], section, svg[role=img]"))
  if (!name(e)) wrong.push("no name: " + what(e));
for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) wrong.push("no alt: " + what(e));
let level = 0;
for (const e of document.querySelectorAll("h1, h2, h3, h4")) {
  const next = +e.nodeName[1];
  if (next > level + 1) wrong.push("a heading is left out before: " + what(e));
  level = next;
}
for (const [selector, n] of [["h1", 1], ["main", 1], ["header", 1], ["footer", 1]])
  if (document.querySelectorAll(selector).length !== n) wrong.push(n + " " + selector + " is wanted");
if (!document.documentElement.lang || !document.title) wrong.push("no language, or no title");
const ids = new Set();
for (const e of document.querySelectorAll("[id]")) {
  if (ids.has(e.id)) wrong.push("an id twice: " + e.id);
  ids.add(e.id);
}
for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby], label[for]"))
  for (const at of ["aria-labelledby", "aria-describedby", "for"])
    for (const id of (e.getAttribute(at) || "").split(" ").filter(Boolean)) if (!ids.has(id)) wrong.push("names nothing: " + what(e));
for (const e of document.querySelectorAll("th")) if (!e.scope) wrong.push("no scope: " + what(e));
for (const e of document.querySelectorAll("dl > *")) if (!e.matches("div, dt, dd")) wrong.push("in a dl: " + what(e));
for (const e of document.querySelectorAll("ul > *, ol > *")) if (!e.matches("li")) wrong.push("in a list: " + what(e));
const parse = (c) => {
  const n = (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  if (c.startsWith("color(srgb")) return [n[0] * 255, n[1] * 255, n[2] * 255, n.length > 3 ? n[3] : 1];
  return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1];
};
const behind = (e) => {
  const layers = [];
  for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c[3] > 0) layers.push(c);
    if (c[3] === 1) break;
  }
  let under = [255, 255, 255];
  for (const c of layers.reverse()) under = under.map((u, i) => u * (1 - c[3]) + c[i] * c[3]);
  return under;
};
const light = (c) => c.slice(0, 3).map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const seen = new Set();
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement;
  if (!walk.currentNode.nodeValue.trim() || seen.has(e) || !visible(e) || e.closest(".unseen, noscript, script, [aria-hidden]")) continue;
  seen.add(e);
  const style = getComputedStyle(e), size = parseFloat(style.fontSize);
  const [a, b] = [light(parse(style.color)), light(behind(e))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05), least = size >= 24 || (size >= 18.66 && +style.fontWeight >= 700) ? 3 : 4.5;
  if (ratio < least) wrong.push("contrast " + ratio.toFixed(2) + ": " + what(e));
}
if (document.documentElement.scrollWidth > innerWidth + 1) wrong.push("wider than the screen: " + document.documentElement.scrollWidth);
return wrong;
})()`

// focusShows tabs through the page, and finds what has focus and does not show it.
const focusShows = `(() => {
const e = document.activeElement, style = getComputedStyle(e);
if (e === document.body) return "end";
return style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2 ? "no focus shows: " + e.outerHTML.slice(0, 120) : "";
})()`

// accessible examines the page, in light and dark, on a desktop and a phone, and its controls by keyboard.
func (c *chromium) accessible(name string) {
	c.Helper()
	for _, scheme := range []string{"dark", "light"} {
		c.scheme(scheme)
		for _, width := range []int64{390, 1280} {
			c.run("examine "+name, chromedp.EmulateViewport(width, 900))
			wrong, err := chromedp.Run(c.ctx, chromedp.Evaluate[[]string](checks))
			must(c, err)
			for _, one := range wrong {
				c.Errorf("%s, %s, %d wide: %s", name, scheme, width, one)
			}
		}
	}
	c.run("from the top", does(`document.activeElement.blur(); scrollTo(0, 0)`))
	for range 12 {
		c.run("tab", chromedp.KeyEvent("\t"))
		found, err := chromedp.Run(c.ctx, chromedp.Evaluate[string](focusShows))
		must(c, err)
		if found == "end" {
			break
		}
		if found != "" {
			c.Errorf("%s: %s", name, found)
		}
	}
	c.run("blur", does(`document.activeElement.blur()`))
}
