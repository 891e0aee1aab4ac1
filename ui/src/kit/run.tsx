/** Run a command after its reader confirmed it: first as a dry run, which says what would happen or why it may not. */
import { useEffect, useRef, useState } from "preact/hooks";
import { visible } from "../text";
import { Button, Sign, type Tone } from "./basics";

interface RunDialogProps {
  text: string;
  run: (command: string, dryRun: boolean) => Promise<string>;
  onClose: () => void;
}

/** Outlives the part of the page that offered the command: what the command changes may redraw or remove that part. */
export function RunDialog({ text, run, onClose }: RunDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [said, setSaid] = useState<readonly [Tone, string]>();
  const [ran, setRan] = useState(false);
  const ask = (dryRun: boolean) => {
    setSaid(undefined);
    setRan(!dryRun);
    run(text, dryRun).then(
      (message) => setSaid(["ok", message]),
      (error: Error) => setSaid(["no", error.message]),
    );
  };
  useEffect(() => {
    dialog.current!.showModal();
    ask(true);
  }, []);
  return (
    <dialog ref={dialog} aria-label="Run this command?" onClose={onClose}>
      <h3>Run this command?</h3>
      <p class="command">
        <code>{visible(text)}</code>
      </p>
      <p role="status">{said ? [<Sign tone={said[0]} />, " ", visible(said[1])] : "Asking the server …"}</p>
      <p class="chips">
        <Button disabled={ran || said?.[0] !== "ok"} onClick={() => ask(false)}>
          Run it
        </Button>
        <Button onClick={() => dialog.current!.close()}>Close</Button>
      </p>
    </dialog>
  );
}
