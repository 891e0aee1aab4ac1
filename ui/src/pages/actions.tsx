/** Commands for what the page shows, where the interface may change the cluster. */
import { useContext } from "preact/hooks";
import { Section } from "../kit/basics";
import { Command } from "../kit/command";
import { Links } from "../kit/links";

/** Words of names that need quotes in a shell are hostile: no command is offered for them. */
const PLAIN = /^[\w./ -]+$/;

export const Actions = ({ names, of }: { names: string; of: readonly string[] }) =>
  useContext(Links).run && PLAIN.test(names) ? (
    <Section title="Actions" aside="run with your rights, after you confirm">
      <div class="cards">
        {of.map((command) => (
          <Command key={command} text={command} />
        ))}
      </div>
    </Section>
  ) : null;
