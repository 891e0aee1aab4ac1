/** Pages by the fragment of the address: `#/pod/default/web`, with `?key=value` behind it. */
import { signal } from "@preact/signals";

export interface Place {
  /** The segments of the path, decoded. */
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

export function placeOf(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

export const place = signal<Place>(placeOf(location.hash));

addEventListener("hashchange", () => {
  clearTimeout(writing);
  place.value = placeOf(location.hash);
  scrollTo(0, 0);
});

/** Return the link to a page; empty values are left out. */
export function linkTo(path: readonly string[], query: Readonly<Record<string, string>> = {}): string {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return "#/" + path.map(encodeURIComponent).join("/") + (search ? "?" + search : "");
}

export const podLink = (pod: string): string => linkTo(["pod", ...pod.split("/")]);

export const nodeLink = (node: string): string => linkTo(["node", node]);

export const workloadLink = (workload: string): string => linkTo(["workload", ...workload.split("/")]);

export const eventLink = (event: string): string => linkTo(["atlas"], { event });

let writing: ReturnType<typeof setTimeout> | undefined;

/** Change the query of the address without a new entry in the history. */
export function setQuery(query: Readonly<Record<string, string>>): void {
  const link = linkTo(place.value.path, query);
  place.value = placeOf(link);
  clearTimeout(writing);
  // The browser takes a frame for it, in which the page is drawn first.
  writing = setTimeout(() => history.replaceState(null, "", link));
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
