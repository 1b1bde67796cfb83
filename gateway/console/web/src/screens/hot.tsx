import { type Counters, type ReactorEntry, type TrendingItem } from "@skein-feed/client";
import { useState } from "preact/hooks";
import { skein } from "../api.js";
import { date } from "../format.js";
import { useAsked, usePaged } from "../hooks.js";
import { TableCell, Failed, Field, Form, Panel, ReadOn, User, When } from "../parts.js";
import { go, route, to } from "../route.js";

interface Row {
  item: TrendingItem;
  counters: Counters | undefined;
}

/** Items by heat, with what is counted of them. */
export function Hot() {
  const owner = route.value.params.get("owner") ?? "";
  const board = route.value.params.get("board") ?? "";
  const { entries, error, busy, more, again } = usePaged<Row>(
    async (pageToken, signal) => {
      const page = await skein.counters.listTrending({ scope: scope(owner, board), pageToken, pageSize: 50 }, { signal });
      const keys = page.items.map((i) => ({ target: { case: "itemId", value: i.itemId } as const }));
      const counted = keys.length === 0 ? [] : (await skein.counters.batchGetCounters({ keys }, { signal })).counters;
      return { entries: page.items.map((item, i) => ({ item, counters: counted[i] })), next: page.nextPageToken };
    },
    [owner, board],
  );
  const hottest = Number(entries?.[0]?.item.score ?? 0n);
  return (
    <>
      <Ask key={`${owner} ${board}`} owner={owner} board={board} />
      {route.value.params.get("item") && <Reactors item={route.value.params.get("item") ?? ""} />}
      <Panel
        title={owner === "" ? "Hottest of all" : `Hottest of ${owner}${board ? ` / ${board}` : ""}`}
        side={
          <button type="button" class="quiet" onClick={again}>
            Refresh
          </button>
        }
      >
        <Failed error={error} />
        {entries?.length === 0 && <p class="dim">
            No item here has heat yet. An item gets heat when it is played, reacted to or pinned again, and loses half of it in each half-life; a list of an
            owner or a board has the items of its pins. To see one appear, <a href={to("try", { method: "EventService/Publish" })}>publish an event</a>.
          </p>}
        {entries && entries.length > 0 && (
          <table class="stack" aria-label="Items by heat" aria-busy={busy}>
            <thead>
              <tr>
                <th class="number">#</th>
                <th>Item</th>
                <th>Heat, compared with the hottest</th>
                <th class="number">Score</th>
                <th class="number">Plays</th>
                <th class="number">Reactions</th>
                <th class="number">Re-pins</th>
              </tr>
            </thead>
            <tbody>
              {entries.map(({ item, counters }, i) => {
                const part = 2 ** ((Number(item.score) - hottest) / 65536); // the score is a logarithm
                return (
                  <tr key={item.itemId}>
                    <TableCell label="#" class="number dim">
                      {i + 1}
                    </TableCell>
                    <TableCell label="Item" class="id">
                      {item.itemId}
                    </TableCell>
                    <TableCell label="Heat">
                      <meter min={0} max={1} value={part} aria-label={`Heat of ${item.itemId}`} /> {(100 * part).toFixed(part < 0.1 ? 1 : 0)} %
                    </TableCell>
                    <TableCell label="Score" class="number">
                      {(Number(item.score) / 65536).toFixed(2)}
                    </TableCell>
                    <TableCell label="Plays" class="number">
                      {counters?.playCount.toLocaleString("en-US")}
                    </TableCell>
                    <TableCell label="Reactions" class="number">
                      {counters && <a href={to("hot", { owner, board, item: item.itemId })}>{reactionsText(counters)}</a>}
                    </TableCell>
                    <TableCell label="Re-pins" class="number">
                      {counters?.repinCount.toLocaleString("en-US")}
                    </TableCell>
                  </tr>
                );
              })}
            </tbody>
          </table>
        )}
        <ReadOn more={more} />
      </Panel>
    </>
  );
}

