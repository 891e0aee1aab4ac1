/** The colour of a plugin, by its place among those whose scores differ. */
export const fill = (differing: readonly number[], plugin: number) => String((differing.indexOf(plugin) % 8) + 1);
