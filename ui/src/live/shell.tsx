/** The frame of the live interface: navigation, the state of the connection, and the page. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Badge, Sign, type Tone } from "../kit/basics";
import { Guard } from "../kit/guard";
import { Links } from "../kit/links";
import { RunDialog } from "../kit/run";
import { PAGES } from "../pages";
import { plural, visible } from "../text";
import { post } from "./api";
import { eventLink, linkTo, nodeLink, place, podLink, workloadLink } from "./router";
import { cluster, type Link, link } from "./state";

export function Shell() {
  const [name = "", ...rest] = place.value.path;
  const page = PAGES.find((one) => one.name === name);
  const now = cluster.value;
  const state = link.value;
  useEffect(() => {
    document.title = ["Moorage", page?.label ?? rest.join("/")].filter(Boolean).reverse().join(" · ");
  }, [name, rest.join("/")]);
  return (
    <Links.Provider value={now?.head.writable ? WRITABLE : PLACES}>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <nav class="shell" aria-label="Pages">
        <a class="brand" href="#/">
          Moorage
        </a>
        <ul>
          {PAGES.filter((one) => one.label && !(one.asks && now?.head.asks === false)).map((one) => (
            <li>
              <a href={linkTo(one.name ? [one.name] : [])} aria-current={one === page ? "page" : undefined}>
                {one.label}
              </a>
            </li>
          ))}
        </ul>
        {now && now.head.notes.length > 0 && <Notes notes={now.head.notes} />}
        <Connection state={state} />
      </nav>
      <div id="main" tabIndex={-1} class={state.name === "away" && now ? "stale" : undefined}>
        {state.name === "refused" ? (
          <Refused why={state.why} />
        ) : !now ? (
          <p class="page muted" role="status">
            {state.name === "away" ? "The server does not answer; trying again …" : "Loading the cluster …"}
          </p>
        ) : page ? (
          <Guard key={place.value.path.join("/")}>{page.show(now, rest)}</Guard>
        ) : (
          <main class="page">
            <h1>There is no page {visible(name)}.</h1>
          </main>
        )}
      </div>
      {toRun.value && <RunDialog text={toRun.value} run={run} onClose={() => confirm("")} />}
    </Links.Provider>
  );
}

const PLACES = { node: nodeLink, pod: podLink, workload: workloadLink, event: eventLink };
/** The command that waits for the reader's confirmation. */
const toRun = signal("");
const confirm = (command: string) => {
  toRun.value = command;
};
const WRITABLE = { ...PLACES, run: confirm };
const run = (command: string, dryRun: boolean) => post<{ message: string }>("commands", { command, dryRun }).then(({ body }) => body.message);

/** What reading the input left out or assumed, behind a sign. */
const Notes = ({ notes }: { notes: readonly string[] }) => (
  <details class="notes">
    <summary title="Notes on the input">
      <Sign tone="risk" /> {plural(notes.length, "note")}
      <span class="hidden-text"> on the input</span>
    </summary>
    <ul class="small">
      {notes.map((note) => (
        <li>{visible(note)}</li>
      ))}
    </ul>
  </details>
);

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Connection({ state }: { state: Link }) {
  const texts: Record<Link["name"], readonly [Tone, string]> = {
    loading: ["idle", "loading"],
    live: ["ok", "live"],
    still: ["idle", "a snapshot"],
    refused: ["no", "no access"],
    away: ["no", `server away since ${state.name === "away" ? clock(state.since) : ""}`],
  };
  const [tone, text] = texts[state.name];
  return (
    <span class="connection" role="status">
      <Badge tone={tone}>{text}</Badge>
    </span>
  );
}

const clock = (time: Date) => time.toTimeString().slice(0, 8);

const Refused = ({ why }: { why: string }) => (
  <main class="page stack">
    <header class="answer">
      <h1>This page needs a link with a token.</h1>
      <p class="certain">{visible(why)}</p>
    </header>
    <p>
      <code>moorage up</code> prints a link when it starts, and <code>moorage ui</code> prints another.
    </p>
  </main>
);
