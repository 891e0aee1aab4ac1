/** A command that the reader can copy, and run where the interface may change the cluster. */
import { Button } from "./basics";
import { useContext, useRef, useState } from "preact/hooks";
import { Links } from "./links";
import { visible } from "../text";

export function Command({ text }: { text: string }) {
  const { run } = useContext(Links);
  const code = useRef<HTMLElement>(null);
  const [copied, setCopied] = useState<"" | "Copied" | "Selected">("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied("Copied");
    } catch {
      // No permission: select the text instead, so that the reader's own shortcut copies it.
      if (code.current) getSelection()?.selectAllChildren(code.current);
      setCopied("Selected");
    }
    setTimeout(() => setCopied(""), 2000);
  };
  return (
    <div class="command">
      <code ref={code}>{visible(text)}</code>
      <Button onClick={copy} aria-label={`Copy: ${text}`}>
        <span aria-live="polite">{copied || "Copy"}</span>
      </Button>
      {run && text.startsWith("kubectl ") && <Button onClick={() => run(text)}>Run …</Button>}
    </div>
  );
}
