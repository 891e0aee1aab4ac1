/** The small parts that all pages share: signs, badges, names, sections, facts. */
import { type ComponentChildren, type ComponentProps, createContext } from "preact";
import { useContext, useId, useState } from "preact/hooks";
import { shortNode, visible } from "../text";
import { type LinkKind, Links } from "./links";

export type Tone = "ok" | "no" | "risk" | "subject" | "idle";

const SIGNS: Readonly<Record<Tone, string>> = { ok: "✓", no: "✗", risk: "!", subject: "→", idle: "·" };

/** A sign beside a colour. It is not read out: the words next to it say the same. */
export const Sign = ({ tone }: { tone: Tone }) => (
  <span class={`sign ${tone}`} aria-hidden>
    {SIGNS[tone]}
  </span>
);

type Words = { children?: ComponentChildren };

export const SmallText = ({ children }: Words) => <p class="small muted">{children}</p>;

export const Muted = ({ children }: Words) => <span class="muted">{children}</span>;

export const Small = ({ children }: Words) => <span class="small">{children}</span>;

export const Button = ({ quiet, ...rest }: ComponentProps<"button"> & { quiet?: boolean }) => (
  <button class={quiet ? "button quiet small" : "button"} type="button" {...rest} />
);

export const Badge = ({ tone, children }: { tone: Tone; children: ComponentChildren }) => (
  <span class={`badge ${tone}`}>
    <Sign tone={tone} />
    <span>{children}</span>
  </span>
);

/** A name from the input, which may hold anything; `to` says what it is the name of, `at` a pod whose namespace it is in. */
export function Name({ of, to, at, class: extra = "name" }: { of: string; to?: LinkKind | undefined; at?: string; class?: string }) {
  const links = useContext(Links);
  const href = to && of ? links[to](at === undefined ? of : `${at.split("/")[0]}/${of}`) : undefined;
  const text = visible(to === "node" ? shortNode(of) : of);
  const title = text === of ? undefined : visible(of);
  return href ? (
    <a class={extra} href={href} title={title}>
      {text}
    </a>
  ) : (
    <span class={extra} title={title}>
      {text}
    </span>
  );
}

/** Names as chips: the first few, and a button for the others. */
export function Chips({ names, first = 8, label, to }: { names: readonly string[]; first?: number; label?: string; to?: LinkKind | undefined }) {
  const [all, setAll] = useState(false);
  const shown = all ? names : names.slice(0, first);
  return (
    <span class="chips" role="group" aria-label={label}>
      {shown.map((name) => (
        <Name of={name} to={to} class="chip" />
      ))}
      {names.length > shown.length && (
        <Button quiet onClick={() => setAll(true)}>
          and {names.length - shown.length} more
        </Button>
      )}
    </span>
  );
}

/** Names as chips; nothing for none, so that facts leave it out. */
export const chips = (names?: readonly string[], to?: LinkKind) => (names?.length ? <Chips names={names} to={to} /> : "");

interface SectionProps {
  title: string;
  aside?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}

/** True where several answers stand on one page: their parts have equal headings, and are no landmarks. */
export const Several = createContext(false);

/** A part of a page under its heading. */
export function Section({ title, aside, class: extra = "", children }: SectionProps) {
  const id = useId();
  return (
    <section class={`section ${extra}`} role={useContext(Several) ? "group" : undefined} aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {aside && <span class="aside">{aside}</span>}
      </header>
      {children}
    </section>
  );
}

/** Terms and what they are; entries without a value are left out. */
export const Facts = ({ of }: { of: readonly (readonly [string, ComponentChildren])[] }) => (
  <dl class="facts">
    {of
      .filter(([, value]) => value || value === 0)
      .map(([term, value]) => [<dt>{term}</dt>, <dd>{value}</dd>])}
  </dl>
);

/** A large number with its label. */
export const Figure = ({ value, label }: { value: ComponentChildren; label: ComponentChildren }) => (
  <div class="figure">
    <div class="value">{value}</div>
    <div class="label">{label}</div>
  </div>
);

/** Text that another program wrote, such as the message of an event. */
export const Quote = ({ children }: { children: string }) => <p class="quote">{visible(children)}</p>;

export const Legend = ({ of }: { of: readonly (readonly [string, string])[] }) => (
  <ul class="legend">
    {of.map(([fill, text]) => (
      <li>
        <span class={`swatch ${fill}`} aria-hidden />
        {text}
      </li>
    ))}
  </ul>
);
