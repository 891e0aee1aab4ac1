/** A page of what the server says now. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Badge } from "../kit/basics";
import { visible } from "../text";
import { get } from "./api";
import { onChange } from "./state";

const SETTLED_MS = 120;

interface LatestProps<T> {
  path: string;
  pauseMs: number;
  show: (value: T) => ComponentChildren;
  /** It is part of another page. */
  within?: boolean | undefined;
}

/** Ask for `path` when it changes, and again after changes of the cluster, once per `pauseMs` at most. */
export function LatestPage<T>({ path, pauseMs, show, within }: LatestProps<T>) {
  const [value, setValue] = useState<T>();
  const [why, setWhy] = useState("");
  useEffect(() => {
    const control = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = () => {
      timer = undefined;
      get<T>(path, control.signal).then(
        (found) => (setValue(found), setWhy("")),
        (error: Error) => control.signal.aborted || setWhy(error.message),
      );
    };
    const stop = onChange(() => {
      timer ??= setTimeout(load, pauseMs);
    });
    // While the reader moves something, the path changes many times a second.
    if (value) timer = setTimeout(load, SETTLED_MS);
    else load();
    return () => {
      stop();
      clearTimeout(timer);
      control.abort();
    };
  }, [path]);
  const Part = within ? "div" : "main";
  return (
    <Part class={within ? "stack" : "page stack"} aria-busy={!value && !why}>
      {!value && !why && <h1 class="muted">Loading …</h1>}
      {why && (
        <p role="alert">
          <Badge tone="no">no answer</Badge> {visible(why)}
        </p>
      )}
      {value && show(value)}
    </Part>
  );
}
