/** What the live page shows: the cluster, its version, and whether the server is there. */
import { signal } from "@preact/signals";
import { ApiError, get, LAB, post } from "./api";
import { Cluster, type Delta, type Snapshot, type Touched } from "./cluster";

export type Link =
  | { readonly name: "loading" | "live" | "still" }
  | { readonly name: "away"; readonly since: Date }
  | { readonly name: "refused"; readonly why: string };

export const cluster = signal<Cluster | undefined>(undefined);
/** Rises with every change of the cluster. */
export const version = signal(0);
export const link = signal<Link>({ name: "loading" });

type Listener = (touched: Touched | undefined) => void;
const listeners = new Set<Listener>();

/** Call `listener` after each delta with what it touched, and with undefined after a new snapshot. Return how to stop. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let source: EventSource | undefined;
let last = "";
let retry: ReturnType<typeof setTimeout> | undefined;
const RETRY_MS = 1500;

/** Enter with the token of the link, if there is one, then load the cluster and follow it. */
export async function start(): Promise<void> {
  try {
    await enter();
    await load();
  } catch (error) {
    failed(error);
  }
}

async function enter(): Promise<void> {
  const token = /^#(?:.*&)?token=([^&]+)/.exec(location.hash)?.[1];
  if (!token) return;
  history.replaceState(null, "", location.pathname + location.search + "#/");
  dispatchEvent(new HashChangeEvent("hashchange"));
  try {
    await post("session", { token: decodeURIComponent(token) });
  } catch (error) {
    // A link works once. Where it is opened again, the session that it began may still hold: the snapshot will tell.
    if (!(error instanceof ApiError && error.status === 401)) throw error;
  }
}

async function load(): Promise<void> {
  const snapshot = await get<Snapshot>("snapshot");
  cluster.value = new Cluster(snapshot);
  last = snapshot.id;
  version.value += 1;
  for (const listener of listeners) listener(undefined);
  if (snapshot.live) follow();
  else link.value = { name: "still" };
}

function follow(): void {
  source?.close();
  const events = new EventSource(`${LAB}events?after=${encodeURIComponent(last)}`, { withCredentials: true });
  source = events;
  events.onopen = () => (link.value = { name: "live" });
  events.addEventListener("delta", (event) => changed(JSON.parse((event as MessageEvent<string>).data) as Delta));
  events.addEventListener("reset", () => void again());
  events.onerror = () => {
    away();
    // A refused stream is not repeated by the browser: a new one may be answered, or say why not.
    if (events.readyState === EventSource.CLOSED) later();
  };
}

function changed(delta: Delta): void {
  const now = cluster.value;
  if (!now) return;
  const touched = now.apply(delta);
  last = delta.id;
  link.value = { name: "live" };
  version.value += 1;
  for (const listener of listeners) listener(touched);
}

async function again(): Promise<void> {
  source?.close();
  try {
    await load();
  } catch (error) {
    failed(error);
  }
}

function failed(error: unknown): void {
  if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
    link.value = { name: "refused", why: error.message };
    return;
  }
  away();
  later();
}

function away(): void {
  if (link.value.name !== "away") link.value = { name: "away", since: new Date() };
}

function later(): void {
  clearTimeout(retry);
  retry = setTimeout(() => void again(), RETRY_MS);
}
