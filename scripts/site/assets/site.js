"use strict";

/** Return what the copy button of a block copies: its commands without prompts and output; the whole block if it has no prompt. */
function commandsOf(text) {
  const lines = text.replace(/\n+$/, "").split("\n");
  if (!lines.some((line) => line.startsWith("$ "))) return lines.join("\n");
  const commands = [];
  let goesOn = false;
  for (const line of lines) {
    if (line.startsWith("$ ")) commands.push(line.slice(2));
    else if (goesOn) commands.push(line);
    goesOn = (line.startsWith("$ ") || goesOn) && line.endsWith("\\");
  }
  return commands.join("\n");
}

if (typeof document !== "undefined") {
  // The theme's button copies this attribute if it has one; it is set before the theme sees the click.
  document.addEventListener(
    "click",
    (event) => {
      const button = event.target instanceof Element ? event.target.closest("button[data-clipboard-target]") : null;
      const code = button && document.querySelector(button.dataset.clipboardTarget);
      if (code) button.setAttribute("data-clipboard-text", commandsOf(code.textContent));
    },
    true,
  );
} else {
  module.exports = { commandsOf };
}
