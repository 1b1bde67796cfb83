// Package eventlog implements the log of skein on NATS JetStream: it appends facts, and reads them back so that every reader
// sees the same. Package events defines what a fact is.
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
// [Open] starts an embedded server or connects to an external one. A [Publisher] appends envelopes. A [Hub] reads the log, and gives
// each decoded envelope to all its subscribers.
//
// # Invariants
//
// I2, acknowledged means on disk: an append returns after the log has fsynced it, in a cluster on a quorum. The publisher and the
// settings of the stream uphold it.
//
// I14, one log: after a cursor, a reader gets the same envelopes whether they are in the archive or in the stream, and whatever
// is archived and trimmed meanwhile. Two things are missing in the archive: event ids, and the fields of an [events.Cursor] that are
// used only in the stream. So a cursor from the archive has no checksum and no warm-up start, and is compared by its last time
// given. A reader whose cursor the stream can serve never opens the archive; if trimming overtakes it, it goes back to the archive.
// A gap in the sequences is resolved before anything after it is returned. If the archive has the missing part, it is read there, as
// if the stream had been trimmed beyond the gap; a reader at the end of the archive also learns there what the stream no longer
// has. Nothing above [events.Cursor].WarmSeq of the end of the archive is ever trimmed ([Log.Trim]), so a reader at that end can
// warm up. The reader and [Log.CheckCursor] uphold it.
//
// # The boundary between archive and stream
//
// Three sequences determine where a reader continues after a cursor at sequence c: the end of the archive (e), the beginning of
// the stream (s: from there on it has no gaps and is of the present epoch), and the start of the decoder's warm-up (w ≤ c+1):
//
//	state       cursor                          the reader continues                  checked against
//	inStream    s ≤ w                           in the stream                         the message at c
//	inArchive   else, c < e                     in the archive after c                what the archive says of c
//	atBoundary  else, c = e; or after it, of    in the stream after e, warmed up      the message at e, or the time of
//	            the archive: its end was lost   before it; up to c it is passed over  the envelope at c when it is passed
//	atGap       else, e < c or c = e; s ≤ e+1   the same, but the decoder learns      the message at e, if it is there, and
//	                                            from the archive what it warms up by  at c
//	no state    else                            [events.ErrHole] if s > e+1: what lies between is lost; else [events.ErrTrimmed]
//
// # Holes
//
// A hole ([events.ErrHole]) is a sequence that neither the stream nor the archive has, and that was never trimmed. Every reader stops in
// front of it (I11, I14): a fold that passed over it would differ from one that read the lost envelope. A reader
// also stops if its warm-up would cross a hole, because it could not recognize repeats (I6). [Log.Examine] finds holes before readers
// do. Messages that come back close a hole. [Log.AcceptHole] records it in the metadata of the stream: each lost sequence is
// then one envelope without events and with one [events.Reject], the same for all readers and in the archive.
//
// # Epochs
//
// A log that was restored, moved or scrubbed continues in a new epoch ([Restore]): everything up to its head H is in the
// archive, and its stream begins at H+1. The stream's metadata names the epochs before, each with the last sequence of it
// that the log still has, and the last time given.
//
//	epoch 1   1 ─────────────── H ┄┄┄┄┄ lost or replaced: cursors, positions and page tokens from here are refused
//	epoch 2                     └ H+1 ───────────▶       of up to H they are adopted ([Log.Adopt])
//
// Times continue after the last one given (I5). A decoder that begins at H+1 cannot warm up further back, so [events.Archive].Repeats
// gives it the event ids seen within the horizon before H (I6). Once a warm-up begins above H+1, the whole horizon is in the new
// epoch, and those ids are not needed.
package eventlog
