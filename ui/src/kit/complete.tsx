/** A line for names: while a word is typed, names that have it are offered. Arrow keys choose one, Enter takes it. */
import { useId, useMemo, useState } from "preact/hooks";
import { visible } from "../text";

interface NamesInputProps {
  label: string;
  text: string;
  hint?: string | undefined;
  names: readonly string[];
  /** The line holds several names, between spaces. */
  many?: boolean;
  set: (text: string) => void;
}

const MOST = 8;

export function NamesInput({ label, text, hint, names, many, set }: NamesInputProps) {
  const id = useId();
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const [before, word] = many ? lastWord(text) : ["", text];
  const found = useMemo(() => (open ? matching(names, word) : []), [open, names, word]);
  const take = (name: string) => {
    set(before + name + (many ? " " : ""));
    setActive(-1);
    setOpen(false);
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "Escape") setOpen(false);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      const step = event.key === "ArrowDown" ? 1 : -1;
      setActive((at) => (found.length ? (at + step + found.length + (at < 0 && step < 0 ? 1 : 0)) % found.length : -1));
    } else if (event.key === "Enter" && found[active] !== undefined) {
      event.preventDefault();
      take(found[active]!);
    }
  };
  return (
    <div class="names">
      <label>
        <span>{label}</span>
        <input
          role="combobox"
          autocomplete="off"
          spellcheck={false}
          aria-expanded={found.length > 0}
          aria-controls={id}
          aria-autocomplete="list"
          aria-activedescendant={found[active] === undefined ? undefined : `${id}-${active}`}
          value={text}
          placeholder={hint}
          onInput={(event) => {
            set(event.currentTarget.value);
            setActive(-1);
            setOpen(true);
          }}
          onKeyDown={key}
          onBlur={() => setOpen(false)}
        />
      </label>
      <ul id={id} role="listbox" aria-label={`${label}: names`} class={found.length ? "offers" : "offers empty"}>
        {found.map((name, at) => (
          <li
            id={`${id}-${at}`}
            role="option"
            aria-selected={at === active}
            onMouseDown={(event) => {
              event.preventDefault();
              take(name);
            }}
          >
            {visible(name)}
          </li>
        ))}
      </ul>
    </div>
  );
}

function lastWord(text: string): [string, string] {
  const word = /[^\s,]*$/.exec(text)![0];
  return [text.slice(0, text.length - word.length), word];
}

/** The first names that have the word, those that begin with it before the others; none for a word that is a name already. */
export function matching(names: readonly string[], word: string): readonly string[] {
  if (!word) return [];
  const wanted = word.toLowerCase();
  const begin: string[] = [];
  const within: string[] = [];
  for (const name of names) {
    if (name === word) return [];
    const at = name.toLowerCase().indexOf(wanted);
    if (at === 0) begin.push(name);
    else if (at > 0) within.push(name);
    if (begin.length === MOST) break;
  }
  return [...begin, ...within].slice(0, MOST);
}
