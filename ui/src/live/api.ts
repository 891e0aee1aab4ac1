/** Requests to the server that the page came from. Errors are its Status objects. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** The paths under /lab/v1, wherever the server puts the page. A page in a frame of a notebook has no server, and no address. */
export const LAB = location.protocol === "about:" ? "" : new URL("../lab/v1/", location.href.replace(/#.*/, "")).pathname;

export async function ask<T>(path: string, init?: RequestInit): Promise<{ status: number; body: T }> {
  let response: Response;
  try {
    response = await fetch(LAB + path, { credentials: "same-origin", ...init });
  } catch {
    throw new ApiError(0, "The server does not answer.");
  }
  const text = await response.text();
  const body = text ? (JSON.parse(text) as unknown) : undefined;
  if (!response.ok) {
    const message = (body as { message?: string } | undefined)?.message;
    throw new ApiError(response.status, message || `The server answers ${response.status}.`);
  }
  return { status: response.status, body: body as T };
}

export const get = async <T>(path: string, signal?: AbortSignal): Promise<T> =>
  (await ask<T>(path, signal ? { signal } : undefined)).body;

export const post = <T>(path: string, body: unknown): Promise<{ status: number; body: T }> =>
  ask<T>(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

/** Return the path of a pod below `prefix`: its namespace and name. */
export const podPath = (prefix: string, pod: string): string =>
  [prefix, ...pod.split("/")].map(encodeURIComponent).join("/");
