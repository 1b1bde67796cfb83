import type { DescMethod } from "@bufbuild/protobuf";
import { AdminService, EventService, GraphService } from "@skein-feed/client";

/** The roles of tokens, as docs/access.md has them. */
export type Role = "read" | "publish" | "offline" | "admin";

const otherRoles = new Map<DescMethod, Role>([
  [EventService.method.publish, "publish"],
  [EventService.method.watch, "offline"],
  [GraphService.method.scanFollowers, "offline"],
  [AdminService.method.getStatus, "read"], // or admin
]);

/** The role that a method needs. */
export function roleOf(method: DescMethod): Role {
  return otherRoles.get(method) ?? (method.parent.typeName === AdminService.typeName ? "admin" : "read");
}
