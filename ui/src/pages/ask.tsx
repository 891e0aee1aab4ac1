/** The pages What if and Compare: a question, the map beside it, and the answer. The address holds the question, so a link shares it. */
import { useEffect, useState } from "preact/hooks";
import { Answer } from "../answers";
import { Basis } from "../answers/envelope";
import type { AnyDocument } from "../documents";
import { type Form, questionOf, titleOf } from "../forms";
import { Button, Section } from "../kit/basics";
import type { Cluster } from "../live/cluster";
import { download } from "../live/download";
import { askedBefore, forget, remember } from "../live/history";
import { answerOf, useQuestion } from "../live/questions";
import { linkTo, place, setQuery } from "../live/router";
import { PickMap } from "../map/pick";
import { Before, Fields, QuestionCards } from "./question";
import { Waiting } from "./waiting";

export function AskPage({ cluster, title, forms }: { cluster: Cluster; title: string; forms: readonly Form[] }) {
  const [asked, run, cancel] = useQuestion<AnyDocument>();
  const given = Object.fromEntries(place.value.query);
  const [texts, setTexts] = useState(given);
  const form = forms.find((one) => one.name === given.ask) ?? forms[0]!;
  const ask = () => {
    const question = questionOf(form, given);
    if (!question) return cancel();
    remember(linkTo(place.value.path, given), titleOf(form, given));
    run((progress, signal) => answerOf(question, progress, signal));
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
  const set = (name: string, text: string) => setTexts((now) => ({ ...now, [name]: text }));
  const withNodes = form.fields.some((field) => field.name === "nodes");
  const answer = asked.state === "done" ? asked.answer : undefined;
  return (
    <main class={`page stack ask-page ${answer ? "answered" : ""}`}>
      <h1>{title}</h1>
      {!forms[1] && <p class="lead">{form.says}</p>}
      {forms[1] && <QuestionCards forms={forms} chosen={form} choose={(one) => setQuery({ ask: one.name })} />}
      <div class="ask-side">
        <form class={forms[1] ? "ask" : "ask two"} onSubmit={submit}>
          <Fields {...{ cluster, form, texts, set }} />
          <button class="button main" disabled={!questionOf(form, texts)}>
            Ask
          </button>
        </form>
        {forms[1] && (
          <PickMap
            {...{ cluster, answer }}
            picked={withNodes ? (texts.nodes ?? "").split(/[\s,]+/).filter(Boolean) : undefined}
            set={(names) => set("nodes", names.join(" "))}
          />
        )}
      </div>
      <div class="ask-answer stack">
        {(asked.state === "running" || asked.state === "failed") && <Waiting asked={asked} what="Asking" cancel={cancel} again={ask} />}
        {answer && (
          <>
            <Answer document={answer} />
            {"proof" in answer && <Basis document={answer} />}
            <p>
              <Button onClick={() => void download(answer)}>Download report</Button>
            </p>
          </>
        )}
        {askedBefore.value.length > 0 && (
          <Section title="Asked before" aside={<Button quiet onClick={forget}>Forget all</Button>}>
            <Before of={askedBefore.value} />
          </Section>
        )}
      </div>
    </main>
  );
}
