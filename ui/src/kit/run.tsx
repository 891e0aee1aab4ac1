/** Run a command after its reader confirmed it: first as a dry run, which says what would happen or why it may not. */
import { useRef, useState } from "preact/hooks";
import { visible } from "../text";
import { Button, Sign, type Tone } from "./basics";

interface RunProps {
  text: string;
  run: (command: string, dryRun: boolean) => Promise<string>;
}

export function Run({ text, run }: RunProps) {
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
  const open = () => {
    dialog.current!.showModal();
    ask(true);
  };
  return (
    <>
      <Button onClick={open}>Run …</Button>
      <dialog ref={dialog} aria-label="Run this command?">
        <h3>Run this command?</h3>
        <p class="command">
          <code>{visible(text)}</code>
        </p>
        <p role="status">{said ? [<Sign tone={said[0]} />, " ", visible(said[1])] : "Asking the server …"}</p>
        <p class="chips">
          <Button disabled={ran || said?.[0] !== "ok"} onClick={() => ask(false)}>
            Run it
          </Button>
          <Button onClick={() => dialog.current!.close()}>{ran ? "Close" : "Cancel"}</Button>
        </p>
      </dialog>
    </>
  );
}
