import { failure } from "@skein-feed/client";
import { skein, token } from "./api.js";
import { useAsked } from "./hooks.js";
import type { Role } from "./roles.js";

/** Calls that change nothing, and that a service refuses for the role alone before it looks at what they ask. */
const probes: Record<Role, (signal: AbortSignal) => Promise<unknown>> = {
  read: (signal) => skein.graph.batchGetFollowCounts({}, { signal }),
  publish: (signal) => skein.events.publish({}, { signal }),
  offline: (signal) => skein.graph.scanFollowers({}, { signal })[Symbol.asyncIterator]().next(),
  admin: (signal) => skein.admin.listOperations({ pageSize: 1 }, { signal }),
};

/** Reports whether the token is known to lack a role. Without a token there are no roles. */
export function useLacks(role: Role | undefined): boolean {
  const lacks = async (signal: AbortSignal) => {
    if (role === undefined || token.value === "") return false;
    try {
      await probes[role](signal);
    } catch (err) {
      const why = failure(err);
      if (why === undefined) throw err;
      return why.reason === "ROLE_MISSING";
    }
    return false;
  };
  return useAsked(lacks, 0, [role]).value ?? false;
}
