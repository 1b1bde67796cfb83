export { Skein, type SkeinOptions } from "./client.js";
export { Session } from "./session.js";
export { type Failure, type ReasonName, type Violation, failure } from "./errors.js";
export { type EventInit, type EventKind, type PublishOptions, event } from "./publish.js";
export type { StreamOptions, WatchOptions } from "./streams.js";

export * from "./gen/skein/v1/admin_service_pb.js";
export * from "./gen/skein/v1/counter_service_pb.js";
export * from "./gen/skein/v1/errors_pb.js";
export * from "./gen/skein/v1/event_pb.js";
export * from "./gen/skein/v1/event_service_pb.js";
export * from "./gen/skein/v1/feed_service_pb.js";
export * from "./gen/skein/v1/graph_service_pb.js";
export * from "./gen/skein/v1/notification_service_pb.js";
export * from "./gen/skein/v1/seen_service_pb.js";
