// Draws the diagrams of the book: mdBook shows ```mermaid as code, and mermaid.min.js makes a picture of it.
"use strict";

for (const code of document.querySelectorAll("code.language-mermaid")) {
  const diagram = Object.assign(document.createElement("div"), { className: "mermaid", textContent: code.textContent });
  code.closest("pre").replaceWith(diagram);
}
const isDark = ["navy", "coal", "ayu"].some((theme) => document.documentElement.classList.contains(theme));
mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme: isDark ? "dark" : "default" });
mermaid.run();
