/** The program of both pages: it shows the document that the page contains, or else asks the server. */
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/kit.css";
import "./styles/explanation.css";
import "./styles/answers.css";
import "./styles/shell.css";
import "./styles/map.css";
import "./styles/ask.css";
import "./styles/time.css";
import "./styles/print.css";
import { render } from "preact";
import { Shell } from "./live/shell";
import { start } from "./live/state";
import { type Context, embedded, Report } from "./report";

const root = document.getElementById("app")!;
const input = embedded<Parameters<typeof Report>[0]["input"]>("moorage-document");

if (input) render(<Report input={input} context={embedded<Context>("moorage-context") ?? {}} />, root);
else {
  render(<Shell />, root);
  void start();
}
