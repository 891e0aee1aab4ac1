/** Questions to the server: asked on a fork of the cluster, with progress and cancel. */
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, ask, get, post } from "./api";
import type { QuestionFields } from "./question_fields";

export interface Progress {
  readonly text: string;
  readonly done?: number;
  readonly total?: number;
}

interface Status<T> {
  readonly state: "running" | "done" | "failed" | "cancelled";
  readonly progress?: Progress;
  readonly answer?: T;
  readonly error?: string;
}

export interface Question {
  /** The fields of the document's own `question`: they say which command answers. */
  readonly question: QuestionFields;
  readonly changes?: readonly unknown[];
}

const POLL_MS = 300;

/** Ask, wait for the answer, and report progress. Aborting cancels the question on the server. */
export async function answerTo<T>(
  first: () => Promise<{ status: number; body: unknown }>,
  progress: (now: Progress) => void,
  signal: AbortSignal,
): Promise<T> {
  const { status, body } = await first();
  if (status !== 202) return body as T;
  const path = `questions/${encodeURIComponent((body as { id: string }).id)}`;
  const cancel = () => void ask(path, { method: "DELETE" }).catch(() => undefined);
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel, { once: true });
  for (;;) {
    if (signal.aborted) throw new ApiError(0, "Cancelled.");
    const now = await get<Status<T>>(path);
    if (now.state === "done") {
      signal.removeEventListener("abort", cancel);
      return now.answer!;
    }
    if (now.state !== "running") throw new ApiError(0, now.error ?? (now.state === "failed" ? "The question failed." : "Cancelled."));
    if (now.progress) progress(now.progress);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

export const answerOf = <T>(question: Question, progress: (now: Progress) => void, signal: AbortSignal): Promise<T> =>
  answerTo<T>(() => post("questions", question), progress, signal);

export type Asked<T> =
  | { readonly state: "idle" }
  | { readonly state: "running"; readonly progress?: Progress; readonly last?: T }
  | { readonly state: "done"; readonly answer: T }
  | { readonly state: "failed"; readonly why: string };

/** One question of a component at a time: `run` asks, `cancel` stops; both a new question and unmounting cancel the last. */
export function useQuestion<T>(): readonly [Asked<T>, (ask: Asker<T>) => void, () => void] {
  const [asked, setAsked] = useState<Asked<T>>({ state: "idle" });
  const running = useRef<AbortController>(undefined);
  const cancel = () => {
    running.current?.abort();
    setAsked({ state: "idle" });
  };
  const run = (asker: Asker<T>) => {
    running.current?.abort();
    const control = new AbortController();
    running.current = control;
    setAsked((now) => ({ state: "running", ...(now.state === "done" && { last: now.answer }) }));
    const still = (next: Asked<T>) => running.current === control && !control.signal.aborted && setAsked(next);
    asker((progress) => still({ state: "running", progress }), control.signal).then(
      (answer) => still({ state: "done", answer }),
      (error: unknown) => still({ state: "failed", why: error instanceof Error ? error.message : String(error) }),
    );
  };
  useEffect(() => () => running.current?.abort(), []);
  return [asked, run, cancel];
}

export type Asker<T> = (progress: (now: Progress) => void, signal: AbortSignal) => Promise<T>;
