/** The atlas of pending pods: what an event may stand for, found by its text. */
import { useEffect, useState } from "preact/hooks";
import { Button, Quote, Section, SmallText } from "../kit/basics";
import { get } from "../live/api";
import { linkTo, place, setQuery } from "../live/router";
import { plural, visible } from "../text";

interface Entry {
  readonly name: string;
  readonly title: string;
  readonly event: string;
  readonly cause?: readonly string[];
  readonly do?: readonly { readonly text: string; readonly commands?: readonly string[] }[];
  readonly avoid?: string;
}

interface Atlas {
  readonly event: string;
  readonly entries: readonly Entry[];
}

export function AtlasPage() {
  const event = place.value.query.get("event") ?? "";
  const [typed, setTyped] = useState(event);
  const [found, setFound] = useState<Atlas>();
  const [why, setWhy] = useState("");
  useEffect(() => {
    const control = new AbortController();
    setTyped(event);
    setWhy("");
    get<Atlas>(`atlas?${new URLSearchParams({ event })}`, control.signal).then(setFound, (error: Error) => {
      if (!control.signal.aborted) setWhy(error.message);
    });
    return () => control.abort();
  }, [event]);
  const look = (submitted: Event) => {
    submitted.preventDefault();
    setQuery({ event: typed.trim() });
  };
  return (
    <main class="page stack">
      <header class="answer">
        <h1>What does this event mean?</h1>
        <p class="certain">{headOf(found)}</p>
      </header>
      <form class="atlas-search" role="search" onSubmit={look}>
        <label>
          <span class="small muted">The event’s text</span>
          <textarea
            rows={3}
            value={typed}
            placeholder="0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint(s)."
            onInput={(input) => setTyped(input.currentTarget.value)}
            onKeyDown={(key) => key.key === "Enter" && !key.shiftKey && look(key)}
          />
        </label>
        <button class="button" type="submit">
          Look it up
        </button>
        {event && (
          <Button quiet onClick={() => setQuery({})}>
            Show all
          </Button>
        )}
      </form>
      {why && <p class="notice" role="alert">{visible(why)}</p>}
      {found?.event ? found.entries.map((one) => <Situation entry={one} key={one.name} />) : found && <Titles of={found.entries} />}
    </main>
  );
}

const headOf = (found?: Atlas): string =>
  !found
    ? "Looking …"
    : !found.event
      ? `${plural(found.entries.length, "situation")} in which pods stay pending.`
      : found.entries.length
        ? `${plural(found.entries.length, "situation")} with such an event, the closest first.`
        : "No situation has such an event.";

const Situation = ({ entry }: { entry: Entry }) => (
  <Section title={entry.title} class="situation">
    {entry.event && <Quote>{entry.event}</Quote>}
    {entry.cause?.map((text) => <p>{visible(text)}.</p>)}
    {entry.do?.map((remedy) => (
      <div>
        <p>
          <b>Do:</b> {visible(remedy.text)}
        </p>
        {remedy.commands?.map((command) => <pre class="sample">{visible(command)}</pre>)}
      </div>
    ))}
    {entry.avoid && (
      <p>
        <b>Do not:</b> {entry.avoid.replace(/^Do not /, "").split("`").map((part, at) => (at % 2 ? <code>{visible(part)}</code> : visible(part)))}
      </p>
    )}
    <SmallText>Names and amounts are those of the smallest cluster that shows it. The page with its input: moorage help {entry.name}</SmallText>
  </Section>
);

const Titles = ({ of }: { of: readonly Entry[] }) => (
  <ul class="cards">
    {of.map((one) => (
      <li key={one.name}>
        {one.event ? <a href={linkTo(["atlas"], { event: one.event })}>{visible(one.title)}</a> : visible(one.title)}
      </li>
    ))}
  </ul>
);
