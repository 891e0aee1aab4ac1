/** What stands in place of an answer: progress with a way to cancel, or why there is none. */
import { Badge, Button, Muted } from "../kit/basics";
import type { Asked } from "../live/questions";
import { visible } from "../text";

interface WaitingProps {
  asked: Asked<unknown>;
  what: string;
  cancel: () => void;
  again: () => void;
}

export function Waiting({ asked, what, cancel, again }: WaitingProps) {
  if (asked.state === "failed") {
    return (
      <div class="waiting" role="alert">
        <p>
          <Badge tone="no">no answer</Badge> {visible(asked.why)}
        </p>
        <Button onClick={again}>
          Ask again
        </Button>
      </div>
    );
  }
  if (asked.state === "idle") {
    return (
      <Button onClick={again}>
        Ask
      </Button>
    );
  }
  const progress = asked.state === "running" ? asked.progress : undefined;
  return (
    <div class="waiting" role="status">
      <p>
        {visible(what)} …{progress && <Muted> {visible(progress.text)}</Muted>}
      </p>
      {progress?.total ? <progress value={progress.done ?? 0} max={progress.total} /> : <progress />}
      <Button onClick={cancel}>
        Cancel
      </Button>
    </div>
  );
}
