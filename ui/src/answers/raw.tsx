/** Any value, as nested lists: for documents of a kind that has no page. */
import { Muted } from "../kit/basics";
import { visible } from "../text";

const MANY = 100;

export function Raw({ value }: { value: unknown }) {
  if (value === null || typeof value !== "object") return <span class="name">{visible(String(value))}</span>;
  const entries = Object.entries(value);
  if (!entries.length) return <Muted>none</Muted>;
  return (
    <dl class="facts">
      {entries.slice(0, MANY).map(([key, inner]) => [
        <dt>{visible(key)}</dt>,
        <dd>
          <Raw value={inner} />
        </dd>,
      ])}
      {entries.length > MANY && <dd class="muted">and {entries.length - MANY} more</dd>}
    </dl>
  );
}
