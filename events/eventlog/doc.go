// Package eventlog is the log of skein on NATS JetStream: how facts are appended, and how they are read back so that every reader
// sees the same. What a fact is, package events says.
//
//	clients ──▶ gateway ──Validate──▶ publisher                 NATS clients in any language
//	                                     │ EncodeEnvelope: all that waits        │
//	                                     ▼ while the last fsync is under way     │
//	       ┌──────────────────────────────────────────────────────────┐         │
//	       │ stream: the recent part, one subject, fsynced appends      │ ◀───────┘
//	       └──────────────────────────────────────────────────────────┘
//	            │        ▲ Trim: what is archived, less one horizon       ┌────────────────────────────┐
//	            │        └─────────────────────────────────────────────── │ Past: the archive, the rest │
//	            │ one unfiltered ordered read: sequence, timestamp, bytes └────────────────────────────┘
//	            ▼                                                              │ decoded envelopes,
//	         Decoder: checks, times, drops repeats                             │ classes that are not wanted left out
//	            │ *Envelope, shared and never changed                          │
//	            └───────────────────────▶ reader ◀─────────────────────────────┘ first, up to Past.End, where the
//	                                        │                                    stream does not begin early enough
//	                                        ▼
//	                                       hub ──▶ graph, inbox, seen, counters, Watch, archive
//	                                                 each commits its rows with Envelope.Cursor
//	                                                            │
//	       after a restart: the reader finds the place again ◀──┘
//
// [Open] starts an embedded server or connects to others, a [Publisher] appends, and a [Hub] hands each decoded envelope to all that
// follow the log.
//
// # Invariants
//
// I2, acknowledged means on disk: an append returns after the log has fsynced it, on a quorum of a cluster. Held by
// the publisher and by the settings of the stream.
//
// I14, one log: what a reader gets after a cursor is the same whether it stands in the archive or in the stream, and whatever
// is archived and trimmed meanwhile. Only event ids and the fields of a [events.Cursor] that are of use in the stream alone are
// missing in the archive: a cursor taken there has no checksum and no warm-up start, and is compared by its last time given. A
// cursor that the stream can serve never touches the archive; one that trimming overtakes goes back to it. A gap in the
// sequences is looked into before anything after it is given: what the archive has of it is read there, as if the stream had been
// trimmed beyond the gap, and a reader that reaches the end of the archive learns there what the stream no longer has.
// Nothing above [events.Cursor].WarmSeq of the end of the archive is ever trimmed ([Log.Trim]), so a reader at that end can warm up.
// Held by reader and [Log.CheckCursor].
//
// # The boundary between archive and stream
//
// In which part of the log a reader continues after a cursor at sequence c follows from where the archive ends (e), where the
// stream begins (s: from there it has no gaps, and is of the present epoch), and how far back its decoder must warm up (w ≤ c+1):
//
//	state       cursor                          the reader continues                  checked against
//	inStream    s ≤ w                           in the stream                         the message at c
//	inArchive   else, c < e                     in the archive after c                what the archive says of c
//	atBoundary  else, c = e; or after it, of    in the stream after e, warmed up      the message at e, or the time of
//	            the archive: its end was lost   before it; what is up to c is passed  the envelope at c when it is passed
//	atGap       else, e < c or c = e; s ≤ e+1   the same, but the decoder learns      the message at e, if it is there, and
//	                                            from the archive what it warms up by  at c
//	no state    else                            [ErrHole], if s > e+1: the log lost what is between; else [events.ErrTrimmed]
//
// # Holes
//
// A sequence that neither the stream nor the archive has, and that was never trimmed, is a hole ([ErrHole]). I11 and I14 demand
// that every reader stops in front of it: a fold that passed over it would differ from one that read the lost envelope. A reader
// also stops if its warm-up would cross a hole, because it could not tell repeats (I6). [Log.Examine] finds holes before readers
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
// Times continue after the last one given (I5). What was seen within the horizon before H is told to every decoder that begins
// at H+1, by [events.Past].Repeats (I6): its warm-up can go no further back. A warm-up start above H+1 has nothing of the horizon before
// it, so later ones need none of it.
package eventlog
