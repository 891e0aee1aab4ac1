import { describe, expect, it } from "vitest";
import { ranking, turns, type ScoreColumns } from "../src/ranking";

const scores: ScoreColumns = {
  nodes: ["a", "b", "c"],
  plugins: ["Fit", "Spread"],
  weights: [1, 2],
  normalised: [
    [72, 71, 100],
    [50, 60, 0],
  ],
};

describe("ranking", () => {
  it("adds weight times score and puts the highest total first", () => {
    expect(ranking(scores, [1, 2])).toEqual({ order: [1, 0, 2], totals: [172, 191, 100], best: [1] });
  });

  it("names all nodes of a draw, in the engine's order", () => {
    expect(ranking(scores, [0, 0])).toEqual({ order: [0, 1, 2], totals: [0, 0, 0], best: [0, 1, 2] });
  });

  it("finds the weights at which another node is best", () => {
    // b has 120 + 71w, a 100 + 72w, c 100w: c draws level with neither before 120/29.
    expect(turns(scores, [1, 2], 0)).toEqual({ above: 5 });
    // With 28 of Spread away, c has 100, a 72, b 71.
    expect(turns(scores, [1, 2], 1)).toEqual({ below: 0 });
  });
});
