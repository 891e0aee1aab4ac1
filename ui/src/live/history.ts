/** The last questions that were asked in this browser, newest first. Each has the link that asks it again. */
import { signal } from "@preact/signals";

export interface AskedBefore {
  readonly link: string;
  readonly title: string;
}

const KEY = "moorage.questions";
const MOST = 10;

export const askedBefore = signal<readonly AskedBefore[]>(stored());

/** Put a question first in the list. Where the browser keeps nothing, the list lasts as long as the page. */
export function remember(link: string, title: string): void {
  askedBefore.value = [{ link, title }, ...askedBefore.value.filter((one) => one.link !== link)].slice(0, MOST);
  keep();
}

export function forget(): void {
  askedBefore.value = [];
  keep();
}

function keep(): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(askedBefore.value));
  } catch {
    // Storage is full or not allowed.
  }
}

function stored(): readonly AskedBefore[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter(isQuestion).slice(0, MOST) : [];
  } catch {
    return [];
  }
}

/** Anything may stand in the storage; a link leads nowhere but to a page of this interface. */
const isQuestion = (one: unknown): one is AskedBefore => {
  const { link, title } = (one ?? {}) as Partial<AskedBefore>;
  return typeof link === "string" && link.startsWith("#/") && typeof title === "string";
};
