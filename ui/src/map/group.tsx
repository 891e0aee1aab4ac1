/** The tiles of one group under its title. */
import type { ComponentChildren } from "preact";
import { Muted } from "../kit/basics";
import { count, visible } from "../text";
import type { TileGroup } from "./layout";

export const GroupBox = ({ group: { title, names }, children }: { group: TileGroup; children: ComponentChildren }) => (
  <div class="tile-group" role="group" aria-label={visible(title) || "all nodes"}>
    {title && (
      <p class="tile-title">
        <span class="name">{visible(title)}</span> <Muted>{count(names.length)}</Muted>
      </p>
    )}
    {children}
  </div>
);
