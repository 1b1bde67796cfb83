// Package eventlog implements the log of skein on NATS JetStream. It appends facts, and reads them
// back so that every reader gets the same envelopes. Package events defines what a fact is.
//
//	clients ──▶ gateway ──CheckCall─▶ publisher: EncodeCall     NATS clients in any language
//	                                     │ JoinCalls: all that waits             │
//	                                     ▼ while the last fsync is under way     │
//	       ┌──────────────────────────────────────────────────────────┐         │
//	       │ stream: the recent part, one subject, fsynced appends      │ ◀───────┘
//	       └──────────────────────────────────────────────────────────┘
//	            │        ▲ Trim: what is archived, less one horizon       ┌────────────────────────────┐
//	            │        └─────────────────────────────────────────────── │ Archive: the older part     │
//	            │ one unfiltered ordered read: sequence, timestamp, bytes └────────────────────────────┘
//	            ▼                                                              │ decoded envelopes,
//	         Decoder: checks, times, drops repeats                             │ classes that are not wanted left out
//	            │ *Envelope, shared and never changed                          │
//	            └───────────────────────▶ reader ◀─────────────────────────────┘ first, up to Archive.End, where the
//	                                        │                                    stream does not begin early enough
//	                                        ▼
//	                                       hub ──▶ graph, inbox, seen, counters, Watch, archive
//	                                                 each commits its rows with Envelope.Cursor
//	                                                            │
//	       after a restart: the reader finds the place again ◀──┘
//
// [Open] starts an embedded server or connects to an external one. A [Publisher] appends envelopes.
// A [Hub] reads the log and passes each decoded envelope to all its subscribers.
//
// # Invariants
//
// I2, acknowledged means on disk: an append returns after the log has fsynced the envelope, and in
// a cluster after a quorum has. The publisher and the settings of the stream ensure this.
//
// I14, one log: after a cursor, a reader gets the same envelopes whether they are in the archive or
// in the stream, and whatever is archived and trimmed meanwhile. [Log.CheckCursor] and the reader
// ensure this:
//
//   - The archive lacks the event ids, and those fields of an [events.Cursor] that only the stream
//     needs. So a cursor from the archive has no checksum and no warm-up start, and is compared by
//     the last log time that was assigned.
//   - A reader never opens the archive if the stream has everything after its cursor. If trimming
//     overtakes the reader, it goes back to the archive.
//   - A reader resolves a gap in the sequences before it returns anything after the gap. If the
//     archive has the missing part, the reader reads it there, as if the stream had been trimmed
//     beyond the gap. A reader at the end of the archive also learns from the archive what the
//     stream no longer has of the horizon before that end.
//   - [Log.Trim] never trims anything at or after the WarmSeq of the cursor at the end of the
//     archive, so a reader at that end can warm up.
//
// # The boundary between archive and stream
//
// Three sequences determine where a reader continues after a cursor at sequence c: the end of the
// archive (e), the beginning of the stream (s), and the start of the decoder's warm-up (w ≤ c+1).
// From s on, the stream has no gaps and belongs to the present epoch.
//
//	state       cursor                          the reader continues                  checked against
//	inStream    s ≤ w                           in the stream                         the message at c
//	inArchive   else, c < e                     in the archive after c                what the archive says of c
//	atBoundary  else, c = e; or after it, of    in the stream after e, warmed up      the message at e, or the time of
//	            the archive: its end was lost   before it, and skips what is up to c  the envelope at c when it is skipped
//	atGap       else, e < c or c = e; s ≤ e+1   the same, but the decoder learns      the message at e, if it is there, and
//	                                            from the archive what it warms up by  at c
//	no state    else                            [events.ErrHole] if s > e+1: what lies between is lost; else [events.ErrTrimmed]
//
// # Holes
//
// A hole ([events.ErrHole]) is a sequence that neither the stream nor the archive has, and that was
// never trimmed. Every reader stops in front of it (I11, I14), because a fold that skipped the hole
// would differ from one that had read the lost envelope. A reader also stops if its warm-up would
// cross a hole, because it could not recognize repeats (I6). [Log.VerifyUnarchived] finds holes
// before readers do.
//
// A hole closes when its messages come back. Otherwise an operator accepts the hole with
// [Log.AcceptHole], which records it in the metadata of the stream. Each lost sequence is then an
// envelope without events and with one [events.Reject], the same for all readers and in the
// archive.
//
// # Epochs
//
// A log that was restored, moved or scrubbed continues in a new epoch ([Restore]). Everything up to
// its head H is in the archive, and its stream begins at H+1. The metadata of the stream lists the
// earlier epochs, each with the last sequence that the log still has of it, and the last log time
// that was assigned before H+1.
//
//	epoch 1   1 ─────────────── H ┄┄┄┄┄ lost or replaced: cursors, positions and page tokens from here are rejected
//	epoch 2                     └ H+1 ───────────▶       those up to H are adopted ([Log.AdoptCursor])
//
// Times continue after the last one that was assigned (I5). A decoder that begins at H+1 cannot
// warm up before it, so [events.Archive].Repeats gives it the event ids of the horizon before H
// (I6). Once a warm-up begins after H+1, the whole horizon is in the new epoch, and the decoder
// does not need those ids.
package eventlog
