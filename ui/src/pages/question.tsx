/** The fields of a question, and the cards by which one is chosen. */
import { useMemo } from "preact/hooks";
import { type Field, type Form, isTicked, type Picture } from "../forms";
import { Muted } from "../kit/basics";
import { NamesInput } from "../kit/complete";
import type { Cluster } from "../live/cluster";
import { count, natural, visible } from "../text";

interface CardsProps {
  forms: readonly Form[];
  chosen: Form;
  choose: (form: Form) => void;
}

/** The questions as cards: one of a group of radio buttons, so that arrow keys move between them. */
export const QuestionCards = ({ forms, chosen, choose }: CardsProps) => (
  <fieldset class="questions">
    <legend class="hidden-text">Question</legend>
    {forms.map((form) => (
      <label key={form.name} class={form === chosen ? "question chosen" : "question"}>
        <input type="radio" name="question" class="hidden-text" checked={form === chosen} onChange={() => choose(form)} />
        {form.picture && <Pictogram of={form.picture} />}
        <span>
          <strong>{form.label}</strong>
          <span class="small muted">{form.says}</span>
        </span>
      </label>
    ))}
  </fieldset>
);

/** Three nodes, and what becomes of them. */
const PICTURES: Readonly<Record<Picture, readonly string[]>> = {
  drain: ["M6 20h12v-8H6z", "M22 16h14", "M32 12l4 4-4 4", "M42 20h-3v-8h3", "M42 8v16"],
  fail: ["M4 20h12v-8H4z", "M32 20h12v-8H32z", "M19 11l10 10", "M29 11L19 21"],
  survive: ["M24 5l13 4v7c0 6-6 9-13 11-7-2-13-5-13-11V9z", "M18 16l4 4 8-8"],
  capacity: ["M6 26V6h36v20z", "M10 22v-6h6v6z", "M20 22v-6h6v6z", "M30 19h8", "M34 15v8"],
  scale: ["M6 26h6v-6H6z", "M16 26h6V16h-6z", "M26 26h6V12h-6z", "M36 26h6V6h-6z"],
  change: ["M10 26l3-9L31 4l5 5-18 14z", "M27 8l5 5", "M20 27h22"],
  add: ["M4 22h12V10H4z", "M20 22h12V10H20z", "M36 16h8", "M40 12v8"],
};

const Pictogram = ({ of }: { of: Picture }) => (
  <svg viewBox="0 0 48 32" width="48" height="32" class="pictogram" aria-hidden>
    {PICTURES[of].map((path) => (
      <path d={path} />
    ))}
  </svg>
);

interface FieldsProps {
  cluster: Cluster;
  form: Form;
  texts: Readonly<Record<string, string>>;
  set: (name: string, text: string) => void;
}

export function Fields({ cluster, form, texts, set }: FieldsProps) {
  const nodes = useMemo(() => [...cluster.nodes.keys()].sort(natural.compare), [cluster]);
  const workloads = useMemo(() => replicasOf(cluster), [cluster]);
  const names = useMemo(() => [...workloads.keys()].sort(natural.compare), [workloads]);
  const show = (field: Field) => {
    const text = texts[field.name] ?? "";
    const change = (next: string) => set(field.name, next);
    const key = form.name + field.name;
    if (field.as === "nodes" || field.as === "workloads") {
      const from = field.as === "nodes" ? nodes : names;
      return <NamesInput key={key} label={field.label} text={text} hint={field.hint} names={from} many={field.as === "nodes"} set={change} />;
    }
    if (field.name === "replicas") return <Replicas key={key} field={field} text={text} now={workloads.get(texts.workload ?? "")} set={change} />;
    return <Input key={key} field={field} text={text} set={change} />;
  };
  const extra = form.fields.filter((field) => field.extra);
  return (
    <>
      {form.fields.filter((field) => !field.extra).map(show)}
      {extra[0] && (
        <details key={form.name} class="extra" open={extra.some(({ name }) => !!texts[name])}>
          <summary>Options</summary>
          <div class="ask">{extra.map(show)}</div>
        </details>
      )}
    </>
  );
}

function Input({ field: { label, as, hint, on }, text, set }: { field: Field; text: string; set: (text: string) => void }) {
  if (as === "flag") {
    const ticked = isTicked(text, on);
    return (
      <label class="flag">
        <input type="checkbox" checked={ticked} onChange={() => set(ticked ? (on ? "no" : "") : "yes")} /> {label}
      </label>
    );
  }
  const changed = (event: Event) => set((event.currentTarget as HTMLInputElement).value);
  return (
    <label class={as}>
      <span>{label}</span>
      {as === "lines" ? (
        <textarea value={text} placeholder={hint} onInput={changed} />
      ) : as === "number" ? (
        <input type="number" min={1} value={text} placeholder={hint} onInput={changed} />
      ) : (
        <input value={text} placeholder={hint} onInput={changed} />
      )}
    </label>
  );
}

/** A number of replicas: typed, or dragged from none to a few times as many as there are. */
function Replicas({ field, text, now, set }: { field: Field; text: string; now: number | undefined; set: (text: string) => void }) {
  const changed = (event: Event) => set((event.currentTarget as HTMLInputElement).value);
  const most = Math.max(10, 3 * (now ?? 0), Number(text) || 0);
  return (
    <div class="replicas">
      <label>
        <span>
          {field.label}
          {now !== undefined && <Muted> {count(now)} now</Muted>}
        </span>
        <input type="number" min={0} value={text} placeholder={now === undefined ? "3" : String(now)} onInput={changed} />
      </label>
      <input type="range" aria-label="Drag the number of replicas" min={0} max={most} value={text || String(now ?? 0)} onInput={changed} />
    </div>
  );
}

/** The workloads that have pods, as `deployment/shop/web`, and how many. */
function replicasOf(cluster: Cluster): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const { key, owner } of cluster.pods.values()) {
    if (!owner) continue;
    const name = owner.replace("/", `/${key.split("/")[0]}/`).toLowerCase();
    found.set(name, (found.get(name) ?? 0) + 1);
  }
  return found;
}

export const Before = ({ of }: { of: readonly { readonly link: string; readonly title: string }[] }) => (
  <ul class="asked-before">
    {of.map(({ link, title }) => (
      <li key={link}>
        <a href={link}>{visible(title)}</a>
      </li>
    ))}
  </ul>
);