/** Says how many users react to an item, by kind. */
function reactionsText(counters: Counters): string {
  return counters.reactions.map((r) => `${r.kind} ${r.count.toLocaleString("en-US")}`).join(", ") || "none";
}

/** Who reacts to an item with one kind, newest first; with a viewer, as that user sees the list. */
function Reactors({ item }: { item: string }) {
  const { owner, board, kind, viewer } = Object.fromEntries(["owner", "board", "kind", "viewer"].map((name) => [name, route.value.params.get(name) ?? ""]));
  const counted = useAsked(
    async (signal) => (await skein.counters.batchGetCounters({ keys: [{ target: { case: "itemId", value: item } }] }, { signal })).counters[0]!,
    0,
    [item],
  );
  const { entries, total, error, busy, more } = usePaged<ReactorEntry>(
    async (pageToken, signal) => {
      const page = await skein.counters.listReactors({ itemId: item, kind: kind ?? "", viewerId: viewer ?? "", pageToken, pageSize: 50 }, { signal });
      return { entries: page.entries, next: page.nextPageToken, total: page.totalSize };
    },
    [item, kind, viewer],
  );
  return (
    <Panel title={`Who reacts to ${item}`} side={total !== undefined && <span class="dim">{total} in all</span>}>
      <nav class="tabs" aria-label="Kinds of reactions">
        {counted.value?.reactions.map((r) => (
          <a key={r.kind} href={to("hot", { owner, board, item, viewer, kind: r.kind })} aria-current={r.kind === (kind || "like") ? "true" : undefined}>
            {r.kind} {r.count.toLocaleString("en-US")}
          </a>
        ))}
      </nav>
      <AsViewer key={viewer} item={item} viewer={viewer ?? ""} />
      <Failed error={counted.error ?? error} />
      {entries?.length === 0 && (
        <p class="dim">
          Nobody is here. A user appears when an event "reacted" of the kind {kind || "like"} names the item. Private kinds, which begin with _, have no
          such list; and as a viewer sees it, the list leaves out users whom a block separates from the viewer.
        </p>
      )}
      {entries && entries.length > 0 && (
        <table class="stack" aria-busy={busy} aria-label="Who reacts">
          <tbody>
            {entries.map((e) => (
              <tr key={e.userId}>
                <td>
                  <User id={e.userId} />
                </td>
                <TableCell label="Since">
                  <When at={date(e.reactTime)} />
                </TableCell>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <ReadOn more={more} />
    </Panel>
  );
}

function AsViewer(props: { item: string; viewer: string }) {
  const [viewer, setViewer] = useState(props.viewer);
  const params = Object.fromEntries(["owner", "board", "kind"].map((name) => [name, route.value.params.get(name) ?? ""]));
  return (
    <Form label="Viewer" submit={() => go("hot", { ...params, item: props.item, viewer: viewer.trim() })}>
      <Field label="As this user sees it" value={viewer} set={setViewer} placeholder="the application" />
      <button>Show</button>
    </Form>
  );
}

function scope(owner: string, board: string) {
  if (owner === "") return { case: undefined };
  if (board === "") return { case: "ownerId", value: owner } as const;
  return { case: "board", value: { ownerId: owner, boardId: board } } as const;
}

function Ask(props: { owner: string; board: string }) {
  const [owner, setOwner] = useState(props.owner);
  const [board, setBoard] = useState(props.board);
  return (
    <Panel title="Lists by heat">
      <Form label="List" submit={() => go("hot", { owner: owner.trim(), board: owner.trim() && board.trim() })}>
        <Field label="Owner" value={owner} set={setOwner} placeholder="everybody" autofocus />
        <Field label="Board" value={board} set={setBoard} placeholder="all" />
        <button>Show</button>
      </Form>
    </Panel>
  );
}
