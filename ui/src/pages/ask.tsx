/** The pages What if and Compare: a form, and the answer to it. The address holds the question, so a link shares it. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { Answer } from "../answers";
import { Basis } from "../answers/envelope";
import type { AnyDocument } from "../documents";
import { type Field, type Form, questionOf } from "../forms";
import { Button } from "../kit/basics";
import type { Cluster } from "../live/cluster";
import { download } from "../live/download";
import { answerOf, useQuestion } from "../live/questions";
import { linkTo, place, setQuery } from "../live/router";
import { StillCluster } from "../map/still";
import { Waiting } from "./waiting";

export function AskPage({ cluster, title, forms }: { cluster: Cluster; title: string; forms: readonly Form[] }) {
  const [asked, run, cancel] = useQuestion<AnyDocument>();
  const given = Object.fromEntries(place.value.query);
  const [texts, setTexts] = useState(given);
  const form = forms.find((one) => one.name === given.ask) ?? forms[0]!;
  const ask = () => {
    const question = questionOf(form, given);
    if (question) run((progress, signal) => answerOf(question, progress, signal));
    else cancel();
  };
  useEffect(() => {
    setTexts(given);
    ask();
  }, [JSON.stringify(given)]);
  const submit = (event: Event) => {
    event.preventDefault();
    const link = linkTo(place.value.path, { ...texts, ask: form.name });
    if (link === location.hash) ask();
    else location.hash = link;
  };
  const names = useMemo(() => <Names cluster={cluster} />, [cluster]);
  return (
    <main class="page stack">
      <h1>{title}</h1>
      <form class="ask" onSubmit={submit}>
        {forms[1] && (
          <label>
            <span>Question</span>
            <select value={form.name} onChange={(event) => setQuery({ ask: event.currentTarget.value })}>
              {forms.map((one) => (
                <option value={one.name}>
                  {one.label}
                </option>
              ))}
            </select>
          </label>
        )}
        {form.fields.map((field) => (
          <Input key={form.name + field.name} field={field} text={texts[field.name] ?? ""} set={(text) => setTexts({ ...texts, [field.name]: text })} />
        ))}
        <button class="button main" disabled={!questionOf(form, texts)}>
          Ask
        </button>
        {names}
      </form>
      {(asked.state === "running" || asked.state === "failed") && <Waiting asked={asked} what="Asking" cancel={cancel} again={ask} />}
      {asked.state === "done" && (
        <StillCluster.Provider value={cluster}>
          <Answer document={asked.answer} />
          <Basis document={asked.answer} />
          <p>
            <Button onClick={() => void download(asked.answer)}>Download report</Button>
          </p>
        </StillCluster.Provider>
      )}
    </main>
  );
}

function Input({ field: { label, as, hint }, text, set }: { field: Field; text: string; set: (text: string) => void }) {
  if (as === "flag") {
    return (
      <label class="flag">
        <input type="checkbox" checked={!!text} onChange={() => set(text ? "" : "yes")} /> {label}
      </label>
    );
  }
  const Line = as === "lines" ? "textarea" : "input";
  return (
    <label class={as}>
      <span>{label}</span>
      <Line value={text} placeholder={hint} list={as} onInput={(event: Event) => set((event.currentTarget as HTMLInputElement).value)} />
    </label>
  );
}

/** What fields offer: the nodes, and the workloads that have pods. */
function Names({ cluster }: { cluster: Cluster }) {
  const workloads = [...cluster.pods.values()].map(({ key, owner }) => owner.replace("/", `/${key.split("/")[0]}/`).toLowerCase());
  const list = (id: string, names: Iterable<string>) => (
    <datalist id={id}>
      {[...new Set(names)].map((name) => (
        <option value={name} />
      ))}
    </datalist>
  );
  return (
    <>
      {list("nodes", cluster.nodes.keys())}
      {list("workloads", workloads)}
    </>
  );
}
