// Package events is the log of skein: what a fact is, how facts are appended, and how they are read back so that
// every reader sees the same.
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
// The package has two halves. The pure half knows neither the network nor the clock: [Validate] and [FromProto],
// [EncodeEnvelope], and [Decoder], whose output is a function of the messages that it is fed. The other half moves
// bytes: it opens the stream, publishes, reads, and hands each decoded envelope to all who follow the log.
//
// # One reader's rules, for every fold alike
//
// A message of the log is an envelope: a skein.v1.EventBatch of 1 to [MaxEnvelopeEvents] events and at most
// [MaxEnvelopeBytes] bytes. Anybody may append one, so the decoder trusts nothing about it.
//
//   - An envelope that is no message, has a later version or exceeds a bound has no events and takes no time. It
//     leaves one [Reject] with Slot -1, and the cursor moves on.
//   - An event that [Validate] refuses leaves one [Reject]. It keeps its slot and so its microsecond, and it
//     registers no event id.
//   - A good event whose acting user, kind and event id occurred within the [Horizon] is counted in
//     [Envelope.Repeats] and dropped.
//   - The rest are [Envelope.Events].
//
// # Invariants
//
// I2, acknowledged means on disk: an append returns after the log has fsynced it, on a quorum of a cluster. Held by
// the publisher and by the settings of the stream.
//
// I5, order, not clocks: the time of slot i of an envelope is max(timestamp of the message in the stream, last time
// given + 1 µs) + i µs. The last time given is in the [Cursor], so times never repeat or run back, whatever the
// wall clock does and wherever a reader starts. Only a backfill brings a time of its own, cut to its log time.
// Held by [Decoder].
//
// I6, idempotent: an event is dropped if the same (acting user, kind, event id) occurs within the horizon of 15
// minutes of log time before it, itself dropped or not; one that says something else than every such event is moreover kept among
// the rejects (EVENT_ID_REUSED). The decoder keeps two 64-bit hashes of each in memory, of the key and of that with what
// was said, and stores nothing:
// the cursor names an envelope (WarmSeq) from which a new decoder reads again before it goes on. Each cursor of the stream is a
// function of the log alone, and at the place where it was taken the new decoder must arrive at the same one, or
// the log was rewritten ([ErrRewritten]). Held by [Decoder].
//
// I14, one log: what a reader gets after a cursor is the same whether it stands in the archive or in the stream, and whatever
// is archived and trimmed meanwhile. Only event ids and the fields of a [Cursor] that are of use in the stream alone are
// missing in the archive: a cursor taken there has no checksum and no warm mark, and is compared by its last time given. A
// cursor that the stream can serve never touches the archive; one that trimming overtakes goes back to it. A gap in the
// sequences is looked into before anything after it is given: what the archive has of it is read there, as if the stream had been
// trimmed beyond the gap, and who comes to the end of the archive learns there what the stream no longer tells.
// Nothing above [Cursor].WarmSeq of the end of the archive is ever trimmed ([Log.Trim]), so who comes to that end can warm up.
// Held by reader and [Log.CheckCursor].
//
// # Holes
//
// A sequence that neither the stream nor the archive has, and that was never trimmed, is a hole ([ErrHole]). I11 and I14 demand
// that every reader stops in front of it: a fold that passed over it would differ from one that read the lost envelope. A reader
// also stops if its warm-up would cross a hole, because it could not tell repeats (I6). [Log.Examine] finds holes before readers
// do. Messages that come back close a hole. [Log.AcceptHole] records it in the metadata of the stream: each lost sequence is
// then one envelope without events and with one [Reject], the same for all readers and in the archive.
//
// # Epochs
//
// A log that was restored, moved or scrubbed goes on in a new epoch ([Restore]): everything up to its head H is in the
// archive, and its stream begins at H+1. The stream's metadata names the epochs before, each with the last sequence of it
// that the log still has, and the last time given.
//
//	epoch 1   1 ─────────────── H ┄┄┄┄┄ lost or replaced: cursors, positions and page tokens from here are refused
//	epoch 2                     └ H+1 ───────────▶       of up to H they are adopted ([Log.Adopt])
//
// Times go on after the last one given (I5). What was seen within the horizon before H is told to every decoder that begins
// at H+1, by [Past].Repeats (I6): its warm-up can go no further back. A warm mark above H+1 has nothing of the horizon before
// it, so later ones need none of it.
//
// I11, bad input stops nobody: what [Validate] refuses at the gateway, the decoder refuses on reading, with the same
// words. Held by [Validate], of which the decoder's fast path is only a shortcut to yes.
package events
