import type { ComponentChildren } from "preact";
import { skein } from "./api.js";
import { useAsked } from "./hooks.js";
import { to } from "./route.js";

/** Users of `skein demo`. */
const demoUsers = ["ada", "greta", "hugo", "zoe"];

/** Shows links to users of the demo where the service has them, and otherwise how to get a service that has. */
export function DemoUsers({ children }: { children: ComponentChildren }) {
  const { value } = useAsked(
    async (signal) => {
      const { users } = await skein.graph.batchGetFollowCounts({ userIds: demoUsers }, { signal });
      return users.every((u) => u.followerCount + u.followingCount > 0);
    },
    0,
    [],
  );
  if (value === undefined) return null;
  if (value) return <p>This service has the users of the demo. For example: {children}</p>;
  return (
    <p class="dim">
      The command <code>skein demo</code> starts a service with users to try this with.
    </p>
  );
}

/** The screen of each user of the demo. */
export function DemoUserLinks({ screen, name }: { screen: string; name: string }) {
  return (
    <>
      {demoUsers.map((id, i) => (
        <span key={id}>
          {i > 0 && ", "}
          <a class="id" href={to(screen, { [name]: id })}>
            {id}
          </a>
        </span>
      ))}
    </>
  );
}
