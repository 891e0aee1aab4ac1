import { describe, expect, it } from "vitest";
import { amount, bytes, cores, count, percent, plural, seconds, signed, visible } from "../src/text";

describe("amounts", () => {
  it.each([
    [0, "0"],
    [500, "500m"],
    [1000, "1"],
    [11840, "11.84"],
    [15890, "15.89"],
  ])("%d millicores are %s", (milli, text) => expect(cores(milli)).toBe(text));

  it.each([
    [0, "0"],
    [1023, "1023"],
    [1610612736, "1.5Gi"],
    [214748364800, "200Gi"],
    [-1024, "−1Ki"],
  ])("%d bytes are %s", (value, text) => expect(bytes(value)).toBe(text));

  it("takes the unit from the resource", () => {
    expect(amount("cpu", 250)).toBe("250m");
    expect(amount("memory", 1073741824)).toBe("1Gi");
    expect(amount("hugepages-2Mi", 2097152)).toBe("2Mi");
    expect(amount("nvidia.com/gpu", 12000)).toBe("12,000");
  });
});

describe("words", () => {
  it.each([
    [0.5, "0.5s"],
    [41, "41s"],
    [125, "2m5s"],
    [3600, "1h"],
    [3720, "1h2m"],
  ])("%d seconds are %s", (value, text) => expect(seconds(value)).toBe(text));

  it("counts", () => {
    expect(plural(1, "node")).toBe("1 node");
    expect(plural(5000, "node")).toBe("5,000 nodes");
    expect(plural(2, "kind of event", "kinds of event")).toBe("2 kinds of event");
    expect(percent(0.4097)).toBe("41.0%");
    expect(signed(3) + signed(-3) + signed(0)).toBe("+3−30");
    expect(count(1234.567)).toBe("1,234.57");
  });

  it("shows characters that would turn or hide text", () => {
    expect(visible("web\u202egnp.exe")).toBe("web\\u202egnp.exe");
    expect(visible("a\u0000b\nc")).toBe("a\\u0000b\\u000ac");
    expect(visible("Zoë — ✓ 日本")).toBe("Zoë — ✓ 日本");
  });
});
